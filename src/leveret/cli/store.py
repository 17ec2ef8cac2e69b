"""leveret store check | dump: reads the data directory of a broker that is not running, without changing it.

Exit codes: 0 sound (an unfinished batch at the end is a crash's normal trace: nothing in it was confirmed); 1 damaged;
2 not a data directory, or wrong options; 3 the directory is in use; 6 a newer leveret wrote it.
"""

from __future__ import annotations

import json
import sys
from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping
from typing import Final

import click

from leveret.broker.broker import Broker, Settings
from leveret.broker.dead_letters.undeliverable import reason_of
from leveret.broker.messages.message_batch import BatchBuffer, MessageBatch
from leveret.broker.publishers.reference import ids_of
from leveret.broker.queues.message_list import INDEX_SHIFT, QUEUE_MASK
from leveret.broker.queues.queue import Queue
from leveret.broker.storage.log import (
    CLEAN,
    DELIVERED,
    DROP,
    FORGOTTEN,
    LIFE,
    META,
    PAGE,
    POSITION,
    PUBLISHED,
    REACHED,
    REFUSED,
    RETURNED,
    SETTLE,
    START,
    TAKEN,
)
from leveret.broker.storage.page import Page
from leveret.broker.storage.records import (
    Arrived,
    Began,
    Declared,
    JournalRecord,
    Moved,
    Paged,
    Passed,
    PublishedIds,
    RecordError,
    Stood,
    records,
)
from leveret.broker.streams.chunk import decode
from leveret.cli.options import CommandGroup
from leveret.store.disk import RealDisk
from leveret.store.format import BATCH_HEADER_SIZE, JournalVersionError
from leveret.store.inspection import Inspection, NoDataDirectory
from leveret.store.lock import DataDirectoryInUse, reading
from leveret.store.reading import FileReading
from leveret.store.stream_check import StreamFileReading, payloads, read_files
from leveret.wire.errors import ProtocolError
from leveret.wire.frames import FRAME_BODY, FrameReader

EXIT_DAMAGED: Final = 1
EXIT_NO_DIRECTORY: Final = 2
EXIT_IN_USE: Final = 3
EXIT_VERSION: Final = 6

KINDS: Final = {
    SETTLE: "settled", DELIVERED: "delivered", PAGE: "page", DROP: "page dropped", CLEAN: "clean stop", START: "start",
    RETURNED: "returned", LIFE: "life", POSITION: "position", PUBLISHED: "published",
}  # fmt: skip
# raised when bytes with a valid checksum are not what a broker writes
UNREADABLE: Final = (RecordError, ProtocolError, LookupError, ValueError, TypeError)
POSITIONS: Final = {REACHED: "reached", REFUSED: "refused", TAKEN: "taken", FORGOTTEN: "forgotten"}


@click.group(cls=CommandGroup)
def command() -> None:
    """Inspect the data directory of a broker that is not running; nothing is changed.

    Exit codes: 0 sound, 1 damaged, 2 not a data directory, 3 in use, 6 written by a newer leveret.
    """


@command.command()
@click.argument("directory")
def check(directory: str) -> None:
    """Read all files and report for each whether it is sound or damaged."""
    _run(directory, check_all)


@command.command()
@click.argument("directory")
@click.option("--bodies", is_flag=True, help="Include the messages' bodies, in base64.")
def dump(directory: str, bodies: bool) -> None:
    """Write every record as a line of JSON, oldest first; damage is reported on standard error."""
    _run(directory, lambda inspection: dump_all(inspection, bodies))


def _run(directory: str, action: Callable[[Inspection], bool]) -> None:
    """Run the action while no broker can start, and exit with the code of its result."""
    code = EXIT_DAMAGED
    try:
        with reading(directory):
            is_sound = action(Inspection(RealDisk(), directory))
        sys.exit(0 if is_sound else EXIT_DAMAGED)
    except NoDataDirectory as error:
        code, text = EXIT_NO_DIRECTORY, str(error)
    except DataDirectoryInUse as error:
        owner = f"process {error.pid}" if error.pid is not None else "another process"
        code, text = EXIT_IN_USE, f"{directory} is in use by {owner}; stop the broker first"
    except JournalVersionError as error:
        code, text = EXIT_VERSION, str(error)
    except BrokenPipeError:
        raise  # the reader of our output has gone; click handles that
    except OSError as error:
        code, text = EXIT_NO_DIRECTORY, f"cannot read {error.filename or directory}: {error.strerror or error}"
    click.echo(text, err=True)
    sys.exit(code)


# -- check -----------------------------------------------------------------------------------------------------------


def check_all(inspection: Inspection) -> bool:
    total = damaged = 0
    streams = JournalStreams()
    for file in inspection.journal():
        total += 1
        damaged += not _report(file, "batch", _unreadable(file, streams))
    for file in inspection.segments():
        total += 1
        damaged += not _report(file, "page", [])
    for number, files in inspection.streams():
        begin = streams.begins.pop(number, None)
        if begin is None:
            click.echo(f"{files.directory}: belongs to a deleted stream; the next start removes it")
            continue
        for stream_file in read_files(files, begin):
            total += 1
            damaged += not _report_stream(stream_file)
    for number, begin in streams.begins.items():
        if begin:
            damaged += 1
            click.echo(f"stream {number}: no files; messages before {begin} are missing")
    for path, what in inspection.others():
        click.echo(f"{path}: {what}")
    click.echo(f"{total} file{'s' * (total > 1)}: {f'{damaged} damaged' if damaged else 'all sound'}")
    return not damaged


