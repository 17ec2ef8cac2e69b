"""What a transactional channel has published and settled since its last commit (AMQP 0-9-1, class tx).

A publish has been checked and routed when it gets here, but is in no queue yet. A delivery that was settled cannot be
found by its tag any more, so that settling it twice is an error, but nothing has become of it yet.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mypy_extensions import i64

from leveret.broker.exchanges.route import Route
from leveret.session.unacked import Delivery, Unacked
from leveret.wire.errors import PRECONDITION_FAILED, ProtocolError

if TYPE_CHECKING:
    from leveret.broker.streams.numbers import Number

# A commit becomes one batch of the journal, which has a limit (4 GiB); and until then all of it stands in memory.
TRANSACTION_OCTETS_MAX: Final[i64] = 256 << 20
# A commit is carried out in one turn, in which others wait. What it does counts as octets, therefore, besides contents:
# 65,536 arrivals of messages in queues, or 262,144 deliveries that are settled, are as many as one may have.
ARRIVAL_OCTETS: Final[i64] = 4096
SETTLEMENT_OCTETS: Final[i64] = 1024

# what becomes of deliveries at the commit
ACK: Final = 0
REJECT: Final = 1
REQUEUE: Final = 2


class HeldPublish:
    """A message and where it goes. ttl_us: its own time to live, counted from the commit; -1 = none. number: that of
    its publisher, for streams."""

    def __init__(
        self, route: Route, content: bytes, persistent: bool, ttl_us: i64, number: Number | None = None
    ) -> None:
        self.route = route
        self.content = content
        self.persistent = persistent
        self.ttl_us = ttl_us
        self.number = number


class HeldSettlement:
    """Deliveries, by tag, that were settled in one way, without another way in between. kind: ACK, REJECT, REQUEUE."""

    def __init__(self, kind: int) -> None:
        self.kind = kind
        self.deliveries: list[tuple[int, Delivery]] = []


class Transaction:
    """publishes, settlements: in the order in which they came."""

    def __init__(self) -> None:
        self.publishes: list[HeldPublish] = []
        self.settlements: list[HeldSettlement] = []
        self._octets: i64 = 0

    def publish(
        self, route: Route, content: bytes, persistent: bool, ttl_us: i64, number: Number | None = None
    ) -> None:
        """Hold a publish; ProtocolError (406) if that would make the transaction too large."""
        self._grow(i64(len(content)) + ARRIVAL_OCTETS * max(len(route.queues), 1), 40)
        if route.is_per_message:
            route = route.to(route.queues)  # the channel's next message changes the queues of the one it came with
        self.publishes.append(HeldPublish(route, content, persistent, ttl_us, number))

    def settle(self, unacked: Unacked, tag: int, multiple: bool, kind: int, method_id: int) -> None:
        """Hold one delivery, or all up to a tag (0: all); ProtocolError (406) if there are too many.

        method_id: of class basic, that of the method that settles them.
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
        """The deliveries that were settled."""
        return [delivery for held in self.settlements for _, delivery in held.deliveries]

    def release(self, unacked: Unacked) -> None:
        """Nothing will happen: make what was settled unacknowledged again."""
        unacked.restore([delivery for held in self.settlements for delivery in held.deliveries])
