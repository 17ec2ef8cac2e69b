"""Data directories with any content: damaged files, batches of meaningless records, pages and chunks of any octets.

Damage is reported and costs only what is damaged; nothing is read that was not written. Files that cannot be read for
another reason raise the errors that the broker and `leveret store` report. No more memory is allocated than the file's
size justifies; the memory limit of the fuzzing run checks that.
"""

from __future__ import annotations

import contextlib
import io
import struct
from collections.abc import Callable
from typing import Final

from leveret.broker.queues.queue import Queue
from leveret.broker.storage.log import (
    DELIVERED,
    DROP,
    HOP,
    LIFE,
    MESSAGES,
    META,
    MOVED,
    PAGE,
    PAGE_HEAD,
    POSITION,
    RETURNED,
    SETTLE,
)
from leveret.broker.storage.page import Page
from leveret.broker.storage.records import RecordError
from leveret.broker.storage.recovery import Recovery
from leveret.broker.streams import chunk
from leveret.cli import store as command
from leveret.store.disk import Disk, MemoryDisk
from leveret.store.format import JournalVersionError, new_header, pack_batch
from leveret.store.inspection import Inspection
from leveret.store.reading import JournalReader, journal_path, read_segment
from leveret.store.recovery import JournalRecovery as Reading
from leveret.store.segment import segment_path
from leveret.store.stream_check import payloads, read_files
from leveret.store.stream_files import Chunk, StreamFiles
from leveret.wire.frames import content_frames
from leveret.wire.properties import Properties, encode_header
from leveret.wire.table import Value, encode_short, encode_table

from ..unit.support import Bench
from .broker import table_of, value_of
from .octets import Octets

DIRECTORY: Final = "/data/journal"
STREAM: Final = "/data/streams/4"
OPS: Final = (
    "queue.declare", "queue.delete", "exchange.declare", "exchange.delete", "bind", "unbind", "next_id", "definitions",
    "define", "undefine", "history", "queue.unplace", "clocks", "cluster_name", "stage.declare", "stage.release",
    "stage.gone", "query", "query.gone", "lease", "lease.end", "stream.marks", "nothing",
)  # fmt: skip
FIELDS: Final = (
    "vhost", "name", "number", "auto_delete", "arguments", "type", "internal", "durable", "source", "destination",
    "is_queue", "key", "id", "kind", "definition", "vhosts", "exchange", "content", "query", "batch", "attempt",
    "offsets",
    "sequences", "next_offset", "unplaced_below", "creation", "value", "index",
)  # fmt: skip
CONTENT: Final = content_frames(1, encode_header(Properties(delivery_mode=2), 1), b"x", 4096)


def one_input(data: bytes) -> None:
    octets = Octets(data)
    octets.choice(PARTS)(octets)


def _random(count: int) -> bytes:
    return (b"\x07\x5a\xc3\x11\x99\x23\x42\xfe" * count)[:count]


# -- files -------------------------------------------------------------------------------------------------------------


def _damaged(octets: Octets, data: bytes) -> bytes:
    """Return the file's data after up to four random damages."""
    for _ in range(octets.octet() % 5):
        at = octets.number(2) % (len(data) + 1)
        kind = octets.octet() % 7
        size = octets.octet() * (1 + octets.octet() % 16)
        if kind == 0:
            data = data[:at]
        elif kind == 1:
            data = data[:at] + octets.chunk() + data[at:]
        elif kind == 2:
            replaced = octets.chunk()
            data = data[:at] + replaced + data[at + len(replaced) :]
        elif kind == 3:
            data = data[:at] + bytes(size) + data[at + size :]
        elif kind == 4:
            data = data[:at] + data[at + size :]
        elif kind == 5:
            data = data[:at] + data[at : at + size] + data[at:]
        else:
            data += bytes(size)
    return data


def _put(disk: Disk, path: str, data: bytes) -> None:
    file = disk.create(path)
    file.write(0, [data])
    file.close()


