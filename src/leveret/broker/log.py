"""What the journal is told: durable events as records, collected into batches.

A record is kind (u8), length of the rest (u32), rest. The records of one batch are written, synced and replayed
together or not at all, so a dead-letter hop (the new message, then the settlement of the old one) is atomic.

| kind | rest |
| MESSAGES | id i64, count u32, stride u32, size u32, length of key u16, key (exchange and routing key as short strings), number of queues u16, per queue: number i64, expires_us i64; then `count` contents (header frame and body frames) of `size` octets, each `stride` octets behind the one before, with ids that follow without a gap |
| SETTLE   | queue number i64, id i64 |
| META     | a field table with "op" and the fields of a declaration, a binding or a deletion |
| CLEAN    | nothing: an orderly stop; what follows none of it may have been delivered before |
| DELIVERED| queue number i64, id i64: delivered before the orderly stop |
| START    | nothing: a broker began to serve; from here on anything may have been delivered |
"""  # noqa: E501

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING, Final

from librt.strings import BytesWriter, write_i16_be, write_i32_be, write_i64_be
from mypy_extensions import i16, i32, i64

from leveret.broker.queue import Queue
from leveret.broker.run import Stretch
from leveret.wire.table import Value, encode_table

if TYPE_CHECKING:
    from leveret.broker.channel import BrokerChannel
    from leveret.session.connection import Connection

MESSAGES: Final = 1
SETTLE: Final = 2
META: Final = 3
CLEAN: Final = 4
DELIVERED: Final = 5
START: Final = 6


class Log:
    """The batch under construction, who waits for it, and how many live messages each journal file holds."""

    def __init__(self) -> None:
        self._out = BytesWriter()
        self.batch = 1  # number of the batch under construction
        self.synced = 0  # number of the last batch that is on disk
        self.next_id: i64 = 1
        self.waiting: list[tuple[Connection, BrokerChannel]] = []
        self._in_flight: list[tuple[Connection, BrokerChannel]] = []
        self.is_replaying = False
        # journal files, oldest first: number, first message id, live entries
        self._files: list[int] = [0]
        self._first_ids: list[int] = [0]
        self._live: list[int] = [0]
        self._current_first: i64 = 0
        self._current_live: i64 = 0

    # -- records -----------------------------------------------------------------------------------------------------

    def messages(self, stretch: Stretch, queues: list[Queue], expiries: list[i64]) -> i64:
        """Messages arrived in durable queues. Returns the id of the first."""
        out = self._out
        id = self.next_id
        self.next_id = id + stretch.count
        key = stretch.key
        count: i64 = len(queues)
        out.append(MESSAGES)
        write_i32_be(out, i32(24 + i64(len(key)) + 16 * count + len(stretch.data)))
        write_i64_be(out, id)
        write_i32_be(out, i32(stretch.count))
        write_i32_be(out, i32(stretch.stride))
        write_i32_be(out, i32(stretch.size))
        write_i16_be(out, i16(i64(len(key))))
        out.write(key)
        write_i16_be(out, i16(count))
        index: i64 = 0
        while index < count:
            write_i64_be(out, queues[index].number)
            write_i64_be(out, expiries[index])
            index += 1
        out.write(stretch.data)
        self._current_live += count * stretch.count
        return id

    def settle(self, number: i64, id: i64) -> None:
        """A message left a durable queue for good."""
        self._pair(SETTLE, number, id)
        if id >= self._current_first:
            self._current_live -= 1
        else:
            self._live[bisect_right(self._first_ids, int(id)) - 1] -= 1

    def delivered(self, number: i64, id: i64) -> None:
        """At an orderly stop: this one must come back marked as redelivered."""
        self._pair(DELIVERED, number, id)

    def clean(self) -> None:
        """An orderly stop."""
        self._out.append(CLEAN)
        write_i32_be(self._out, 0)

    def start(self) -> None:
        """Ends what `clean` says; on disk before the first delivery."""
        self._out.append(START)
        write_i32_be(self._out, 0)

    def _pair(self, kind: int, number: i64, id: i64) -> None:
        out = self._out
        out.append(kind)
        write_i32_be(out, 16)
        write_i64_be(out, number)
        write_i64_be(out, id)

    def meta(self, record: dict[str, Value]) -> None:
        """A declaration, binding or deletion of something durable."""
        if not self.is_replaying:
            self._out.write(meta_record(record))

    # -- batches -----------------------------------------------------------------------------------------------------

    def size(self) -> i64:
        """Octets in the batch under construction."""
        return len(self._out)

    def wait(self, connection: Connection, channel: BrokerChannel) -> None:
        """This channel published into the batch and wants to hear when it is on disk."""
        channel.is_waiting = True
        self.waiting.append((connection, channel))

    def close_batch(self) -> bytes:
        """The batch's records; the next batch begins. The caller reports with `on_disk` when they are synced."""
        data = self._out.getvalue()
        self._out.truncate(0)
        self._in_flight = self.waiting
        self.waiting = []
        for _, channel in self._in_flight:
            channel.is_waiting = False
            confirms = channel.confirms
            if confirms is not None:
                confirms.close_batch()
        self.batch += 1
        return data

    def on_disk(self, batch: int) -> None:
        """This batch is synced: acks go out."""
        self.synced = batch
        for connection, channel in self._in_flight:
            confirms = channel.confirms
            if confirms is not None and not channel.is_closed:
                confirms.synced(connection.out, channel.number)
                connection.mark()
        self._in_flight = []

    # -- files -------------------------------------------------------------------------------------------------------

    def start_file(self, number: int) -> None:
        """What is recorded from here on goes to a new journal file."""
        self._live[-1] = int(self._current_live)
        self._files.append(number)
        self._first_ids.append(int(self.next_id))
        self._live.append(0)
        self._current_first = self.next_id
        self._current_live = 0

    def recovered(self, number: int, live: int) -> None:
        """All that was replayed counts as one file, which is kept while anything of it lives."""
        self._files = [number]
        self._first_ids = [0]
        self._live = [live]
        self._current_first = 0
        self._current_live = live

    def live(self) -> int:
        """How many entries of durable queues live in all files."""
        return sum(self._live[:-1]) + int(self._current_live)

    def disposable(self) -> int:
        """Number of the first journal file to keep, where older ones hold nothing alive; 0 if there are none."""
        oldest = 0
        while len(self._files) > 1 and self._live[0] == 0:
            # the next file's own snapshot makes the metadata of this one superfluous
            del self._files[0], self._first_ids[0], self._live[0]
            oldest = self._files[0]
        return oldest


def meta_record(record: dict[str, Value]) -> bytes:
    """One META record."""
    table = encode_table(record)
    return bytes([META]) + len(table).to_bytes(4, "big") + table
