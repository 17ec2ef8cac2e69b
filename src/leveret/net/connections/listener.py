"""An address that the broker listens on."""

from __future__ import annotations

from typing import NamedTuple


class Listener(NamedTuple):
    """An address that the broker listens on.

    Attributes:
        protocol: "amqp", "amqp/ssl", "http", "https", as RabbitMQ calls them.
        address, port: What the socket is bound to.
    """

    protocol: str
    address: str
    port: int
