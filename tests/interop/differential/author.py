"""Who writes a script: draws values, and remembers what was declared, so that most steps make sense."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st

from . import values

ODD_IN = 30
"""One value out of so many is odd or wrong: mistakes close channels, and end what is interesting."""


class Author:
    """queues, exchanges, tags (of consumers): the names given so far; modes: "tx" or "confirm" by channel."""

    def __init__(self, draw: Callable[[Any], Any], favourites: tuple[str, ...] = ()) -> None:
        """favourites: how the names of arguments begin that queues mostly have."""
        self._draw = draw
        self._favourites = tuple(
            arguments for favourite in favourites for arguments in values.QUEUE_ARGUMENTS
            if any(name.startswith(favourite) for name in arguments)
        )  # fmt: skip
        self.queues: list[str] = []
        self.exchanges: list[str] = []
        self.tags: list[str] = []
        self.modes: dict[str, str] = {}

    def of(self, plain: tuple[Any, ...], odd: tuple[Any, ...] = ()) -> Any:
        """One of the plain values; rarely one of the odd ones."""
        return self._draw(st.sampled_from(odd if odd and self.chance(ODD_IN) else plain))

    def chance(self, one_in: int) -> bool:
        """True once in so many times; scripts shrink towards False."""
        return bool(self._draw(st.integers(0, one_in - 1)) == one_in - 1)

    def flags(self, **one_in: int) -> dict[str, bool]:
        """The flags that are set, each with its chance."""
        return {name: True for name, chance in one_in.items() if self.chance(chance)}

    def new(self, there: list[str], plain: tuple[str, ...], odd: tuple[str, ...]) -> str:
        """A name to declare, mostly one that is not there yet."""
        left = tuple(name for name in plain if name not in there)
        name = str(self.of(plain if not left or self.chance(6) else left, odd))
        there.append(name)
        return name

    def queue(self) -> str:
        """The name of a queue, mostly of one that was declared."""
        plain = values.QUEUES if self.chance(8) else tuple(self.queues) or values.QUEUES
        return str(self.of(plain, values.ODD_QUEUES))

    def source(self) -> str:
        """The name of an exchange that may be bound, mostly of one that exists."""
        return str(self.of((*self.exchanges, *self.exchanges, *values.PREDECLARED), (*values.ODD_EXCHANGES, "")))

    def target(self) -> str:
        """The name of an exchange to publish to: the default one in half of the cases."""
        there = (*self.exchanges, *values.PREDECLARED)
        return str(self.of(("",) * len(there) + there, values.ODD_EXCHANGES))

    def key(self) -> str:
        """A routing or binding key."""
        return str(self.of(values.KEYS, values.ODD_KEYS))

    def queue_arguments(self) -> dict[str, Any]:
        """The arguments of a queue, from one or two of the usual tables."""
        arguments = dict(self.of(self._favourites or values.QUEUE_ARGUMENTS))
        if self.chance(4):
            arguments |= self.of(values.QUEUE_ARGUMENTS)
        return arguments

    def consumer_arguments(self) -> dict[str, Any]:
        """The arguments of a consumer."""
        if self.chance(ODD_IN):
            return {"x-priority": self.of(values.WRONG)}
        return dict(self.of(values.CONSUME_ARGUMENTS))

    def where(self, mode: str = "") -> str:
        """A channel, one with this mode if there is one."""
        fitting = tuple(where for where, each in self.modes.items() if each == mode) if mode else ()
        return str(self.of(fitting or values.WHERE))
