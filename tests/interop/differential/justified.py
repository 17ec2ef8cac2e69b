"""The kinds of difference between leveret and RabbitMQ 3.10.8 that are meant to be, each recognised narrowly."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from .player import Seen
from .script import Step


@dataclass(frozen=True)
class Kind:
    """covers: whether a step (of ours, of RabbitMQ's) shows this difference; source: what justifies it."""

    name: str
    reason: str
    source: str
    covers: Callable[[Step, Seen, Seen], bool]


def _frame_text(step: Step, ours: Seen, theirs: Seen) -> bool:
    return step.does == "frame" and _without_texts(ours) == _without_texts(theirs)


def _without_texts(seen: Seen) -> object:
    """What was seen, but of the texts of connection errors only the code's name."""
    frames = {
        where: [each.partition(" - ")[0] + each.rpartition("'")[2] if "connection.close" in each else each
                for each in frames]
        for where, frames in seen.frames.items()
    }  # fmt: skip
    return frames, seen.queues


def _reply_name(step: Step, ours: Seen, theirs: Seen) -> bool:
    return (
        step.does == "queue.declare"
        and step.args.get("queue", "").startswith("amq.rabbitmq.reply-to.")
        and any("reply_code=404" in each for frames in ours.frames.values() for each in frames)
        and any("reply_code=541" in each for frames in theirs.frames.values() for each in frames)
    )


KINDS = (
    Kind(
        "texts of frame errors",
        "RabbitMQ prints octets and Erlang terms; we say in words what is wrong, under the same code",
        "docs/ARCHITECTURE.md, Where leveret differs",
        _frame_text,
    ),
    Kind(
        "malformed direct reply-to name",
        "a name that was never given out does not exist: 404; RabbitMQ crashes over it: 541",
        "facts on direct reply-to: the declaration of a malformed name",
        _reply_name,
    ),
)
