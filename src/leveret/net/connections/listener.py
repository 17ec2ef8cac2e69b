"""Where the broker listens."""

from __future__ import annotations

from typing import NamedTuple


class Listener(NamedTuple):
    """protocol: "amqp", "amqp/ssl", "http", "https", as RabbitMQ calls them; address and port that it is bound to."""

    protocol: str
    address: str
    port: int
