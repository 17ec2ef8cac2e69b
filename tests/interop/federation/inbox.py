"""A queue and its consumer."""

from __future__ import annotations

from collections import Counter
from typing import Any

from pika.adapters.blocking_connection import BlockingChannel

from ...conformance.support import Got, listen
from ...waiting import until


class Inbox:
    """A queue and a consumer with automatic acknowledgement."""

    def __init__(self, queue: str, channel: BlockingChannel) -> None:
        self.queue = queue
        self.channel = channel
        self.got: list[Got] = listen(channel, queue, auto_ack=True)  # messages in order of arrival

    @property
    def bodies(self) -> list[str]:
        """Return the bodies of all messages so far."""
        self.channel.connection.process_data_events(0)
        return [each.body.decode() for each in self.got]

    def expect(self, *bodies: str) -> None:
        """Wait until exactly these have arrived, in any order, each once."""
        wanted = Counter(bodies)

        def have() -> bool:
            found = Counter(self.bodies)
            assert found <= wanted, f"{self.queue} has {found}, wants {wanted}"
            return found == wanted

        until(have, lambda: f"{self.queue} has {self.bodies}, wants {bodies}")

    def next(self) -> Got:
        """Wait for the first message, and remove it from `got`."""
        until(lambda: self.bodies, f"nothing has come to {self.queue}")
        return self.got.pop(0)

    def bind(self, *keys: str, exchange: str, arguments: dict[str, Any] | None = None) -> None:
        for key in keys:
            self.channel.queue_bind(self.queue, exchange, key, arguments)

    def unbind(self, *keys: str, exchange: str, arguments: dict[str, Any] | None = None) -> None:
        for key in keys:
            self.channel.queue_unbind(self.queue, exchange, key, arguments)

    def delete(self) -> None:
        self.channel.queue_delete(self.queue)
