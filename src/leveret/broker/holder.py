"""Where delayed messages wait: the level queues of delay layouts, and what delayed exchanges hold."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mypy_extensions import i64

from leveret.broker.carbon_copies import split_key
from leveret.broker.entry import Entry
from leveret.broker.levels import address, levels_of
from leveret.broker.message_list import MessageList
from leveret.broker.page import Page
from leveret.broker.queue import Queue
from leveret.broker.run import Run
from leveret.broker.schedule import Schedule
from leveret.broker.undeliverable import UndeliverableList

if TYPE_CHECKING:
    from leveret.broker.vhost import VHost

# keys whose meaning is remembered, of one queue
ADDRESSES_MAX: Final = 4096


class Address:
    """destination: what stands behind the digits of a key; later_us: how long the lower levels will take."""

    def __init__(self, destination: str, later_us: i64) -> None:
        self.destination = destination
        self.later_us = later_us


class Holder:
    """layout: the prefix of a layout, or the name of a delayed exchange; level, unit_us: of a level queue, else -1 and
    0; levels: how many its layout has, 0 = its bindings do not tell."""

    def __init__(self, queue: Queue) -> None:
        self.queue = queue
        self.layout = queue.name
        self.level: i64 = -1
        self.levels = levels_of(queue)
        self.unit_us: i64 = 0
        if queue.level is not None:
            self.layout = queue.level.prefix
            self.level = queue.level.number
            self.unit_us = queue.level.unit_us
        self._addresses: dict[bytes, Address] = {}

    def address(self, key: bytes) -> Address:
        """What the key of a message says that waits here; a key of another form is a destination as it stands."""
        found = self._addresses.get(key)
        if found is None:
            if len(self._addresses) >= ADDRESSES_MAX:
                self._addresses.clear()
            found = self._addresses[key] = self._address(split_key(key)[1])
        return found

    def _address(self, routing_key: str) -> Address:
        said = address(routing_key, self.levels) if self.levels else None
        if said is None:
            return Address(routing_key, 0)
        units, destination = said
        return Address(destination, (i64(units) & ((1 << self.level) - 1)) * self.unit_us)

    def due_us(self, key: bytes, expires_us: i64) -> i64:
        """When a message is at its destination whose wait here ends at `expires_us`."""
        return expires_us + self.address(key).later_us

    def undeliverable_count(self) -> i64:
        """How many messages are due here and have no way."""
        return self.queue.undeliverable.count() if self.queue.undeliverable is not None else 0

    def parts(self) -> list[Part]:
        """All that waits here, as it stands now: messages are only referred to, and pages stay where they are."""
        message_lists = self.queue.every_list()
        found = [Part(self, each, isinstance(each, UndeliverableList), each.ready.items()) for each in message_lists]
        if isinstance(self.queue, Schedule):
            near: list[Entry | Run | Page] = []
            near.extend(self.queue.near())
            found.append(Part(self, None, False, near))
        return found


class Part:
    """One message list's messages. message_list: None = what a delayed exchange has in memory because it is due soon.
    """

    def __init__(
        self, holder: Holder, message_list: MessageList | None, is_undeliverable: bool, items: list[Entry | Run | Page]
    ) -> None:
        self.holder = holder
        self.message_list = message_list
        self.is_undeliverable = is_undeliverable
        self.items = items


def holders(vhost: VHost) -> list[Holder]:
    """All that delayed messages wait in, level by level from the highest, then the delayed exchanges."""
    levels = [Holder(queue) for queue in vhost.queues.values() if queue.level is not None]
    levels.sort(key=_order)
    return levels + [Holder(schedule) for _, schedule in sorted(vhost.schedules.items())]


def _order(holder: Holder) -> tuple[str, int]:
    return holder.layout, -int(holder.level)
