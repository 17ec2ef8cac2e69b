"""Numbers of messages that died in queues, by the queue's type, by reason, and by dead letter strategy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from leveret.broker.queues.queue import Queue

REASONS: Final = ("expired", "maxlen", "rejected", "delivery_limit")
# dropped; sent to an exchange and removed at once; sent to an exchange and kept until a queue has it
STRATEGIES: Final = ("disabled", "at_most_once", "at_least_once")
TYPES: Final = ("classic", "quorum", "stream")
_INDEX: Final[dict[str, int]] = {reason: index for index, reason in enumerate(REASONS)}


class Deaths:
    """The deaths in all queues of a virtual host, under the names of RabbitMQ's dead letter counters."""

    def __init__(self) -> None:
        self._counts = [0] * (2 * len(STRATEGIES) * len(REASONS))

    def add(self, queue: Queue, reason: str) -> None:
        """Count a message that died in this queue."""
        strategy = 2 if queue.keeps_undeliverable else 0 if queue.dead_letter_exchange is None else 1
        row = len(STRATEGIES) + strategy if queue.is_quorum else strategy
        self._counts[row * len(REASONS) + _INDEX[reason]] += 1

    def of(self, kind: str, strategy: str) -> tuple[int, ...]:
        """Return the numbers in the order of REASONS; messages in streams do not die."""
        if kind == "stream":
            return (0,) * len(REASONS)
        row = TYPES.index(kind) * len(STRATEGIES) + STRATEGIES.index(strategy)
        return tuple(self._counts[row * len(REASONS) : (row + 1) * len(REASONS)])
