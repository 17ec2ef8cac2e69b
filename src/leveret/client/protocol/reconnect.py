"""When and how often a client connects again after it has lost its connection, and which errors are final."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from leveret.client.protocol.errors import AuthenticationFailed, ConnectionClosed
from leveret.wire.errors import CONNECTION_FORCED, INTERNAL_ERROR, RESOURCE_ERROR

TEMPORARY: Final = (0, CONNECTION_FORCED, RESOURCE_ERROR, INTERNAL_ERROR)
"""Reply codes after which connecting again may help: the line broke (0), the broker stops, an operator closed the
connection, or the broker ran short of something. All others say that the client did something wrong."""


@dataclass(frozen=True)
class Reconnect:
    """How a client reconnects: first soon, then less and less often, at random times so that many clients spread.

    Attributes:
        first_delay_s: Longest delay before the first attempt, in seconds. It doubles with each attempt that fails.
        max_delay_s: Limit of the delay in seconds.
        attempts_max: Number of failed attempts in a row after which the connection ends; None = no limit. An attempt
            tries all hosts.
        outbox_max: How many publishes of a channel may wait for their confirms or for the connection.
        outbox_octets_max: How many octets these may take. A channel whose outbox is full raises OutboxFull (asyncio),
            or waits in publish() (blocking).
    """

    first_delay_s: float = 0.2
    max_delay_s: float = 30.0
    attempts_max: int | None = None
    outbox_max: int = 100_000
    outbox_octets_max: int = 128 * 1024 * 1024

    def __post_init__(self) -> None:
        if not 0 <= self.first_delay_s <= self.max_delay_s:
            raise ValueError(
                f"first_delay_s must be from 0 to max_delay_s ({self.max_delay_s:g}), not {self.first_delay_s:g}"
            )
        for name in ("attempts_max", "outbox_max", "outbox_octets_max"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name} must be at least 1, not {value}")

    def is_full(self, messages: int, octets: int) -> bool:
        """Whether an outbox with this many messages and octets has reached a limit."""
        return messages >= self.outbox_max or octets >= self.outbox_octets_max


class Backoff:
    """Delays between attempts: they double from first_s to longest_s, and each is shortened by up to half at random.

    The randomness keeps many clients from reconnecting to a restarted broker at the same instant.

    Args:
        first_s: Longest first delay in seconds.
        longest_s: Limit in seconds.
        random: Returns a number from 0 to 1.
    """

    def __init__(
        self, first_s: float = 0.5, longest_s: float = 30.0, random: Callable[[], float] = random.random
    ) -> None:
        self._first_s = first_s
        self._longest_s = longest_s
        self._random = random
        self._failures = 0

    def next_s(self) -> float:
        """Count an attempt and return the seconds to wait before it."""
        delay_s: float = min(self._first_s * 2 ** min(self._failures, 32), self._longest_s)
        self._failures += 1
        return delay_s * (0.5 + self._random() / 2)

    def reset(self) -> None:
        """Start again from the first delay, after a success."""
        self._failures = 0


class ReconnectDelays:
    """The delays of one connection over its life. random: as for Backoff."""

    def __init__(self, policy: Reconnect, random: Callable[[], float]) -> None:
        self._policy = policy
        self._backoff = Backoff(policy.first_delay_s, policy.max_delay_s, random)
        self._since_s = 0.0  # when the connection was restored

    def before_attempts(self, now_s: float) -> Iterator[float]:
        """Yield the delay in seconds before each attempt.

        They begin with the shortest, unless the connection was restored less than max_delay_s before now_s: a broker
        that accepts connections only to end them must not be asked more and more often.
        """
        if now_s - self._since_s > self._policy.max_delay_s:
            self._backoff.reset()
        attempt = 0
        while self._policy.attempts_max is None or attempt < self._policy.attempts_max:
            attempt += 1
            yield self._backoff.next_s()

    def succeeded(self, now_s: float) -> None:
        """Learn that the connection is restored."""
        self._since_s = now_s


def policy(reconnect: bool | Reconnect) -> Reconnect | None:
    """Return what the argument `reconnect` of connect() means: None = the connection ends when it is lost."""
    if isinstance(reconnect, Reconnect):
        return reconnect
    return Reconnect() if reconnect else None


def is_temporary(error: ConnectionClosed) -> bool:
    """Whether connecting again may help after this error."""
    return error.code in TEMPORARY and not isinstance(error, AuthenticationFailed)


def given_up(interruption: ConnectionClosed, last: ConnectionClosed) -> ConnectionClosed:
    """Return the error of a connection that was lost and could not be restored."""
    return ConnectionClosed(last.code, f"{interruption}; all attempts to reconnect have failed, the last: {last}")
