"""A script: methods, one after another, on two channels of each of two connections."""

from __future__ import annotations

from dataclasses import dataclass, field
from keyword import iskeyword
from typing import Any

# connections and their frame_max: what comes in by one as one frame goes out by the other as several
LINKS = {1: 131072, 2: 4096}
CHANNELS = (1, 2)
SETTLEMENTS = ("basic.ack", "basic.nack", "basic.reject")


@dataclass(frozen=True)
class Step:
    """One thing that a client does.

    where: "1.2" is connection 1, channel 2. does: a method's name; "lose" cuts the connection's socket; "frame" sends
    one frame as it is (kind, channel, payload). args: the method's fields; a text beginning with "@" stands for what
    the broker said before: "@gen1" is the first name that it made up for a queue, "@ctag1" for a consumer, "@reply1"
    for direct replies. A delivery tag of "@last" or "@first" is the newest or oldest one that is not settled, on this
    channel or on the first one that has any; where none has, the step is left out.
    properties, count, size: of a publish; `count` alike but for the body go out in one segment, `size` octets each.
    """

    where: str
    does: str
    args: dict[str, Any] = field(default_factory=dict)
    properties: dict[str, Any] = field(default_factory=dict)
    count: int = 1
    size: int = 4

    @property
    def link(self) -> int:
        return int(self.where[0])

    @property
    def channel(self) -> int:
        return int(self.where[2:])

    def __repr__(self) -> str:
        more = [
            f"**{{{name!r}: {item!r}}}" if iskeyword(name) else f"{name}={item!r}" for name, item in self.args.items()
        ]
        if self.does == "basic.publish":
            if self.properties:
                more.append(f"properties={self.properties!r}")
            more += [f"{name}={item}" for name, item, usual in self._numbers() if item != usual]
        return f"step({', '.join([repr(self.where), repr(self.does), *more])})"

    def _numbers(self) -> list[tuple[str, int, int]]:
        return [("count", self.count, 1), ("size", self.size, 4)]


Script = list[Step]


def step(
    where: str, does: str, *, properties: dict[str, Any] | None = None, count: int = 1, size: int = 4, **args: Any
) -> Step:
    """A step as `show` prints it."""
    return Step(where, does, args, properties or {}, count, size)


def show(script: Script) -> str:
    """The script as Python, to be read and to be replayed."""
    return "[\n" + "".join(f"    {each!r},\n" for each in script) + "]"
