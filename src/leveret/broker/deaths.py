"""What has died in queues, counted by the type of queue, by reason, and by what its queue does about it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from leveret.broker.queue import Queue

REASONS: Final = ("expired", "maxlen", "rejected", "delivery_limit")
# dropped; given to an exchange, and gone whatever becomes of it there; given to one and kept until a queue has it
STRATEGIES: Final = ("disabled", "at_most_once", "at_least_once")
TYPES: Final = ("classic", "quorum", "stream")
_INDEX: Final[dict[str, int]] = {reason: index for index, reason in enumerate(REASONS)}


class Deaths:
    """Of all queues of a virtual host. The names are those of RabbitMQ's counters of dead letters."""

    def __init__(self) -> None:
        self._counts = [0] * (2 * len(STRATEGIES) * len(REASONS))

    def add(self, queue: Queue, reason: str) -> None:
        """A message has died in this queue."""
        strategy = 2 if queue.keeps_undeliverable else 0 if queue.dead_letter_exchange is None else 1
        row = len(STRATEGIES) + strategy if queue.is_quorum else strategy
        self._counts[row * len(REASONS) + _INDEX[reason]] += 1

    def of(self, kind: str, strategy: str) -> tuple[int, ...]:
        """How many there were, in the order of REASONS; in streams nothing dies."""
        if kind == "stream":
            return (0,) * len(REASONS)
        row = TYPES.index(kind) * len(STRATEGIES) + STRATEGIES.index(strategy)
        return tuple(self._counts[row * len(REASONS) : (row + 1) * len(REASONS)])
