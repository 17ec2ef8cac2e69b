"""Changes the due time of delayed messages: they leave their level, and enter the one for the new delay.

A message leaves and arrives by one journal record, as a dead letter does. Its death history from earlier waits is
removed: otherwise RabbitMQ before 4.0.1, and our own detection of cycles, would take it for a message in a cycle.
"""

from __future__ import annotations

import struct
from datetime import UTC, datetime, timedelta
from typing import Final

from librt.strings import read_i32_be
from mypy_extensions import i64

from leveret.broker.delayed.holder import Holder
from leveret.broker.delayed.schedule import Schedule
from leveret.broker.exchanges import routing
from leveret.broker.exchanges.exchange import Exchange
from leveret.broker.exchanges.route import Route
from leveret.broker.messages.carbon_copies import blind_keys
from leveret.broker.messages.contents import HEADER_AT, header_of, raw_headers, with_header
from leveret.broker.messages.entry import Entry
from leveret.broker.messages.returned import COUNT, published_content
from leveret.broker.queues.queue import Queue
from leveret.broker.vhost import VHost
from leveret.session.confirms import JOURNALLED
from leveret.wire.errors import ProtocolError
from leveret.wire.properties import replace_property
from leveret.wire.scan import HeaderScan
from leveret.wire.table import decode_value, encode_short, encode_value, join_table

DELAY: Final = b"NServiceBus.Transport.RabbitMQ.DelayInSeconds"
SENT: Final = b"NServiceBus.TimeSent"
_SENT_FORMAT: Final = "%Y-%m-%d %H:%M:%S:%f Z"
_EPOCH: Final = datetime.fromtimestamp(0, UTC)
_DEATHS: Final = (b"x-death", b"x-first-death-", b"x-last-death-")
_SECOND_US: Final[i64] = 1_000_000
# NServiceBus's maximum, whatever the layout
_DELAY_S_MAX: Final = (1 << 28) - 1


class Impossible(Exception):
    """A message cannot get the new time; the text says why."""


