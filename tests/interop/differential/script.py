"""A script: methods, one after another, on two channels of each of two connections."""

from __future__ import annotations

from dataclasses import dataclass, field
from keyword import iskeyword
from typing import Any

# connection -> frame_max: a body that arrives in one frame on one is delivered in several on the other
LINKS = {1: 131072, 2: 4096}
CHANNELS = (1, 2)
SETTLEMENTS = ("basic.ack", "basic.nack", "basic.reject")


@dataclass(frozen=True)
class Step:
    """One action of a client.

    Attributes:
        where: "1.2" is connection 1, channel 2.
        does: A method's name; "lose" cuts the connection's socket; "frame" sends a raw frame (kind, channel, payload).
        args: The method's fields. A text beginning with "@" stands for an earlier answer of the broker: "@gen1" is the
            first name that it generated for a queue, "@ctag1" for a consumer, "@reply1" for direct replies. A delivery
            tag of "@last" or "@first" is the newest or oldest unsettled one, on this channel or on the first one that
            has any; if none has, the step is left out.
        properties: Of a publish.
        count: How many messages that differ only in their bodies are published in one segment.
        size: Octets of each body.
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
    """Return a step; the call is what `show` prints."""
    return Step(where, does, args, properties or {}, count, size)


def show(script: Script) -> str:
    """Return the script as Python, to be read and replayed."""
    return "[\n" + "".join(f"    {each!r},\n" for each in script) + "]"
