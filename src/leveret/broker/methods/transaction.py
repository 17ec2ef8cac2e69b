"""What a transactional channel has published and settled since its last commit (AMQP 0-9-1, class tx).

A held publish has been checked and routed, but is in no queue yet. A held settlement has removed its deliveries' tags,
so that settling them twice is an error, but has no other effect yet.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mypy_extensions import i64

from leveret.broker.exchanges.route import Route
from leveret.session.unacked import Delivery, Unacked
from leveret.wire.errors import PRECONDITION_FAILED, ProtocolError

if TYPE_CHECKING:
    from leveret.broker.streams.numbers import Number

# A commit becomes one batch of the journal, which is limited to 4 GiB, and is in memory until then.
TRANSACTION_OCTETS_MAX: Final[i64] = 256 << 20
# A commit is done in one turn, during which others wait. So its work counts as octets besides the contents: at most
# 65,536 arrivals of messages in queues, or 262,144 settled deliveries.
ARRIVAL_OCTETS: Final[i64] = 4096
SETTLEMENT_OCTETS: Final[i64] = 1024

# how a commit settles deliveries
ACK: Final = 0
REJECT: Final = 1
REQUEUE: Final = 2


class HeldPublish:
    """A publish that waits for the commit."""

    def __init__(
        self, route: Route, content: bytes, persistent: bool, ttl_us: i64, number: Number | None = None
    ) -> None:
        self.route = route
        self.content = content
        self.persistent = persistent
        self.ttl_us = ttl_us  # its own TTL, which starts at the commit; -1 = none
        self.number = number  # its publisher's, for streams


class HeldSettlement:
    """Consecutive deliveries, by tag, that were settled in the same way: ACK, REJECT or REQUEUE."""

    def __init__(self, kind: int) -> None:
        self.kind = kind
        self.deliveries: list[tuple[int, Delivery]] = []


class Transaction:
    """The publishes and settlements since the last commit, in their order."""

    def __init__(self) -> None:
        self.publishes: list[HeldPublish] = []
        self.settlements: list[HeldSettlement] = []
        self._octets: i64 = 0

    def publish(
        self, route: Route, content: bytes, persistent: bool, ttl_us: i64, number: Number | None = None
    ) -> None:
        """Hold a publish. Raises 406 if the transaction gets too large."""
        self._grow(i64(len(content)) + ARRIVAL_OCTETS * max(len(route.queues), 1), 40)
        if route.is_per_message:
            route = route.to(route.queues)  # the channel's next message changes the route's queues
        self.publishes.append(HeldPublish(route, content, persistent, ttl_us, number))

    def settle(self, unacked: Unacked, tag: int, multiple: bool, kind: int, method_id: int) -> None:
        """Hold one delivery, or all up to a tag (0: all). Raises 406 if the transaction gets too large.

        method_id: of the method of class basic that settles them.
        """
        if not self.settlements or self.settlements[-1].kind != kind:
            self.settlements.append(HeldSettlement(kind))
        held = unacked.hold(tag, multiple)
        self.settlements[-1].deliveries += held
        self._grow(SETTLEMENT_OCTETS * len(held), method_id)

    def _grow(self, octets: i64, method_id: int) -> None:
        self._octets += octets
        if self._octets > TRANSACTION_OCTETS_MAX:
            text = f"transaction size {self._octets} is larger than max size {TRANSACTION_OCTETS_MAX}"
            raise ProtocolError(PRECONDITION_FAILED, text, 60, method_id)

    def held(self) -> list[Delivery]:
        """Return the deliveries that were settled."""
        return [delivery for held in self.settlements for _, delivery in held.deliveries]

    def release(self, unacked: Unacked) -> None:
        """Make the settled deliveries unacknowledged again."""
        unacked.restore([delivery for held in self.settlements for delivery in held.deliveries])
