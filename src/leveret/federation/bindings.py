"""The bindings of a federated exchange, grouped, and how one is written on an upstream.

A binding goes upstream once for each pair of routing key and arguments, however many destinations have it. On the way
an entry is put in front of its argument x-bound-from: who wants these messages, and over how many more links they may
come. The rules and the bytes are those of RabbitMQ's links (rabbit_federation_exchange_link, update_binding).
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from leveret.federation.names import BOUND_FROM
from leveret.wire import grammar
from leveret.wire.errors import ProtocolError
from leveret.wire.grammar import MethodSpec
from leveret.wire.table import Value, decode_value, encode_short, encode_value, join_table, split_table

if TYPE_CHECKING:
    from leveret.broker.exchanges.binding import Binding

HOPS_MAX: Final = 32767  # they are a 16-bit integer on the wire
Group = tuple[str, bytes]
_BOUND_FROM: Final = BOUND_FROM.encode()
_HEAD: Final = struct.Struct(">BHI")


class Grouped:
    """The bindings of a federated exchange by routing key and arguments (an encoded table, in order), with counts."""

    def __init__(self, bindings: Iterable[Binding]) -> None:
        self._counts: dict[Group, int] = {}
        for binding in bindings:
            self.add(binding)

    def add(self, binding: Binding) -> bool:
        """Add a binding; True if it is the first one of its group."""
        group = (binding.key, binding.arguments)
        count = self._counts.get(group, 0)
        self._counts[group] = count + 1
        return count == 0

    def remove(self, binding: Binding) -> bool:
        """Remove a binding; True if it was the last one of its group."""
        group = (binding.key, binding.arguments)
        count = self._counts.get(group, 0)
        if count > 1:
            self._counts[group] = count - 1
            return False
        return self._counts.pop(group, None) is not None

    def __contains__(self, group: Group) -> bool:
        return group in self._counts

    def __len__(self) -> int:
        return len(self._counts)

    def groups(self) -> list[Group]:
        """All groups, oldest first."""
        return list(self._counts)


class BindingReceiver:
    """The receiver of messages, as written into bindings.

    cluster, vhost, exchange: where the messages come to, with the suffix of the link's internal exchange. max_hops:
    over how many links. upstream: cluster name and virtual host of the other side.
    """

    def __init__(
        self, cluster: str, vhost: str, exchange: str, suffix: str, max_hops: int, upstream: tuple[str, str]
    ) -> None:
        self._max_hops = min(max_hops, HOPS_MAX)
        self._upstream = upstream
        table: dict[str, Value] = {"cluster-name": cluster, "vhost": vhost, "exchange": f"{vhost}:{exchange} {suffix}"}
        self._fields = [(name.encode(), encode_value(value)) for name, value in table.items()]
        self._first = self._argument(self._max_hops, b"")

    def upstream_arguments(self, arguments: bytes) -> bytes | None:
        """The arguments of the binding on the upstream, an encoded table. None if the binding goes no further."""
        if _BOUND_FROM not in arguments:  # in most bindings, which no link has made
            return None if self._max_hops < 1 else _with(arguments, self._first)
        entries = split_table(arguments)
        before = next((value for name, value in entries if name == _BOUND_FROM), b"")
        hops = self._hops(before)
        if hops < 1:
            return None
        argument = self._argument(hops, before[5:] if before[:1] == b"A" else b"")
        return _with(join_table([entry for entry in entries if entry[0] != _BOUND_FROM]), argument)

    def _hops(self, before: bytes) -> int:
        """Over how many more links a binding with this x-bound-from may go."""
        try:
            found = decode_value(before, 0, len(before), 0)[0] if before else None
        except (ProtocolError, IndexError, struct.error):
            return 0
        if not isinstance(found, list) or not found:
            return self._max_hops
        if any(_is_from(entry, self._upstream) for entry in found):
            return 0  # the upstream, or a broker behind it, wants these messages, which it has
        newest = found[0].get("hops") if isinstance(found[0], dict) else None
        return min(newest - 1, self._max_hops) if isinstance(newest, int) else self._max_hops

    def _argument(self, hops: int, older: bytes) -> bytes:
        """The field x-bound-from with its name. older: the entries behind the new one."""
        entry = b"F" + join_table([*self._fields, (b"hops", b"s" + struct.pack(">h", hops))]) + older
        return encode_short(BOUND_FROM) + b"A" + len(entry).to_bytes(4, "big") + entry


def _with(arguments: bytes, field: bytes) -> bytes:
    body = arguments[4:] + field
    return len(body).to_bytes(4, "big") + body


def _is_from(entry: Value, place: tuple[str, str]) -> bool:
    return isinstance(entry, dict) and (entry.get("cluster-name"), entry.get("vhost")) == place


class UpstreamBinder:
    """Makes frames that bind an internal exchange to the upstream exchange.

    Everything that repeats is encoded once: there may be many thousand bindings, which are all sent at each connection.
    """

    def __init__(self, channel: int, internal: str, exchange: str, bounds: BindingReceiver) -> None:
        self.internal = internal
        self._channel = channel
        self._route = b"\0\0" + encode_short(internal) + encode_short(exchange)
        self._bounds = bounds

    def bind(self, group: Group, no_wait: bool) -> bytes:
        """An exchange.bind frame, b"" if the binding goes no further."""
        return self._frame(grammar.EXCHANGE_BIND, group, no_wait)

    def unbind(self, group: Group, no_wait: bool) -> bytes:
        """An exchange.unbind frame, b"" if the binding was never made."""
        return self._frame(grammar.EXCHANGE_UNBIND, group, no_wait)

    def _frame(self, spec: MethodSpec, group: Group, no_wait: bool) -> bytes:
        arguments = self._bounds.upstream_arguments(group[1])
        if arguments is None:
            return b""
        key = encode_short(group[0])
        size = 4 + len(self._route) + len(key) + 1 + len(arguments)
        head = _HEAD.pack(1, self._channel, size) + spec.key.to_bytes(4, "big")
        return b"".join((head, self._route, key, b"\1" if no_wait else b"\0", arguments, b"\xce"))