def _report(file: FileReading, noun: str, findings: list[str]) -> bool:
    findings = [*([file.refusal] if file.refusal else []), *(damage.what for damage in file.damages), *findings]
    found = file.found
    plural = noun + ("" if found.batches == 1 else "es" if noun == "batch" else "s")
    click.echo(f"{file.path}: {found.batches} {plural}, {found.end} bytes: {'DAMAGED' if findings else 'sound'}")
    if file.torn:
        click.echo(
            f"  an unfinished {noun} of {file.torn} bytes at byte {found.end}: nothing in it was confirmed; the next "
            "start truncates it"
        )
    for finding in findings:
        click.echo(f"  {finding}")
    return not findings


def _report_stream(file: StreamFileReading) -> bool:
    held = f"messages {file.first} to {file.end - 1}" if file.end > file.first else "no messages"
    chunks = f"{file.chunks} chunk{'s' * (file.chunks != 1)}"
    state = "DAMAGED" if file.damages else "sound"
    click.echo(f"{file.path}: {held} in {chunks}, {file.size} bytes: {state}")
    if file.torn:
        click.echo(f"  an unfinished chunk of {file.torn} bytes: the journal has its messages; the next start "
                   "truncates it")
    for damage in file.damages:
        click.echo(f"  {damage}")
    return not file.damages


class JournalStreams:
    """The streams that exist according to the journal."""

    def __init__(self) -> None:
        # by number of the stream: the first offset whose message is in the journal; older messages are only in the
        # stream's files
        self.begins: dict[int, int] = {}
        self._numbers: dict[tuple[object, object], int] = {}

    def heard(self, fields: Mapping[str, object]) -> None:
        """Handle a declaration, or the deletion that undoes it; to be called in order of the journal."""
        names = fields.get("vhost"), fields.get("name")
        if "next_offset" in fields:
            number = self._numbers[names] = int(str(fields["number"]))
            self.begins.setdefault(number, int(str(fields["next_offset"])))
        elif fields.get("op") == "queue.delete":
            self.begins.pop(self._numbers.pop(names, 0), None)


def _unreadable(file: FileReading, streams: JournalStreams) -> list[str]:
    """Return a line for each sound batch whose records can't be read, and pass the file's declarations to `streams`."""
    findings = []
    for number, offset, payload in file.batches():
        try:
            for record in records(payload):
                if isinstance(record, Declared):
                    streams.heard(record.fields)
        except UNREADABLE as error:
            findings.append(f"{file.path} at byte {offset}: batch {number}: {error}")
    return findings


# -- dump ------------------------------------------------------------------------------------------------------------


def dump_all(inspection: Inspection, bodies: bool) -> bool:
    is_sound = True
    names: dict[int, str] = {}
    streams = JournalStreams()
    for file in inspection.journal():
        is_sound &= _complain(file)
        for number, offset, payload in file.batches():
            try:
                for record in records(payload):
                    _print({"file": file.number, "batch": number} | fields_of(record, names, bodies))
                    if isinstance(record, Declared):
                        streams.heard(record.fields)
            except UNREADABLE as error:
                click.echo(f"{file.path} at byte {offset}: batch {number}: {error}", err=True)
                is_sound = False
    for file in inspection.segments():
        is_sound &= _complain(file)
        for number, offset, payload in file.batches():
            place = {"segment": file.number, "page": number, "offset": offset + BATCH_HEADER_SIZE}
            try:
                for id, buffer in _page(payload):
                    _print(place | {"kind": "messages", "id": id} | _messages(buffer, bodies))
            except UNREADABLE as error:
                click.echo(f"{file.path} at byte {offset}: page {number}: {error}", err=True)
                is_sound = False
    for number, files in inspection.streams():
        for segment, chunk, payload in payloads(files):
            of = {"stream": names.get(number), "number": number, "file": segment.first, "chunk": chunk.first}
            try:
                for group in decode(payload, chunk.first):
                    buffer = BatchBuffer(group.data, group.size, group.size, group.count, group.key)
                    what = {"offset": int(group.offset), "time_us": int(group.time_us)} | _messages(buffer, bodies)
                    _print(of | what)
            except UNREADABLE as error:
                click.echo(f"{files.path(segment.first)}, message {chunk.first}: {error}", err=True)
                is_sound = False
        for stream_file in read_files(files, streams.begins[number]) if number in streams.begins else ():
            for damage in stream_file.damages:
                click.echo(f"{stream_file.path}: {damage}", err=True)
                is_sound = False
    return is_sound


def _complain(file: FileReading) -> bool:
    for damage in file.damages:
        click.echo(damage.what, err=True)
    return not file.damages


