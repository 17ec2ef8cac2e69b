"""Intended differences between leveret and RabbitMQ 3.10.8, each recognised narrowly."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from .player import Seen
from .script import Step

_DELIVERY = re.compile(r"^(basic.deliver consumer_tag=\S+) delivery_tag=\d+")
_REDELIVERED = re.compile(r" redelivered=\w+")


@dataclass(frozen=True)
class Kind:
    """A kind of intended difference.

    Attributes:
        source: What justifies it.
        covers: Whether a step (leveret's result, RabbitMQ's result) shows this difference; the script goes on without
            it. None: the difference is left out of the comparison.
    """

    name: str
    reason: str
    source: str
    covers: Callable[[Step, Seen, Seen], bool] | None


def _frame_text(step: Step, ours: Seen, theirs: Seen) -> bool:
    return step.does == "frame" and _without_texts(ours) == _without_texts(theirs)


def _without_texts(seen: Seen) -> object:
    """Return the result with only the code's name of the texts of connection errors."""
    frames = {
        where: [each.partition(" - ")[0] + each.rpartition("'")[2] if "connection.close" in each else each
                for each in frames]
        for where, frames in seen.frames.items()
    }  # fmt: skip
    return frames, seen.queues


def _crash(_: Step, ours: Seen, theirs: Seen) -> bool:
    return _is_crash(theirs) and not _is_crash(ours)


def _is_crash(seen: Seen) -> bool:
    """Whether a connection ended with an internal error, or without connection.close."""
    said = seen.frames.get("1.0", []) + seen.frames.get("2.0", [])
    return any("reply_code=541" in each or each.startswith("eof") for each in said)


def _order_of_queues(_: Step, ours: Seen, theirs: Seen) -> bool:
    return ours.queues == theirs.queues and _by_consumer(ours) == _by_consumer(theirs)


def _by_consumer(seen: Seen) -> object:
    """Return what each consumer got, without the delivery tags, which count by channel."""
    return {
        where: [_DELIVERY.sub(r"\1", each) for each in sorted(frames, key=_DELIVERY.findall)]
        for where, frames in seen.frames.items()
    }


def _closed_before_consumers_moved(_: Step, ours: Seen, theirs: Seen) -> bool:
    closed = {
        where[0] for where, frames in ours.frames.items() for each in frames if each.startswith("connection.close ")
    }
    return bool(closed) and _is_lost_late(ours, theirs, closed) and _but_late(ours, closed) == _but_late(theirs, closed)


def _is_lost_late(ours: Seen, theirs: Seen, closed: set[str]) -> bool:
    """Whether the queues differ by no more than was sent late to consumers without acknowledgements."""
    late = _late(theirs, closed) - _late(ours, closed)
    missing = 0
    for name in ours.queues | theirs.queues:
        (have, *others), (left, *their_others) = ours.queues.get(name, (0,)), theirs.queues.get(name, (0,))
        if others != their_others or left > have:
            return False
        missing += have - left
    return missing in (0, late)


def _late(seen: Seen, closed: set[str]) -> int:
    """Count the deliveries to closed connections of messages that had been sent before."""
    return sum(
        each.startswith("basic.deliver ") and "redelivered=True" in each
        for where, frames in seen.frames.items() for each in frames if where[0] in closed
    )  # fmt: skip


def _but_late(seen: Seen, closed: set[str]) -> object:
    """Return the result without deliveries to closed connections; others then got messages that had been sent there."""
    kept = {
        where: [_REDELIVERED.sub("", each) for each in frames
                if not (where[0] in closed and each.startswith("basic.deliver "))]
        for where, frames in seen.frames.items()
    }  # fmt: skip
    return {where: frames for where, frames in kept.items() if frames}


def _expired_together(step: Step, ours: Seen, theirs: Seen) -> bool:
    """Whether several messages that expire on arrival were published at once: places may differ, not their number."""
    together = step.does == "basic.publish" and step.count > 1 and step.properties.get("expiration") == "0"
    return together and ours.frames == theirs.frames and _counted(ours) == _counted(theirs)


def _counted(seen: Seen) -> object:
    """Return the number of messages in all queues together, and the rest of each queue's state."""
    states = seen.queues.items()  # its error, if it has one; its messages and consumers otherwise
    messages = sum(state[-2] for _, state in states if len(state) > 1)
    return messages, {name: (state[:-2], state[-1]) for name, state in states}


KINDS = (
    Kind(
        "texts of frame errors",
        "RabbitMQ prints octets and Erlang terms; we say in words what is wrong, under the same code",
        "docs/reference/compatibility.md",
        _frame_text,
    ),
    Kind(
        "answers in place of crashes",
        "where a method makes one of RabbitMQ's processes crash (541, or the socket is closed without a word), it is "
        "done, or the channel or connection is closed with what is wrong",
        "facts on direct reply-to, the declaration of a malformed name; docs/reference/compatibility.md",
        _crash,
    ),
    Kind(
        "which queue is quicker",
        "RabbitMQ's queues are processes: which of two is first to serve their consumers on one channel is not defined",
        "RabbitMQ, Broker Semantics: order is promised within one queue",
        _order_of_queues,
    ),
    Kind(
        "deliveries to a connection that is being closed",
        "at a connection's error RabbitMQ's channels end one after the other: what one gives back, another may "
        "still be sent, in vain; ours end together, and nothing follows the error",
        "specification 0-9-1, connection.close: nothing but close-ok is heeded after it",
        _closed_before_consumers_moved,
    ),
    Kind(
        "which of several messages is first to expire",
        "messages that expire at the head of a queue alone, and are dead letters to each other's queues, stay or go by "
        "what arrives first: RabbitMQ's queues are processes and see all that was published before any dead letter, or "
        "do not, as its schedulers like; ours see one message and its dead letters, then the next",
        "RabbitMQ, Time-To-Live: only the head of a queue expires; Broker Semantics: order within one queue",
        _expired_together,
    ),
    Kind(
        "x-last-death headers",
        "a message that died says also where and why it died last, as in newer RabbitMQ: contents.NEWER_HEADERS",
        "RabbitMQ 3.13 and 4, Dead Letter Exchanges: Effects on Message Headers",
        None,
    ),
)
