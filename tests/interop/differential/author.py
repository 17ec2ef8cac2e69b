"""Writes scripts: draws values, and remembers what was declared, so that most steps make sense."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st

from . import values

ODD_IN = 30
"""One value of this many is odd or wrong: errors close channels, which ends the interesting part."""


class Author:
    """Draws the steps of one script."""

    def __init__(self, draw: Callable[[Any], Any], favourites: tuple[str, ...] = ()) -> None:
        """`favourites` are prefixes of the argument names that most queues get."""
        self._draw = draw
        self._favourites = tuple(
            arguments for favourite in favourites for arguments in values.QUEUE_ARGUMENTS
            if any(name.startswith(favourite) for name in arguments)
        )  # fmt: skip
        self.queues: list[str] = []  # names declared so far
        self.exchanges: list[str] = []
        self.tags: list[str] = []  # consumer tags
        self.modes: dict[str, str] = {}  # channel -> "tx" or "confirm"

    def of(self, plain: tuple[Any, ...], odd: tuple[Any, ...] = ()) -> Any:
        """Return one of the plain values; rarely one of the odd ones."""
        return self._draw(st.sampled_from(odd if odd and self.chance(ODD_IN) else plain))

    def chance(self, one_in: int) -> bool:
        """Return True with probability 1/`one_in`; scripts shrink towards False."""
        return bool(self._draw(st.integers(0, one_in - 1)) == one_in - 1)

    def flags(self, **one_in: int) -> dict[str, bool]:
        """Return the flags that are set, each with probability 1/n."""
        return {name: True for name, chance in one_in.items() if self.chance(chance)}

    def new(self, there: list[str], plain: tuple[str, ...], odd: tuple[str, ...]) -> str:
        """Return a name to declare, mostly one that does not exist yet."""
        left = tuple(name for name in plain if name not in there)
        name = str(self.of(plain if not left or self.chance(6) else left, odd))
        there.append(name)
        return name

    def queue(self) -> str:
        """Return a queue name, mostly of a declared one."""
        plain = values.QUEUES if self.chance(8) else tuple(self.queues) or values.QUEUES
        return str(self.of(plain, values.ODD_QUEUES))

    def source(self) -> str:
        """Return the name of an exchange that may be bound, mostly of one that exists."""
        return str(self.of((*self.exchanges, *self.exchanges, *values.PREDECLARED), (*values.ODD_EXCHANGES, "")))

    def target(self) -> str:
        """Return the name of an exchange to publish to: the default one in half of the cases."""
        there = (*self.exchanges, *values.PREDECLARED)
        return str(self.of(("",) * len(there) + there, values.ODD_EXCHANGES))

    def key(self) -> str:
        """Return a routing or binding key."""
        return str(self.of(values.KEYS, values.ODD_KEYS))

    def queue_arguments(self) -> dict[str, Any]:
        """Return arguments of a queue, from one or two of the usual tables."""
        arguments = dict(self.of(self._favourites or values.QUEUE_ARGUMENTS))
        if self.chance(4):
            arguments |= self.of(values.QUEUE_ARGUMENTS)
        return arguments

    def consumer_arguments(self) -> dict[str, Any]:
        """Return arguments of a consumer."""
        if self.chance(ODD_IN):
            return {"x-priority": self.of(values.WRONG)}
        return dict(self.of(values.CONSUME_ARGUMENTS))

    def where(self, mode: str = "") -> str:
        """Return a channel, in this mode if there is one."""
        fitting = tuple(where for where, each in self.modes.items() if each == mode) if mode else ()
        return str(self.of(fitting or values.WHERE))
