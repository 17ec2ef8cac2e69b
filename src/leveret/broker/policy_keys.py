"""What policies may set: the keys of their definitions.

The tables of arguments say which keys there are: queue_arguments.py for queues, exchange_arguments.py for exchanges.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

LONG_MAX: Final = 1 << 63
# which value counts where a policy and the declaration both have one
SMALLER: Final = "the smaller one"
DECLARED: Final = "the declared one"


class PolicyKey:
    """A key of a policy's definition, which sets an argument."""

    def __init__(
        self, fits: Callable[[object], bool], complaint: str, rule: str = "", by_policy: tuple[str, ...] = (),
        is_for_operators: bool = False, not_of: tuple[str, ...] | None = None,
    ) -> None:  # fmt: skip
        self.fits = fits  # whether a value is allowed
        self.complaint = complaint  # RabbitMQ's, behind a value that is not
        self.rule = rule  # SMALLER or DECLARED; "": it has no effect here
        self.by_policy = by_policy  # queue types, or policies.EXCHANGE, in which the policy's value counts in any case
        self.is_for_operators = is_for_operators  # operator policies may set it, too
        self.not_of = not_of  # queue types that a policy with it does not match; None: those that refuse the argument
        self.argument = ""  # the name of the argument


def whole(smallest: int, largest: int = LONG_MAX) -> Callable[[object], bool]:
    """Return whether a policy's value is an integer in these bounds."""
    return lambda value: isinstance(value, int) and not isinstance(value, bool) and smallest <= value <= largest


def one_of(*known: str) -> Callable[[object], bool]:
    """Return whether a policy's value is one of these words."""
    return lambda value: isinstance(value, str) and value in known


def is_text(value: object) -> bool:
    """Return whether a policy's value is a string."""
    return isinstance(value, str)


def is_boolean(value: object) -> bool:
    """Return whether a policy's value is true or false."""
    return isinstance(value, bool)