def journal_files(octets: Octets) -> None:
    """Two files of batches: what is read is what was written, in order, and what is missing is reported."""
    disk = MemoryDisk()
    disk.make_directory(DIRECTORY)
    written: list[bytes] = []
    is_whole = True
    for number in (1, 2):
        header = new_header(number, len(written) + 1, _random)
        parts = [header.pack()]
        for _ in range(octets.octet() % 4):
            payload = octets.chunk() or b"x"
            written.append(payload)
            parts += [pack_batch(header, len(written), [payload])[0], payload]
        sound = b"".join(parts)
        data = _damaged(octets, sound)
        is_whole = is_whole and data == sound
        _put(disk, journal_path(DIRECTORY, number), data)
    found: list[bytes] = []
    is_reported = False
    with contextlib.suppress(JournalVersionError):
        for file in JournalReader(disk, DIRECTORY).read([1, 2]):
            found += [payload for _, _, payload in file.batches()]
            is_reported = is_reported or bool(file.damages or file.torn)
    _is_part(found, written)
    if is_whole:
        assert found == written
        assert not is_reported
    reading = Reading(disk, DIRECTORY, _random)
    with contextlib.suppress(JournalVersionError):
        assert list(reading.read([1, 2])) == found
        again = Reading(disk, DIRECTORY, _random)
        assert list(again.read([1, 2])) == found, "what was repaired is read differently"
        assert not again.report.damages, "the same damage is reported twice"
    with contextlib.suppress(JournalVersionError):
        segment = segment_path(DIRECTORY, 1)
        _put(disk, segment, disk.read(journal_path(DIRECTORY, 1)))
        _is_part([payload for _, _, payload in read_segment(disk, segment, 1).batches()], written)


def _is_part(found: list[bytes], written: list[bytes]) -> None:
    """Check that the batches found are some of the written ones, in their order."""
    left = iter(written)
    for payload in found:
        assert any(each == payload for each in left), "a batch that nobody wrote"


def stream_files(octets: Octets) -> None:
    """The files of a stream: chunks are read as they were written, or not at all."""
    disk = MemoryDisk()
    files = StreamFiles(disk, STREAM, _random)
    written: dict[int, bytes] = {}
    first = 0
    for _ in range(1 + octets.octet() % 4):
        count = 1 + octets.octet()
        written[first] = octets.chunk()
        files.appended(files.append([Chunk(first, count, 1, 2, written[first], octets.chunk()[:100])], 9000))
        first += count
    for path in [files.path(segment.first) for segment in files.segments]:
        data = disk.read(path)
        disk.remove(path)
        _put(disk, path, _damaged(octets, data))
    with contextlib.suppress(JournalVersionError):
        looked = StreamFiles(disk, STREAM, _random)
        looked.find()
        before = {place.first: payload for _, place, payload in payloads(looked)}
        assert before.items() <= written.items(), "a chunk that nobody wrote"
        list(read_files(looked, octets.number(2)))
        recovered = StreamFiles(disk, STREAM, _random)
        recovered.recover(octets.number(2))
        after = {place.first: payload for _, place, payload in payloads(recovered)}
        assert after.items() <= written.items()
        recovered.appended(recovered.append([Chunk(recovered.end, 1, 3, 3, b"next")]))


# -- records -----------------------------------------------------------------------------------------------------------


def raw_records(octets: Octets) -> None:
    """A valid batch of any octets."""
    _replay([octets.rest()])


def written_records(octets: Octets) -> None:
    """Records with any fields, after valid declarations."""
    batches = [_DECLARED]
    while octets.left and len(batches) < 8:
        batches.append(b"".join(_record(octets) for _ in range(1 + octets.octet() % 6)))
    _replay(batches)


def _record(octets: Octets) -> bytes:
    kind = octets.choice(
        (META, MESSAGES, SETTLE, HOP, MOVED, PAGE, DROP, RETURNED, DELIVERED, LIFE, POSITION, 4, 6, 99)
    )
    queue, id, count = octets.octet() % 6 | octets.octet() // 128 << 48, octets.octet() % 32, octets.octet() % 32
    if kind == META:
        rest = encode_table(_meta(octets))
    elif kind in {MESSAGES, HOP}:
        key = encode_short("") + encode_short(octets.choice(("q", "r", "")))
        content = CONTENT if octets.octet() % 4 else octets.chunk()
        size, stride = len(content), octets.choice((len(content), 0, 1, 1000))
        data = content * count
        head = struct.pack(">qIIIH", id, count, stride, size, len(key)) + key
        queues = struct.pack(">Hqq", 1, queue, octets.choice((0, 1, -1, 1 << 62)))
        rest = (struct.pack(">qq", queue, id) if kind == HOP else b"") + head + queues + data
    elif kind in {SETTLE, DELIVERED, RETURNED}:
        rest = struct.pack(">qqI", queue, id, count)
    elif kind in {DROP, LIFE}:
        rest = struct.pack(">qq", queue, id)
    elif kind == MOVED:
        rest = struct.pack(">6q", queue, id, octets.octet(), octets.octet() % 6, octets.octet(), 1) + octets.chunk()
    elif kind == PAGE:
        place = (octets.octet(), octets.octet(), octets.octet())
        rest = PAGE_HEAD.pack(queue, *place, id, id + count, 0, octets.octet(), octets.octet() % 2) + octets.chunk()
    elif kind == POSITION:
        rest = struct.pack(">Bqq", octets.octet() % 5, queue, id) + octets.chunk()
    else:
        rest = b""
    if octets.octet() % 16 == 15:
        rest = rest[: octets.octet()]
    return struct.pack(">BI", kind, len(rest)) + rest


