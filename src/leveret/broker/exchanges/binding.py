"""A binding from an exchange to a queue or to another exchange."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, Union

from leveret.broker.queues.queue import Queue
from leveret.broker.storage.log import meta_record_of
from leveret.wire.table import Value, encode_short, encode_table, join_table, split_table

if TYPE_CHECKING:
    from leveret.broker.exchanges.exchange import Exchange

Destination = Union[Queue, "Exchange"]
Identity = str | tuple[str, bytes]
Bindings = dict[Identity, "Binding"]

ARGUMENTS: Final = encode_short("arguments")
_NONE: Final = b"\0\0\0\0"


class Binding:
    """A binding from an exchange to a queue or another exchange."""

    def __init__(self, source: Exchange, destination: Destination, key: str, arguments: bytes) -> None:
        self.source = source
        self.destination = destination
        self.key = key
        self.arguments = in_order(arguments)  # an encoded table, sorted by names
        # unique among the bindings from one source to one destination; an argument of another type makes another
        # binding
        self.identity: Identity = key if self.arguments == _NONE else (key, self.arguments)
        self.is_durable = source.is_journalled and destination.is_journalled
        self._record = b""

    def standing(self) -> Binding | None:
        """Return the existing binding that is equal to this one, if any."""
        alike = self.destination.incoming.get(self.source)
        return alike.get(self.identity) if alike is not None else None

    def record(self, vhost: str) -> bytes:
        """Return the journal record of this binding, encoded once, as each journal file begins with all bindings."""
        if self._record == b"":
            self._record = self._encoded("bind", vhost)
        return self._record

    def removal(self, vhost: str) -> bytes:
        """Return the journal record of its removal."""
        return self._encoded("unbind", vhost)

    def _encoded(self, op: str, vhost: str) -> bytes:
        fields: dict[str, Value] = {
            "op": op,
            "vhost": vhost,
            "source": self.source.name,
            "destination": self.destination.name,
            "is_queue": isinstance(self.destination, Queue),
            "key": self.key,
        }
        body = encode_table(fields)[4:] + ARGUMENTS + b"F" + self.arguments
        return meta_record_of(len(body).to_bytes(4, "big") + body)


def bindings_to(destination: Destination) -> Iterator[Binding]:
    """Yield the bindings to a destination, by source, except for those of deleted exchanges (stale_bindings.py)."""
    for source, bindings in list(destination.incoming.items()):
        if not source.is_deleted:
            yield from list(bindings.values())


def count_to(destination: Destination) -> int:
    """Return how many `bindings_to` yields."""
    return sum([len(bindings) for source, bindings in destination.incoming.items() if not source.is_deleted])


def in_order(arguments: bytes) -> bytes:
    """Return an encoded table sorted by its names."""
    return _NONE if arguments == _NONE else join_table(sorted(split_table(arguments), key=_name))


def _name(entry: tuple[bytes, bytes]) -> bytes:
    return entry[0]
