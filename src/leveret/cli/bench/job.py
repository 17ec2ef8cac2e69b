"""What one run of a scenario is: what is sent, where and for how long. Handed to the processes that do it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Job:
    """url: of the broker; name: what the names of its queues begin with; size: of a body in octets, 16 at least (a time
    stands in it); duration_s or messages (0: for duration_s): how long; publishers, consumers, queues: how many;
    persistent: durable queues, persistent messages; confirm: unconfirmed at a time, 0 = without confirms; prefetch:
    0 = without acknowledgements; rate: messages per second of all publishers, 0 = as fast as it goes; fanout: each
    queue gets each message; window: requests under way; delay_s: longest delay."""

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
        """The name of a queue; those of processes go round."""
        return f"{self.name}.{number % self.queues}"

    @property
    def exchange(self) -> str:
        """Where it is published: the default exchange, unless each queue gets everything."""
        return self.name if self.fanout else ""

    @property
    def copies(self) -> int:
        """How often a message is delivered."""
        return self.queues if self.fanout else 1
