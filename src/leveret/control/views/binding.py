"""A binding as RabbitMQ's HTTP API shows it, and the key by which it is named there."""

from __future__ import annotations

import base64
import zlib
from urllib.parse import quote

from leveret.broker.binding import Binding
from leveret.broker.queue import Queue
from leveret.control.views.view import View, plain
from leveret.wire.table import decode_table


def binding_view(vhost: str, binding: Binding) -> View:
    """An item of list_bindings."""
    arguments, _ = decode_table(binding.arguments, 0)
    is_queue = isinstance(binding.destination, Queue)
    return {
        "source": binding.source.name,
        "vhost": vhost,
        "destination": binding.destination.name,
        "destination_type": "queue" if is_queue else "exchange",
        "routing_key": binding.key,
        "arguments": plain(arguments),
        "properties_key": properties_key(binding.key, binding.arguments),
    }


def default_view(vhost: str, queue: str) -> View:
    """The binding of each queue to the default exchange."""
    return {
        "source": "",
        "vhost": vhost,
        "destination": queue,
        "destination_type": "queue",
        "routing_key": queue,
        "arguments": {},
        "properties_key": properties_key(queue, b"\0\0\0\0"),
    }


def properties_key(key: str, arguments: bytes) -> str:
    """The routing key, and a hash of the encoded arguments if there are any; in RabbitMQ's form, not with its hash."""
    if arguments == b"\0\0\0\0":
        return quote(key, safe="", errors="surrogateescape") if key else "~"
    digest = base64.urlsafe_b64encode(zlib.crc32(arguments).to_bytes(4, "big")).decode().rstrip("=")
    return f"{quote(key, safe='', errors='surrogateescape')}~{digest}"
