"""What becomes of a message whose handler failed: tried again at once, later, or put into the error queue."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from leveret.endpoint.body import UndecodableMessage
from leveret.endpoint.message import Incoming, PoisonMessage

log: Final = logging.getLogger("leveret.endpoint")


class UnknownMessage(LookupError):
    """No handler of this endpoint takes messages of these types, or the message does not tell its type."""


@dataclass(frozen=True)
class Failure:
    """What a policy decides upon.

    message: the message; exception: what its handler raised, the last time; immediate_retries, delayed_retries: how
    many of each the message has behind it.
    """

    message: Incoming
    exception: Exception
    immediate_retries: int
    delayed_retries: int


@dataclass(frozen=True)
class RetryNow:
    """Call the handler again."""


@dataclass(frozen=True)
class RetryLater:
    """Send the message to this endpoint again, after a delay."""

    delay: timedelta


@dataclass(frozen=True)
class MoveToError:
    """Put the message into an error queue; None: into the endpoint's."""

    queue: str | None = None


@dataclass(frozen=True)
class Discard:
    """Drop the message. reason: for the log."""

    reason: str


Action = RetryNow | RetryLater | MoveToError | Discard

UNRECOVERABLE: Final[tuple[type[Exception], ...]] = (PoisonMessage, UndecodableMessage, UnknownMessage)
"""What no retry helps against."""


@dataclass(frozen=True)
class Recoverability:
    """How often a message is tried.

    immediate_retries: how many times a handler is called again at once, in each round. delayed_retries: how many rounds
    follow the first; delay_increase: the wait before the first of them, which grows by as much for each next one.
    unrecoverable: exceptions after which no retry is made, beside those that say that a message can't be read. policy:
    decides instead, and may ask ``recoverability.default(failure)`` what would happen otherwise.

    The defaults are NServiceBus's: 5 at once, then after 10, 20 and 30 s: 24 attempts. ``ValueError`` for a negative
    number, and for an increase that is not positive.
    """

    immediate_retries: int = 5
    delayed_retries: int = 3
    delay_increase: timedelta = timedelta(seconds=10)
    unrecoverable: tuple[type[Exception], ...] = ()
    policy: Callable[[Recoverability, Failure], Action] | None = None

    def __post_init__(self) -> None:
        if self.immediate_retries < 0 or self.delayed_retries < 0:
            raise ValueError("a number of retries must not be negative")
        if self.delay_increase <= timedelta(0):
            raise ValueError("the delay of retries must be positive")

    def default(self, failure: Failure) -> Action:
        """What happens without a policy."""
        if isinstance(failure.exception, UNRECOVERABLE + self.unrecoverable):
            return MoveToError()
        if failure.immediate_retries < self.immediate_retries:
            return RetryNow()
        if failure.delayed_retries < self.delayed_retries:
            return RetryLater(self.delay_increase * (failure.delayed_retries + 1))
        return MoveToError()

    def decide(self, failure: Failure) -> Action:
        """What happens now. A policy that fails, or answers with something else than an action, counts as none."""
        if self.policy is None:
            return self.default(failure)
        try:
            action: object = self.policy(self, failure)
        except Exception:
            log.exception("the recoverability policy failed on message %r", failure.message.message_id)
            return self.default(failure)
        if not isinstance(action, Action):
            log.error("the recoverability policy returned %r, which is not an action", action)
            return self.default(failure)
        return action