def fields_of(record: JournalRecord, names: dict[int, str], bodies: bool) -> dict[str, object]:
    """Return a record as JSON fields. `names` maps queue numbers to names, and is updated by declarations."""
    if isinstance(record, Declared):
        fields: dict[str, object] = {**record.fields}
        if fields.get("op") in ("queue.declare", "exchange.declare") and "number" in fields:
            names[int(str(fields["number"]))] = str(fields["name"])
        elif fields.get("op") == "stage.declare":
            names[int(str(fields["number"]))] = f"stage {fields['query']!s}/{fields['batch']!s}/{fields['attempt']!s}"
        elif isinstance(refused := fields.get("refused"), bytes):  # of a publisher reference
            names[int(str(fields["number"]))] = str(fields["publisher"])
            fields["refused"] = ids_of(int(str(fields["last_id"])), int.from_bytes(refused, "big"))
        return {"kind": "meta" if record.kind == META else "publisher", **fields}
    if isinstance(record, Arrived):
        queues = [_queue(number, names) | {"expires_us": expires} for number, expires in record.queues]
        left = {} if record.left is None else {"left": {"id": record.left[1], **_queue(record.left[0], names)}}
        kind = "messages" if record.left is None else "hop"
        return {"kind": kind, "id": record.first_id, "queues": queues, **left, **_messages(record.buffer, bodies)}
    if isinstance(record, Moved):
        left = {"left": {"id": record.left[1], **_queue(record.left[0], names)}}
        queues = [_queue(record.queue, names) | {"expires_us": record.expires_us}]
        return {"kind": "hop", "id": record.id, "queues": queues, **left}
    kind = KINDS[record.kind]
    if isinstance(record, Paged):
        place = {"segment": record.segment, "offset": record.offset, "size": record.size}
        ids = {"first_id": record.first_id, "last_id": record.last_id, "settled": record.settled}
        return {"kind": kind, **_queue(record.queue, names), **place, **ids, "live": record.live}
    if isinstance(record, Passed):
        return {"kind": kind, "id": record.id, "count": record.count, **_queue(record.queue, names)}
    if isinstance(record, Began):
        return {"kind": kind, "id": record.first_id, "life": _life(record.name)}
    if isinstance(record, PublishedIds):
        whose = {"publisher": names.get(record.number), "number": record.number}
        return {"kind": kind, **whose, "id": record.id, "refused": ids_of(record.id, record.refused)}
    if isinstance(record, Stood):
        what = POSITIONS[record.what]
        return {"kind": kind, "what": what, "link": record.key, "life": _life(record.epoch), "id": record.id}
    return {"kind": kind}


def _life(name: int) -> str:
    """Return a life's id as hexadecimal text."""
    return name.to_bytes(8, "big", signed=True).hex()


def _queue(number: int, names: dict[int, str]) -> dict[str, object]:
    index, number = number >> int(INDEX_SHIFT), number & int(QUEUE_MASK)
    parked = {"parked": reason} if (reason := reason_of(index)) else {}
    return {"queue": names.get(number), "number": number, **({"shelf": index} if index else {}), **parked}


def _page(data: bytes) -> Iterator[tuple[int, BatchBuffer]]:
    """Yield the messages of a page, equal ones together: the first one's id (0: not in the journal) and their data."""
    nowhere = Queue(Broker(Settings(), bytes).vhosts["/"], "", True, False, {})
    for item in Page(nowhere.message_list, [], 0, 0).load(data):
        if isinstance(item, MessageBatch):
            yield int(item.id), item.buffer
        else:
            size = len(item.content)
            yield int(item.id), BatchBuffer(item.content, size, size, 1, item.key)


def _messages(buffer: BatchBuffer, bodies: bool) -> dict[str, object]:
    """Return exchange, routing key and sizes of equal messages, and their bodies if requested."""
    exchange_end = 1 + buffer.key[0]
    key_end = exchange_end + 1 + buffer.key[exchange_end]  # data after it is internal
    starts = range(0, int(buffer.count * buffer.stride), int(buffer.stride))
    contents = [b"".join(_body(buffer.data[at : at + buffer.size])) for at in starts]
    found: dict[str, object] = {
        "exchange": buffer.key[1:exchange_end].decode(errors="backslashreplace"),
        "key": buffer.key[exchange_end + 1 : key_end].decode(errors="backslashreplace"),
        "sizes": [len(body) for body in contents],
    }
    return found | ({"bodies": [b64encode(body).decode() for body in contents]} if bodies else {})


def _body(content: bytes) -> Iterator[bytes]:
    reader = FrameReader(0)
    reader.feed(content)
    while (frame := reader.next()) is not None:
        if frame.kind == FRAME_BODY:
            yield frame.payload


def _print(fields: dict[str, object]) -> None:
    print(json.dumps(fields, default=_plain))  # click.echo would flush every line


def _plain(value: object) -> str:
    """Convert values without a JSON type: bytes to base64, decimals and times to text."""
    return b64encode(value).decode() if isinstance(value, bytes) else str(value)
