"""A binding as RabbitMQ's HTTP API shows it."""

from __future__ import annotations

from leveret.broker.exchanges.binding import Binding
from leveret.broker.queues.queue import Queue
from leveret.control.tables import plain_table, properties_key, quoted, table_of
from leveret.control.views.view import View


def binding_view(vhost: str, binding: Binding) -> View:
    """Return an item of list_bindings."""
    is_queue = isinstance(binding.destination, Queue)
    return {
        "source": binding.source.name,
        "vhost": vhost,
        "destination": binding.destination.name,
        "destination_type": "queue" if is_queue else "exchange",
        "routing_key": binding.key,
        "arguments": plain_table(table_of(binding.arguments)),
        "properties_key": properties_key(binding),
    }


def default_view(vhost: str, queue: str) -> View:
    """Return the item of list_bindings for a queue's binding to the default exchange."""
    return {
        "source": "",
        "vhost": vhost,
        "destination": queue,
        "destination_type": "queue",
        "routing_key": queue,
        "arguments": {},
        "properties_key": quoted(queue),
    }

