"""Commands that add and remove bindings as an AMQP client does."""

from __future__ import annotations

from typing import Any, Literal
from urllib.parse import unquote_plus

import msgspec

from leveret.broker.exchanges.binding import Binding, bindings_to, in_order
from leveret.control.command import Command
from leveret.control.direct import DirectChannel
from leveret.control.node import BrokerNode
from leveret.control.refusal import not_found
from leveret.control.tables import encoded_table, key_and_hash, properties_key
from leveret.wire import grammar


class Bind(Command):
    """Do queue.bind or exchange.bind; answers with the properties key of the binding."""

    vhost: str
    source: str
    destination: str
    destination_type: Literal["queue", "exchange"] = "queue"
    routing_key: str = ""
    arguments: dict[str, Any] = msgspec.field(default_factory=dict)
    user: str | None = None  # whose permissions count, None = no check

    def run(self, node: BrokerNode) -> object:
        arguments, ends = encoded_table(self.arguments), (self.source, self.destination)
        with DirectChannel(node, self.vhost, self.user) as channel:
            if self.destination_type == "queue":
                _ask(channel, grammar.QUEUE_BIND, ends, self.routing_key, arguments)
            else:
                _ask(channel, grammar.EXCHANGE_BIND, ends, self.routing_key, arguments)
        return {"properties_key": key_and_hash(self.routing_key, in_order(arguments))}


class Unbind(Command):
    """Do queue.unbind or exchange.unbind. Unlike there, the binding must exist."""

    vhost: str
    source: str
    destination: str
    properties_key: str
    destination_type: Literal["queue", "exchange"] = "queue"
    user: str | None = None  # whose permissions count, None = no check

    def run(self, node: BrokerNode) -> None:
        with DirectChannel(node, self.vhost, self.user) as channel:
            if self.source == "":
                channel.ask(grammar.QUEUE_UNBIND, queue=self.destination)  # which AMQP refuses for the default exchange
            binding = self._binding(channel)
            ends = (self.source, self.destination)
            if self.destination_type == "queue":
                _ask(channel, grammar.QUEUE_UNBIND, ends, binding.key, binding.arguments)
            else:
                _ask(channel, grammar.EXCHANGE_UNBIND, ends, binding.key, binding.arguments)

    def _binding(self, channel: DirectChannel) -> Binding:
        vhost = channel.vhost
        is_queue = self.destination_type == "queue"
        destination = vhost.queues.get(self.destination) if is_queue else vhost.exchanges.get(self.destination)
        for binding in bindings_to(destination) if destination is not None else ():
            if binding.source.name == self.source and _parts(properties_key(binding)) == _parts(self.properties_key):
                return binding
        raise not_found(f"no such binding from '{self.source}' to '{self.destination}' in vhost '{self.vhost}'")


def _ask(channel: DirectChannel, spec: grammar.MethodSpec, ends: tuple[str, str], key: str, arguments: bytes) -> None:
    """Call the method; `ends` are source and destination, whatever the method calls them."""
    is_queue = spec.class_id == grammar.QUEUE_BIND.class_id
    fields: dict[str, str | bool | int | bytes] = {"routing_key": key, "arguments": arguments}
    fields["exchange" if is_queue else "source"], fields["queue" if is_queue else "destination"] = ends
    channel.ask(spec, **fields)


def _parts(properties_key: str) -> tuple[str, str]:
    """Return routing key and hash of the arguments; callers may quote the key differently."""
    key, _, hash = properties_key.partition("~")
    return unquote_plus(key, errors="surrogateescape"), hash