def _meta(octets: Octets) -> dict[str, Value]:
    """Return mostly valid metadata, with a few fields replaced or left out."""
    fields: dict[str, Value] = {
        "op": octets.choice(OPS), "vhost": "/", "name": octets.choice(("q", "r", "s", "x", "new")),
        "number": octets.octet(),
        "auto_delete": False, "internal": False, "type": octets.choice(("topic", "x-delayed-message",
                                                                        "x-recent-history")),
        "arguments": table_of(octets), "source": "x", "destination": "q", "is_queue": True, "key": "q",
    }  # fmt: skip
    for _ in range(octets.octet() % 6):
        name = octets.choice(FIELDS)
        if octets.octet() % 4 == 3:
            fields.pop(name, None)
        else:
            fields[name] = value_of(octets)
    return fields


def _declarations() -> bytes:
    bench = Bench()
    client = bench.connect()
    for name, arguments in (("q", {}), ("r", {"x-max-priority": 5}), ("s", {"x-queue-type": "stream"})):
        client.queue(name, durable=True, arguments=arguments)
    for _ in range(3):
        client.publish("q", b"x", delivery_mode=2)
        client.publish("s", b"x", delivery_mode=2)
    bench.sync()
    return b"".join(bench.batches)


_DECLARED: Final = _declarations()


def _replay(batches: list[bytes]) -> None:
    bench = Bench()
    recovery = Recovery(bench.broker, bench.now_us)
    for batch in batches:
        try:
            recovery.batch(batch)
        except RecordError:
            return
    try:
        count = recovery.finish()
    except RecordError:
        return
    assert count <= 8 * 6 * 32 + 6, "more messages than there were records"


def directory(octets: Octets) -> None:
    """`leveret store check`, `leveret store dump` and a start, on a directory with a damaged file."""
    disk = MemoryDisk()
    disk.make_directory(DIRECTORY)
    path = journal_path(DIRECTORY, 1)
    header = new_header(1, 1, _random)
    data = header.pack()
    for number, payload in enumerate([_DECLARED, b"".join(_record(octets) for _ in range(octets.octet() % 6))], 1):
        data += pack_batch(header, number, [payload])[0] + payload
    _put(disk, path, _damaged(octets, data))
    files = StreamFiles(disk, STREAM, _random)
    files.append([Chunk(0, 1, 1, 1, octets.chunk())])
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        for action in (command.check_all, lambda inspection: command.dump_all(inspection, True)):
            with contextlib.suppress(JournalVersionError):
                assert isinstance(action(Inspection(disk, "/data")), bool)


# -- pages and chunks --------------------------------------------------------------------------------------------------


def page(octets: Octets) -> None:
    """A page of any octets has no more messages than octets."""
    nowhere = Queue(Bench().broker.vhosts["/"], "", True, False, {})
    data = octets.rest()
    try:
        items = Page(nowhere.message_list, [], 0, 0).load(data)
    except ValueError:
        return
    assert len(items) <= len(data)


def chunks(octets: Octets) -> None:
    """A chunk of any octets either raises ValueError, or is encoded to the same octets again."""
    data = octets.rest()
    try:
        groups = chunk.decode(data, 0)
    except ValueError:
        return
    assert sum(len(group.data) for group in groups) <= len(data)
    assert chunk.encode(groups) == data


PARTS: Final[tuple[Callable[[Octets], None], ...]] = (
    journal_files, stream_files, raw_records, written_records, written_records, directory, page, chunks,
)  # fmt: skip
