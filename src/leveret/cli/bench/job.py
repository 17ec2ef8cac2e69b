"""The parameters of one run of a scenario, passed to its processes."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Job:
    """The parameters of one run."""

    url: str  # of the broker
    name: str  # prefix of the names of its queues
    size: int = 16  # bytes per body; at least 16, as it contains a time
    duration_s: float = 3.0  # of the measurement; ignored if `messages` is set
    messages: int = 0  # in all; 0 to run for duration_s
    publishers: int = 1
    consumers: int = 1
    queues: int = 1
    persistent: bool = False  # durable queues and persistent messages
    confirm: int = 0  # the most unconfirmed messages per publisher; 0 = no confirms
    prefetch: int = 0  # 0 = no acknowledgements
    rate: int = 0  # messages per second of all publishers; 0 = unlimited
    fanout: bool = False  # each queue gets every message
    window: int = 1  # outstanding requests per requester
    delay_s: float = 2.0  # the longest delay

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
