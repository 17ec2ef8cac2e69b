"""Places where delayed messages wait: the level queues of delay layouts, and the schedules of delayed exchanges."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mypy_extensions import i64

from leveret.broker.dead_letters.undeliverable import UndeliverableList
from leveret.broker.delayed.levels import address, levels_of
from leveret.broker.delayed.schedule import Schedule
from leveret.broker.messages.carbon_copies import split_key
from leveret.broker.messages.entry import Entry
from leveret.broker.messages.message_batch import MessageBatch
from leveret.broker.queues.message_list import MessageList
from leveret.broker.queues.queue import Queue
from leveret.broker.storage.page import Page

if TYPE_CHECKING:
    from leveret.broker.vhost import VHost

# how many keys are cached per queue
ADDRESSES_MAX: Final = 4096


class DelayAddress:
    """The delay and destination in the key of a message on a level."""

    def __init__(self, destination: str, later_us: i64) -> None:
        self.destination = destination  # the part of the key after the digits
        self.later_us = later_us  # how long the message will wait on lower levels


class Holder:
    """A queue or schedule in which delayed messages wait."""

    def __init__(self, queue: Queue) -> None:
        self.queue = queue
        self.layout = queue.name  # prefix of the delay layout, or name of the delayed exchange
        self.level: i64 = -1  # of a level queue, else -1
        self.levels = levels_of(queue)  # how many levels its layout has, 0 = its bindings do not show it
        self.unit_us: i64 = 0  # of a level queue, else 0
        if queue.level is not None:
            self.layout = queue.level.prefix
            self.level = queue.level.number
            self.unit_us = queue.level.unit_us
        self._addresses: dict[bytes, DelayAddress] = {}

    def address(self, key: bytes) -> DelayAddress:
        """Return destination and further delay of a message that waits here with this key.

        A key of another form is the destination itself.
        """
        found = self._addresses.get(key)
        if found is None:
            if len(self._addresses) >= ADDRESSES_MAX:
                self._addresses.clear()
            found = self._addresses[key] = self._address(split_key(key)[1])
        return found

    def _address(self, routing_key: str) -> DelayAddress:
        said = address(routing_key, self.levels) if self.levels else None
        if said is None:
            return DelayAddress(routing_key, 0)
        units, destination = said
        return DelayAddress(destination, (i64(units) & ((1 << self.level) - 1)) * self.unit_us)

    def due_us(self, key: bytes, expires_us: i64) -> i64:
        """Return when a message reaches its destination whose wait here ends at expires_us."""
        return expires_us + self.address(key).later_us

    def undeliverable_count(self) -> i64:
        """Return how many messages are due here, but have no route."""
        return self.queue.undeliverable.count() if self.queue.undeliverable is not None else 0

    def parts(self) -> list[HeldPart]:
        """Return the messages that wait here now, by reference; nothing is loaded from pages."""
        message_lists = self.queue.every_list()
        found = [
            HeldPart(self, each, isinstance(each, UndeliverableList), each.ready.items()) for each in message_lists
        ]
        if isinstance(self.queue, Schedule):
            near: list[Entry | MessageBatch | Page] = []
            near.extend(self.queue.near())
            found.append(HeldPart(self, None, False, near))
        return found


class HeldPart:
    """The messages of one message list, or those of a delayed exchange that are in memory because they are due soon."""

    def __init__(
        self, holder: Holder, message_list: MessageList | None, is_undeliverable: bool,
        items: list[Entry | MessageBatch | Page],
    ) -> None:  # fmt: skip
        self.holder = holder
        self.message_list = message_list  # None = those that are due soon
        self.is_undeliverable = is_undeliverable
        self.items = items


def holders(vhost: VHost) -> list[Holder]:
    """Return all level queues, by layout and from the highest level down, and then the delayed exchanges."""
    levels = [Holder(queue) for queue in vhost.queues.values() if queue.level is not None]
    levels.sort(key=_order)
    return levels + [Holder(schedule) for _, schedule in sorted(vhost.schedules.items())]


def _order(holder: Holder) -> tuple[str, int]:
    return holder.layout, -int(holder.level)