class Retiming:
    """Gives messages of one virtual host the time that ``aim`` was called with last."""

    def __init__(self, vhost: VHost, holders: list[Holder], now_us: i64) -> None:
        self._vhost = vhost
        self._at_us = now_us
        self._now_us = now_us
        self._levels: dict[tuple[str, int], Queue] = {}
        for holder in holders:
            if holder.level >= 0:
                self._levels[(holder.layout, int(holder.level))] = holder.queue

    def aim(self, at_us: i64) -> None:
        """Set the time for the calls that follow; no message becomes due before it."""
        self._at_us = at_us

    def units(self, holder: Holder) -> int:
        """Return the new delay in the units of a layout, rounded up. Raises Impossible if it is too long."""
        wait_us = max(self._at_us - self._now_us, 0)
        units = int((wait_us + holder.unit_us - 1) // holder.unit_us)
        if holder.levels == 0:
            raise Impossible(f"the binding of the level queue '{holder.queue.name}' is missing: declare the layout")
        if units >> holder.levels:
            most = ((1 << holder.levels) - 1) * holder.unit_us // 1000
            raise Impossible(f"the layout '{holder.layout}' can delay for {most} ms at most")
        return units

    def due_us(self, holder: Holder) -> i64:
        """Return when the messages of a holder will be due. Raises Impossible like `units`."""
        if holder.level < 0:
            return max(self._at_us, self._now_us)
        return self._now_us + i64(self.units(holder)) * holder.unit_us

    def entrance(self, holder: Holder) -> Queue | None:
        """Return the queue in which a message of this holder begins its new wait; None for a schedule, which keeps it.

        Raises Impossible if the queue does not exist, or may be full.
        """
        if holder.level < 0:
            return None
        units = self.units(holder)
        number = max(units.bit_length() - 1, 0)
        queue = self._levels.get((holder.layout, number))
        if queue is None:
            raise Impossible(f"level {number} of the layout '{holder.layout}' is missing: declare the layout")
        if queue.limits is not None:
            raise Impossible(
                f"the level queue '{queue.name}' has a length limit, so it might refuse or drop the messages"
            )
        return queue

    def move(self, holder: Holder, entry: Entry) -> None:
        """Make a message wait for the new time; `entrance` must be possible. The caller removes it from its place."""
        schedule = holder.queue
        if isinstance(schedule, Schedule):
            moved = entry if entry.id != 0 else None
            is_kept = schedule.put(entry.content, entry.key, max(self._at_us, self._now_us), self._now_us, moved)
        else:
            is_kept = self._enter(holder, entry)
        if entry.id != 0 and not is_kept:
            self._vhost.log.settle(entry.message_list, entry.id)

    def _enter(self, holder: Holder, entry: Entry) -> bool:
        queue = self.entrance(holder)
        assert queue is not None
        units = self.units(holder)
        destination = holder.address(entry.key).destination
        content = self._content(entry, units * holder.unit_us)
        scan = HeaderScan()
        scan.scan(content, HEADER_AT, HEADER_AT + i64(read_i32_be(content, 3)))
        route = self._delivery(holder, entry, destination) if units == 0 else None
        if route is None:
            route = self._route(queue.name, max(units, 1), holder, entry, destination, None)
            route.set_queues([queue])
        moved = entry if entry.id != 0 else None
        return self._vhost.accept(route, content, scan.delivery_mode == 2, -1, self._now_us, moved) == JOURNALLED

    def _delivery(self, holder: Holder, entry: Entry, destination: str) -> Route | None:
        """Return the route of a message that is due at once, or None, or its queues may be full.

        The message then waits for one unit, and after that like every due message without a route.
        """
        lowest = self._levels[(holder.layout, 0)]
        exchange = self._vhost.exchanges.get(lowest.dead_letter_exchange or "")
        if exchange is None:
            return None
        route = self._route(exchange.name, 0, holder, entry, destination, exchange)
        found = routing.find(self._vhost, exchange, route.key, route.keys)
        return found if found.queues and not found.is_limited and not found.is_per_message else None

    def _route(
        self, name: str, units: int, holder: Holder, entry: Entry, destination: str, exchange: Exchange | None
    ) -> Route:
        routing_key = ".".join(format(units, f"0{holder.levels}b")) + "." + destination
        key = encode_short(name) + encode_short(routing_key)
        blind = blind_keys(entry.key)
        for each in blind:
            key += encode_short(each)
        return Route(self._vhost.generation, key, exchange, [routing_key, *blind])

    def _content(self, entry: Entry, wait_us: i64) -> bytes:
        """Return the content as it was before its waits, with the new delay in the header that NServiceBus reads."""
        content = published_content(entry)
        header = header_of(content)
        try:
            entries = [each for each in raw_headers(header) if not each[0].startswith(_DEATHS) and each[0] != COUNT]
        except ProtocolError:
            return content
        values = dict(reversed(entries))
        if DELAY in values:
            sent, delay_s = _delay(values.get(SENT), self._now_us, self._now_us + wait_us)
            entries = [each for each in entries if each[0] not in (DELAY, SENT)]
            entries += [(SENT, sent), (DELAY, b"I" + struct.pack(">i", delay_s))]
        if not entries:
            return with_header(content, replace_property(header, "headers", None))
        return with_header(content, replace_property(header, "headers", join_table(entries)))


def _delay(sent: bytes | None, now_us: i64, due_us: i64) -> tuple[bytes, int]:
    """Return (encoded time of sending, delay in seconds) that give the due time, or a little later.

    The time of sending stays as it is, if it is readable and NServiceBus accepts the delay from there.
    """
    if sent is not None:
        try:
            text = decode_value(sent, 0, len(sent), 0)[0]
            when = datetime.strptime(text if isinstance(text, str) else "", _SENT_FORMAT).replace(tzinfo=UTC)
        except ValueError:
            when = None
        if when is not None:
            sent_us = i64((when - _EPOCH) // timedelta(microseconds=1))
            delay_s = int((due_us - sent_us + _SECOND_US - 1) // _SECOND_US)
            if 0 <= delay_s <= _DELAY_S_MAX:
                return sent, delay_s
    now = _EPOCH + timedelta(microseconds=int(now_us))
    return encode_value(now.strftime(_SENT_FORMAT)), int((due_us - now_us + _SECOND_US - 1) // _SECOND_US)
