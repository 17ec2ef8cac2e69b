"""Dead letters that reached no queue, kept by the one in which they died (x-dead-letter-strategy=at-least-once).

They are not ready and take room; in the journal they are where they were, so a restart finds them in their queue again.
RabbitMQ tries 32 of a queue at a time, and those behind them wait. Here each stands for itself: a new dead letter goes
its way at once, and those that are kept are tried again when a binding, an exchange or a queue came, and now and then.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

from mypy_extensions import i64

from leveret.broker.entry import Entry
from leveret.broker.limits import body_octets

if TYPE_CHECKING:
    from leveret.broker.queue import Queue

# Pauses between two rounds double up to RabbitMQ's dead_letter_worker_publisher_confirm_timeout.
PAUSE_MIN_US: Final[i64] = 1_000_000
PAUSE_MAX_US: Final[i64] = 180_000_000
# Declarations and bindings come several at once.
SOON_US: Final[i64] = 100_000
# tried in one go, and when the others are: there may be many, and the other queues want their turn
ROUND_MAX: Final = 256
NEXT_US: Final[i64] = 1_000


class Letter:
    """A dead letter: what died, why and when. reached: the queues that have it, if others refused it."""

    def __init__(self, entry: Entry, reason: str, died_us: i64) -> None:
        self.entry = entry
        self.reason = reason
        self.died_us = died_us
        self.reached: list[Queue] = []


class Stranded:
    """octets: of the bodies; retry_us: when some are tried again, 0 = there are none."""

    def __init__(self) -> None:
        self.letters: deque[Letter] = deque()
        self.octets: i64 = 0
        self.retry_us: i64 = 0
        self._left = 0  # how many of this round have not been tried
        self._pause_us: i64 = PAUSE_MIN_US

    def add(self, letter: Letter) -> None:
        self.letters.append(letter)
        self.octets += body_octets(letter.entry.content)

    def hurry(self, now_us: i64) -> bool:
        """There may be a way for all of them: a new round. True if the time of the next one has changed."""
        self._left = len(self.letters)
        self._pause_us = PAUSE_MIN_US
        return self._alter(now_us + SOON_US)

    def _alter(self, when_us: i64) -> bool:
        if self.retry_us != 0 and self.retry_us <= when_us:
            return False
        self.retry_us = when_us
        return True

    def next_few(self, now_us: i64) -> list[Letter]:
        """Take out those that are to be tried now; add() those that stay."""
        if self.retry_us == 0 or self.retry_us > now_us:
            return []
        if self._left == 0:
            self._left = len(self.letters)
        count = min(self._left, ROUND_MAX)
        self._left -= count
        taken = [self.letters.popleft() for _ in range(count)]
        for letter in taken:
            self.octets -= body_octets(letter.entry.content)
        return taken

    def plan(self, now_us: i64, is_moving: bool) -> bool:
        """When to try again. is_moving: some letter went its way just now. True if there is a new time."""
        if not self.letters:
            self.retry_us = 0
            self._left = 0
            self._pause_us = PAUSE_MIN_US
            return False
        if is_moving:
            self._pause_us = PAUSE_MIN_US
        self.retry_us = now_us + (NEXT_US if self._left else self._pause_us)
        if self._left == 0:
            self._pause_us = min(2 * self._pause_us, PAUSE_MAX_US)
        return True
