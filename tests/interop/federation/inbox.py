"""A queue and its consumer."""

from __future__ import annotations

from collections import Counter
from typing import Any

from pika.adapters.blocking_connection import BlockingChannel

from ...conformance.support import Got, listen
from ...waiting import until


class Inbox:
    """got: what has come, in order, acknowledged as it came."""

    def __init__(self, queue: str, channel: BlockingChannel) -> None:
        self.queue = queue
        self.channel = channel
        self.got: list[Got] = listen(channel, queue, auto_ack=True)

    @property
    def bodies(self) -> list[str]:
        """Of all that has come."""
        self.channel.connection.process_data_events(0)
        return [each.body.decode() for each in self.got]

    def expect(self, *bodies: str) -> None:
        """Wait until these have come, in whatever order, each once, and nothing else."""
        wanted = Counter(bodies)

        def have() -> bool:
            found = Counter(self.bodies)
            assert found <= wanted, f"{self.queue} has {found}, wants {wanted}"
            return found == wanted

        until(have, lambda: f"{self.queue} has {self.bodies}, wants {bodies}")

    def next(self) -> Got:
        """The first that has come, taken out."""
        until(lambda: self.bodies, f"nothing has come to {self.queue}")
        return self.got.pop(0)

    def bind(self, *keys: str, exchange: str, arguments: dict[str, Any] | None = None) -> None:
        """Add bindings."""
        for key in keys:
            self.channel.queue_bind(self.queue, exchange, key, arguments)

    def unbind(self, *keys: str, exchange: str, arguments: dict[str, Any] | None = None) -> None:
        """Take bindings away."""
        for key in keys:
            self.channel.queue_unbind(self.queue, exchange, key, arguments)

    def delete(self) -> None:
        """Delete the queue."""
        self.channel.queue_delete(self.queue)
