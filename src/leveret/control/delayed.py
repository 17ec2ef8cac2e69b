"""Delayed messages in operators' commands: which ones are selected, and who may change them."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final

import msgspec

from leveret.broker.access.users import CONFIGURE, READ, WRITE
from leveret.broker.delayed.holder import Holder
from leveret.broker.delayed.search import Cut
from leveret.broker.delayed.wanted import DelayedFilter
from leveret.control.command import Command
from leveret.control.node import BrokerNode
from leveret.control.refusal import NOT_AUTHORISED, Refused, bad_request

# the end of the year 9999, the last one that calendars support
TIME_MS_MAX: Final = 253_402_300_799_999
# message ids that one command may select
IDS_MAX: Final = 100_000


class DelayedSelection(Command):
    """Selects delayed messages. All given filters must match."""

    vhost: str = "/"
    layout: str | None = None  # prefix of a delay layout, or name of a delayed exchange
    destination: str | None = None
    message_id: str | None = None
    due_after_ms: int | None = None  # due at this time or later, in milliseconds since 1970
    due_before_ms: int | None = None  # due before this time
    headers: dict[str, str] = msgspec.field(default_factory=dict)  # header names, and values as text
    parked: bool | None = None  # True: due, but undeliverable; False: still waiting
    message_ids: list[str] | None = None  # one of these
    without_headers: dict[str, str] = msgspec.field(default_factory=dict)  # none of these headers has this value

    def wanted(self, node: BrokerNode) -> DelayedFilter:
        """Return the selection in the broker's terms. Raises Refused for a time out of range and for too many ids."""
        start_us, end_us = span_us(node, self.due_after_ms, self.due_before_ms)
        return DelayedFilter(
            self.layout, self.destination, self.message_id, start_us, end_us, self.headers, self.parked,
            self.ids(), self.without_headers,
        )  # fmt: skip

    def ids(self) -> set[str] | None:
        """Return the selected message ids, None = any. Raises Refused if there are too many."""
        return checked_ids(self.message_ids)

    def is_anything(self) -> bool:
        """Return whether no filter is given, so that every message matches."""
        said = (self.layout, self.destination, self.message_id, self.due_after_ms, self.due_before_ms, self.parked)
        if self.ids() is not None:
            return False
        return not self.headers and not self.without_headers and all(each is None for each in said)


def checked_ids(ids: Collection[str] | None) -> set[str] | None:
    """Return the ids as a set. Raises Refused if there are too many."""
    if ids is not None and len(ids) > IDS_MAX:
        raise bad_request(f"{len(ids)} message ids given; at most {IDS_MAX} are allowed")
    return None if ids is None else set(ids)


def span_us(node: BrokerNode, after_ms: int | None, before_ms: int | None) -> tuple[int, int]:
    """Return a period of the broker's time in microseconds, 0 = open at this end. Raises Refused as `broker_us`."""
    start_us = 0 if after_ms is None else broker_us(node, after_ms)
    return start_us, 0 if before_ms is None else max(broker_us(node, before_ms), 1)


def broker_us(node: BrokerNode, wall_ms: int) -> int:
    """Convert wall clock time to the broker's time, by its current offset. Raises Refused for a time out of range."""
    check_time(wall_ms)
    return wall_ms * 1000 - int(node.broker.timeline.offset_us)


def check_time(time_ms: int) -> None:
    """Raise Refused unless 0 ≤ time_ms ≤ TIME_MS_MAX. Durations are checked the same way."""
    if not 0 <= time_ms <= TIME_MS_MAX:
        raise bad_request(f"{time_ms} is not a time in milliseconds since 1970")


def check_access(node: BrokerNode, vhost: str, user: str | None, cuts: Iterable[Cut], entrances: Iterable[str]) -> None:
    """Raise Refused unless the user may purge the messages' queues and publish to the exchanges."""
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
    """Return the permission needed. A delayed exchange cannot be purged: its messages go when it is deleted."""
    return ("queue", READ, holder.queue.name) if holder.level >= 0 else ("exchange", CONFIGURE, holder.queue.name)


def _refused(kind: str, name: str, vhost: str, user: str) -> Refused:
    return Refused(NOT_AUTHORISED, f"access to {kind} '{name}' in vhost '{vhost}' refused for user '{user}'")
