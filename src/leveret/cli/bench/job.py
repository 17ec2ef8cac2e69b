"""The parameters of one run of a scenario, passed to its processes."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class BenchJob:
    """The parameters of one run.

    Attributes:
        url: of the broker.
        name: the prefix of the names of its queues.
        size: bytes per body; at least 16, as it contains a time.
        duration_s: of the measurement; ignored if `messages` is set.
        messages: in all; 0 to run for duration_s.
        persistent: durable queues and persistent messages.
        confirm: the most unconfirmed messages per publisher; 0 for no confirms.
        prefetch: 0 for no acknowledgements.
        rate: messages per second of all publishers; 0 for unlimited.
        fanout: each queue gets every message.
        window: outstanding requests per requester.
        delay_s: the longest delay.
    """

    url: str
    name: str
    size: int = 16
    duration_s: float = 3.0
    messages: int = 0
    publishers: int = 1
    consumers: int = 1
    queues: int = 1
    persistent: bool = False
    confirm: int = 0
    prefetch: int = 0
    rate: int = 0
    fanout: bool = False
    window: int = 1
    delay_s: float = 2.0

    def queue(self, number: int) -> str:
        """Return the name of the queue of process `number`; queues are assigned round robin."""
        return f"{self.name}.{number % self.queues}"

    @property
    def exchange(self) -> str:
        """The exchange to publish to: the default exchange, or with fanout one of its own."""
        return self.name if self.fanout else ""

    @property
    def copies(self) -> int:
        """How often each message is delivered."""
        return self.queues if self.fanout else 1
