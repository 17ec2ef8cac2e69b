"""x-federation-upstream: the exchange that links of other brokers put between an upstream exchange and their queues.

It takes only messages that the other side would accept: those that have not been there and have not made too many hops
(RabbitMQ's federation plugin, whose links declare this exchange on every upstream).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from librt.strings import read_i32_be
from mypy_extensions import i64

from leveret.broker.exchange_types.envelope import Envelope
from leveret.broker.exchange_types.exchange_arguments import MAX_HOPS
from leveret.broker.exchange_types.matcher import Matcher
from leveret.broker.names import RandomBytes
from leveret.broker.terms import items_of
from leveret.wire.table import Value, split_table

if TYPE_CHECKING:
    from leveret.broker.exchanges.binding import Binding, Bindings, Destination

RECEIVED_FROM: Final = b"x-received-from"
_ARRAY: Final[i64] = 0x41


def may_have_come(data: bytes, at: i64) -> bool:
    """Whether the encoded headers at this offset may name a link; False is certain. Nothing is decoded."""
    size = data[at] << 24 | data[at + 1] << 16 | data[at + 2] << 8 | data[at + 3]
    return data.find(RECEIVED_FROM, int(at) + 4, int(at) + 4 + size) >= 0


def hops_of(arguments: dict[str, Value]) -> bytes:
    """Return the maximum of hops in an exchange's arguments, encoded as it was declared."""
    hops = arguments[MAX_HOPS]
    assert isinstance(hops, int)
    return b"l" + hops.to_bytes(8, "big", signed=True)


def first_hops(data: bytes, at: i64) -> bytes:
    """Return the encoded value of x-received-from if it is the first of the encoded headers at this offset, else b"".

    Links of leveret write it first; b"" does not mean that the header is missing.
    """
    end = at + 4 + i64(read_i32_be(data, at))
    start = at + 5 + len(RECEIVED_FROM)
    if end - start < 5 or data[at + 4] != len(RECEIVED_FROM) or data[at + 5 : start] != RECEIVED_FROM:
        return b""
    stop = start + 5 + i64(read_i32_be(data, start + 1))
    return data[start:stop] if data[start] == _ARRAY and start + 5 <= stop <= end else b""


class FederationUpstream(Matcher):
    """The matcher of x-federation-upstream.

    Its arguments are the maximum of hops, and the downstream broker's and virtual host's names. Without both names it
    detects no cycles, as with old versions of the plugin's links.
    """

    def __init__(
        self, outgoing: dict[Destination, Bindings], arguments: dict[str, Value], random_bytes: RandomBytes
    ) -> None:
        super().__init__(outgoing, arguments, random_bytes)
        self.is_per_message = True
        self.is_hop_bound = True
        hops = arguments[MAX_HOPS]
        assert isinstance(hops, int)
        self.max_hops = hops
        self._name, self._vhost = (_octets(arguments.get(f"x-downstream-{what}")) for what in ("name", "vhost"))

    def match(self, envelope: Envelope) -> list[Binding]:
        return self.all() if self._takes(envelope) else []

    def trial(self, envelope: Envelope, found: list[Binding]) -> Iterator[None]:
        return self.find_all(found if self._takes(envelope) else [])

    def _takes(self, envelope: Envelope) -> bool:
        hops = envelope.headers().get(RECEIVED_FROM, b"V") if envelope.content else b"V"
        return hops[:1] != b"A" or self._may_go_on(items_of(hops))

    def _may_go_on(self, hops: list[bytes]) -> bool:
        return len(hops) < self.max_hops and not any(self.is_here(hop) for hop in hops)

    def is_here(self, hop: bytes) -> bool:
        """Whether this hop is the broker and virtual host that the message would go to."""
        if hop[:1] != b"F" or self._name is None or self._vhost is None:
            return False
        fields = dict(reversed(split_table(hop[1:])))
        return fields.get(b"cluster-name") == self._name and fields.get(b"vhost") == self._vhost


def _octets(name: Value) -> bytes | None:
    """Return a name as a long string is encoded in a table, None if it is no string."""
    if not isinstance(name, str):
        return None
    octets = name.encode("utf-8", "surrogateescape")
    return b"S" + len(octets).to_bytes(4, "big") + octets
