"""Publisher references: leveret keeps how far a publisher has got, so a publish that is repeated is stored once.

The protocol is plain AMQP 0-9-1 on a pseudo-queue (docs/guides/exactly-once.md). The publishes of a channel have
consecutive ids, which are never sent: after a reconnect the broker says which was the last that it has, and the client
sends those behind it.
"""

from __future__ import annotations

import json
from typing import Final

from leveret.client.protocol import requests
from leveret.client.protocol.errors import ChannelClosed, ClientError, FeatureMissing
from leveret.client.protocol.model import Delivery
from leveret.client.protocol.requests import Request
from leveret.client.protocol.waiter import Waiter
from leveret.wire.errors import ACCESS_REFUSED, NOT_FOUND
from leveret.wire.table import Value

PUBLISHER: Final = "amq.leveret.publisher"
"""The pseudo-queue to consume from to attach a channel."""
TAG: Final = "leveret-publisher"
"""The consumer tag of an attached channel."""


class PublisherReferencesMissing(FeatureMissing):
    """The broker keeps no publisher references."""

    def __str__(self) -> str:
        return (
            f"the broker keeps no publisher references (leveret does): {self.answer}; without one, messages are"
            " published at least once"
        )


class AttachedPublisher:
    """The reference of one channel.

    Attributes:
        name: The publisher's name.
        epoch: How often the reference was taken; None = the channel has not held it yet.
        base: The id before that of the publish which the broker counts as number 1 of the channel.
        known: Done when the broker has said for the first time which id is the last that it has.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.epoch: int | None = None
        self.base: int = 0
        self.known: Waiter[int] = Waiter()
        self._first_id = 1

    def request(self, first: int) -> Request:
        """Return the request that attaches the channel.

        first: the broker's number of the channel's oldest unconfirmed publish, or of its next one.
        """
        arguments: dict[str, Value] = {"x-leveret-publisher": self.name}
        if self.epoch is not None:
            self._first_id = self.base + first
            arguments |= {"x-leveret-epoch": self.epoch, "x-leveret-first-id": self._first_id}
        return requests.consume(PUBLISHER, TAG, True, False, arguments)

    def attached(self, state: Delivery) -> tuple[int, frozenset[int]]:
        """Read what the broker knows; return its last number of the channel's publishes, and the numbers it refused."""
        known = json.loads(state.body)
        # the publishes below _first_id are confirmed, also those of which the broker keeps nothing
        before, self.base, self.epoch = self.base, max(known["last_id"], self._first_id - 1), known["epoch"]
        self.known.succeed(self.base)
        return self.base - before, frozenset(refused - before for refused in known["refused"])


def missing(error: ClientError) -> PublisherReferencesMissing | None:
    """Return the error of a broker without publisher references, None for any other error."""
    # RabbitMQ checks the permission first, also for queues that do not exist
    is_unknown = isinstance(error, ChannelClosed) and error.code in (NOT_FOUND, ACCESS_REFUSED)
    return PublisherReferencesMissing(str(error)) if is_unknown and f"'{PUBLISHER}'" in str(error) else None
