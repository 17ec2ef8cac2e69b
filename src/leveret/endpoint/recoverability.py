"""The retry policy: a message whose handler failed is tried again at once, later, or moved to the error queue."""

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
    """This endpoint has no handler for the message's types, or the message has no type."""


@dataclass(frozen=True)
class Failure:
    """A failed attempt, for which a policy decides what to do.

    Attributes:
        message: The message.
        exception: The exception of the last attempt.
        immediate_retries: How many immediate retries there were in this round.
        delayed_retries: How many delayed retries there were.
    """

    message: Incoming
    exception: Exception
    immediate_retries: int
    delayed_retries: int


@dataclass(frozen=True)
class RetryNow:
    """Action: call the handler again at once."""


@dataclass(frozen=True)
class RetryLater:
    """Action: send the message to this endpoint again, after `delay`."""

    delay: timedelta


@dataclass(frozen=True)
class MoveToError:
    """Action: move the message to the error queue `queue`; None = the endpoint's."""

    queue: str | None = None


@dataclass(frozen=True)
class Discard:
    """Action: drop the message and log `reason`."""

    reason: str


Action = RetryNow | RetryLater | MoveToError | Discard

UNRECOVERABLE: Final[tuple[type[Exception], ...]] = (PoisonMessage, UndecodableMessage, UnknownMessage)
"""Exceptions after which no retry is made."""


@dataclass(frozen=True)
class Recoverability:
    """How often a message is tried. The defaults are NServiceBus's: 5 retries at once, repeated after 10, 20 and 30 s,
    which makes 24 attempts.

    Attributes:
        immediate_retries: How many times a handler is called again at once, in each round.
        delayed_retries: How many rounds follow the first one.
        delay_increase: Delay before the second round; it grows by this for each further round.
        unrecoverable: Exceptions after which no retry is made, in addition to those for unreadable messages.
        policy: Called with this object and the failure to decide instead; it may call
            ``recoverability.default(failure)`` for the default decision.

    Raises:
        ValueError: A number is negative, or the increase is not positive.
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
        """Return the action without a policy."""
        if isinstance(failure.exception, UNRECOVERABLE + self.unrecoverable):
            return MoveToError()
        if failure.immediate_retries < self.immediate_retries:
            return RetryNow()
        if failure.delayed_retries < self.delayed_retries:
            return RetryLater(self.delay_increase * (failure.delayed_retries + 1))
        return MoveToError()

    def decide(self, failure: Failure) -> Action:
        """Return the action for a failure. A policy that raises or does not return an action is ignored."""
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
