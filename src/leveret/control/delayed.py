"""Delayed messages as operators speak of them: which ones are meant, and who may change them."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final

import msgspec

from leveret.broker.holder import Holder
from leveret.broker.search import Cut
from leveret.broker.users import CONFIGURE, READ, WRITE
from leveret.broker.wanted import Wanted
from leveret.control.command import Command
from leveret.control.node import Node
from leveret.control.refusal import NOT_AUTHORISED, Refused, bad_request

# the end of year 9999, beyond which no calendar goes
TIME_MS_MAX: Final = 253_402_300_799_999
# message ids that are looked for in one pass
IDS_MAX: Final = 100_000


class Selection(Command):
    """Which delayed messages: those that fit in all that is said.

    message_ids: one of these; without_headers: those that have none of these headers with this value.

    layout: the prefix of a delay layout, or the name of a delayed exchange; due_after_ms, due_before_ms: due then or
    later, and before, in milliseconds since 1970; headers: names, and values as text; parked: those that are due and
    have no way, or those that still wait.
    """

    vhost: str = "/"
    layout: str | None = None
    destination: str | None = None
    message_id: str | None = None
    due_after_ms: int | None = None
    due_before_ms: int | None = None
    headers: dict[str, str] = msgspec.field(default_factory=dict)
    parked: bool | None = None
    message_ids: list[str] | None = None
    without_headers: dict[str, str] = msgspec.field(default_factory=dict)

    def wanted(self, node: Node) -> Wanted:
        """The same for the broker. Refused for a time that no calendar has, and for too many ids."""
        start_us, end_us = span_us(node, self.due_after_ms, self.due_before_ms)
        return Wanted(
            self.layout, self.destination, self.message_id, start_us, end_us, self.headers, self.parked,
            self.ids(), self.without_headers,
        )  # fmt: skip

    def ids(self) -> set[str] | None:
        """The ids one of which fits, None = any. Refused if they are too many for one pass."""
        return checked_ids(self.message_ids)

    def is_anything(self) -> bool:
        """Whether nothing is said, so that every message fits."""
        said = (self.layout, self.destination, self.message_id, self.due_after_ms, self.due_before_ms, self.parked)
        if self.ids() is not None:
            return False
        return not self.headers and not self.without_headers and all(each is None for each in said)


def checked_ids(ids: Collection[str] | None) -> set[str] | None:
    """They as a set. Refused if there are too many of them for one pass."""
    if ids is not None and len(ids) > IDS_MAX:
        raise bad_request(f"{len(ids)} message ids are given; {IDS_MAX} can be given at once")
    return None if ids is None else set(ids)


def span_us(node: Node, after_ms: int | None, before_ms: int | None) -> tuple[int, int]:
    """A stretch of the broker's time in microseconds; an end of 0 = it has none. Refused as in `broker_us`."""
    start_us = 0 if after_ms is None else broker_us(node, after_ms)
    return start_us, 0 if before_ms is None else max(broker_us(node, before_ms), 1)


def broker_us(node: Node, wall_ms: int) -> int:
    """When the broker comes to this time of the wall's, as its clock is set now. Refused if no calendar has it."""
    check_time(wall_ms)
    return wall_ms * 1000 - int(node.broker.timeline.offset_us)


def check_time(time_ms: int) -> None:
    """Refused for a time that no calendar has, or as long a duration."""
    if not 0 <= time_ms <= TIME_MS_MAX:
        raise bad_request(f"{time_ms} is no time in milliseconds since 1970")


def check_access(node: Node, vhost: str, user: str | None, cuts: Iterable[Cut], entrances: Iterable[str]) -> None:
    """Refused unless the user may take messages out of their queues, as for a purge, and publish to the entrances."""
    if user is None:
        return
    access = node.broker.access(user, vhost)
    for cut in cuts:
        kind, action, name = _right(cut.part.holder)
        if not access.may(action, name):
            raise _refused(kind, name, vhost, user)
    for name in entrances:
        if not access.may(WRITE, name):
            raise _refused("exchange", name, vhost, user)


def _right(holder: Holder) -> tuple[str, str, str]:
    """What a delayed exchange holds goes with it when it is deleted, and nobody can purge it."""
    return ("queue", READ, holder.queue.name) if holder.level >= 0 else ("exchange", CONFIGURE, holder.queue.name)


def _refused(kind: str, name: str, vhost: str, user: str) -> Refused:
    return Refused(NOT_AUTHORISED, f"access to {kind} '{name}' in vhost '{vhost}' refused for user '{user}'")
