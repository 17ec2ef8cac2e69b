"""A publish to very many queues: it reaches them in several turns, between which others are served.

The publisher's next frames wait, so each queue gets the messages of one channel in order; messages of other publishers
may come between. The confirm says that all queues have the message. If the client disconnects before, the others do not
get it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mypy_extensions import i64

from leveret.broker.exchanges.route import QUEUES_MAX, Route
from leveret.broker.queues.overflow import expire_untaken
from leveret.broker.queues.ready import ITEM_OCTETS
from leveret.broker.streams.numbers import Number, accept_numbered
from leveret.session.confirms import HANDLED, JOURNALLED, REFUSED, SYNCING

if TYPE_CHECKING:
    from leveret.broker.peer import Peer


class Spread:
    """A publish that has reached a part of its queues."""

    def __init__(
        self, peer: Peer, route: Route, content: bytes, persistent: bool, ttl_us: i64, number: Number | None,
        standing: i64,
    ) -> None:  # fmt: skip
        self._peer = peer
        self._route = route
        self._queues = route.queues  # the route's own list may change meanwhile
        self._content = content
        self._persistent = persistent
        self._ttl_us = ttl_us
        self._number = number  # for the streams among the queues
        self._at: i64 = 0  # index of the first queue that has not got it
        self._is_refused = False
        log = peer.broker.log
        # the journal's batch that must be on disk before the confirm
        self._batch = -1 if standing == HANDLED else log.batch if standing == JOURNALLED else log.batch - 1

    def go_on(self) -> bool:
        """Publish to the next queues; True if all have the message."""
        peer = self._peer
        vhost = peer.vhost
        queues = [queue for queue in self._queues[self._at : self._at + QUEUES_MAX] if not queue.is_deleted]
        self._at += QUEUES_MAX
        if queues:
            part = self._route.to(queues)
            if self._number is not None:
                how = self._content, self._persistent, self._ttl_us, self._number
                accepted = accept_numbered(peer, None, part, *how, HANDLED)
            else:
                peer.cost += len(self._content) + ITEM_OCTETS * len(queues)
                accepted = vhost.accept(part, self._content, self._persistent, self._ttl_us, peer.now_us)
                if self._ttl_us == 0 or part.is_brief:
                    expire_untaken(vhost, queues, peer.now_us)
            if accepted == REFUSED:
                self._is_refused = True
            elif accepted == JOURNALLED:
                self._batch = vhost.log.batch
            elif accepted == SYNCING:
                self._batch = max(self._batch, vhost.log.batch - 1)
        return self._at >= len(self._queues)

    def standing(self) -> i64:
        """Return the state of its confirm when all queues have it."""
        log = self._peer.broker.log
        if self._is_refused:
            return REFUSED
        if self._batch == log.batch:
            return JOURNALLED
        return SYNCING if log.synced < self._batch else HANDLED
