"""A binding from an exchange to a queue or to another exchange."""

from __future__ import annotations

from typing import TYPE_CHECKING, Union

from leveret.wire.table import Value, encode_table

if TYPE_CHECKING:
    from leveret.broker.exchange import Exchange
    from leveret.broker.queue import Queue

Destination = Union["Queue", "Exchange"]


class Binding:
    """identity: (source, routing key, encoded arguments), unique among the bindings of one destination."""

    def __init__(self, source: Exchange, destination: Destination, key: str, arguments: dict[str, Value]) -> None:
        self.source = source
        self.destination = destination
        self.key = key
        self.arguments = arguments
        self.identity = (source.name, key, encode_table(dict(sorted(arguments.items()))))
        self.is_durable = source.is_journalled and destination.is_journalled
