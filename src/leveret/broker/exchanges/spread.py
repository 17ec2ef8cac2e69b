"""A publish for very many queues: they get it in several turns, in which others are served.

What the publisher says behind it waits, so each queue has what comes from one channel in its order; what others publish
meanwhile may stand between. The confirm says that all have it. If the client is gone before, the others do not get it.
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
    """standing: of the confirm, as long as no queue has it; number: for the streams among them."""

    def __init__(
        self, peer: Peer, route: Route, content: bytes, persistent: bool, ttl_us: i64, number: Number | None,
        standing: i64,
    ) -> None:  # fmt: skip
        self._peer = peer
        self._route = route
        self._queues = route.queues  # the route may get others meanwhile
        self._content = content
        self._persistent = persistent
        self._ttl_us = ttl_us
        self._number = number
        self._at: i64 = 0  # the first queue that has not got it
        self._is_refused = False
        log = peer.broker.log
        # of the journal, which must be on disk before the confirm
        self._batch = -1 if standing == HANDLED else log.batch if standing == JOURNALLED else log.batch - 1

    def go_on(self) -> bool:
        """Give it to the next queues; True if all have it."""
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
        """How its confirm stands, now that all have it."""
        log = self._peer.broker.log
        if self._is_refused:
            return REFUSED
        if self._batch == log.batch:
            return JOURNALLED
        return SYNCING if log.synced < self._batch else HANDLED
