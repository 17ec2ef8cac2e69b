"""Which messages of streams become tables, and when. The tables are made by a process of its own (sealing_process.py).

A native file that is complete is sealed as it is; of the newest one what has waited for as long as its stream says
(x-leveret-seal-after-ms), for which its tail is written to the file first. One request is under way at a time, of at
most one native file. What is sealed is known from the names of the tables.

Like commit.py this knows neither loop nor clock nor thread; times are the broker's, in µs.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from leveret.broker.streams.stream import Stream
from leveret.net.archive import Archive, Submit
from leveret.store.disk import Disk
from leveret.store.tables import stream_directory, table_files
from leveret.wire.body_schema import SCHEMA

logger = logging.getLogger("leveret")

SEAL_AFTER: Final = "x-leveret-seal-after-ms"
SEAL_AFTER_MS_DEFAULT: Final = 60_000
RETRY_US_MIN: Final = 1_000_000
RETRY_US_MAX: Final = 60_000_000
"""How long a stream that could not be sealed is left alone, twice as long each time; others are not."""


@dataclass(slots=True)
class Progress:
    """Of one stream. sealed: the messages below are in tables, or lost; -1: nobody has looked yet.

    since_us: since when there is something to seal, 0 = there is nothing; target: up to where it will be, once its time
    has come at due_us, 0 = not yet; retry_us: not before then, after so many failures.
    """

    sealed: int = -1
    since_us: int = 0
    target: int = 0
    due_us: int = 0
    retry_us: int = 0
    failures: int = 0
    is_looked_for: bool = False


class Answer(msgspec.Struct):
    """What the process says of a request."""

    id: int
    end: int
    lost: list[str]
    error: str


class Sealing:
    """archives: the streams' files, by queue number; ask: sends a request to the process, one JSON object."""

    def __init__(
        self, archives: dict[int, Archive], tables_dir: str, disk: Disk, submit: Submit, ask: Callable[[bytes], None]
    ) -> None:
        self.progress: dict[int, Progress] = {}
        self._archives = archives
        self._tables_dir = tables_dir
        self._disk = disk
        self._submit = submit
        self._ask = ask
        self._asked = 0  # number of the stream that the process is busy with

    def look(self, now_us: int) -> None:
        """From time to time, and when an answer has come: see what is due, and ask for the oldest of it."""
        for number in [number for number in self.progress if number not in self._archives]:
            del self.progress[number]
        due: list[tuple[int, int, int]] = []
        for number, archive in self._archives.items():
            progress = self.progress.setdefault(number, Progress())
            end = self._due(archive, progress, now_us)
            if end:
                due.append((progress.since_us, number, end))
        if due and not self._asked:
            _, number, end = min(due)
            self._asked = number
            self._ask(self._request(number, end))

    def _due(self, archive: Archive, progress: Progress, now_us: int) -> int:
        """Up to which offset the stream is to be sealed now; 0 = nothing is due."""
        stream, files = archive.stream, archive.files
        if stream.is_deleted or now_us < progress.retry_us:
            return 0
        if progress.sealed < 0:
            self._look_for(archive, progress)
            return 0
        sealed = max(progress.sealed, files.first)
        if stream.committed <= sealed:
            progress.since_us = progress.target = 0
            return 0
        progress.since_us = progress.since_us or now_us
        segment = files.segment_of(sealed)
        if segment is not None and segment is not files.segments[-1]:
            return segment.end
        if now_us - progress.since_us < seal_after_us(stream):
            return 0
        if not progress.target:
            progress.target, progress.due_us = int(stream.committed), now_us
        if files.end < progress.target:
            archive.write()
            return 0
        return segment.end if segment is not None else 0

    def _look_for(self, archive: Archive, progress: Progress) -> None:
        """Find out what is sealed."""
        if progress.is_looked_for:
            return
        progress.is_looked_for = True
        stream = archive.stream
        directory = stream_directory(self._tables_dir, stream.vhost.name, stream.name)

        def work() -> int:
            files = table_files(self._disk, directory)
            return max((file.last + 1 for file in files if file.creation == stream.creation), default=0)

        def done(sealed: Any, error: BaseException | None) -> None:
            progress.is_looked_for = False
            if error is None:
                progress.sealed = sealed
                stream.history.sealed, stream.history.tables = sealed, os.path.abspath(directory)
            else:
                logger.warning("%s: its tables in %s can't be listed: %s", stream.what(), directory, error)

        self._submit(work, done, is_reading=True)

    def _request(self, number: int, end: int) -> bytes:
        archive, progress = self._archives[number], self.progress[number]
        stream = archive.stream
        request = {
            "id": number,
            "directory": archive.files.directory,
            "vhost": stream.vhost.name,
            "stream": stream.name,
            "creation": stream.creation,
            "first": max(progress.sealed, archive.files.first),
            "end": end,
            "schema": stream.arguments.get(SCHEMA, ""),
        }
        if progress.target and end >= progress.target:
            progress.since_us, progress.target = progress.due_us, 0  # what has come since then begins to wait
        return msgspec.json.encode(request)

    def answered(self, line: bytes, now_us: int) -> None:
        """The process has answered, and is free again. ValueError if that is no answer to what it was asked."""
        try:
            answer = msgspec.json.decode(line, type=Answer)
        except msgspec.MsgspecError as error:
            raise ValueError(f"malformed answer: {error}") from None
        if answer.id != self._asked:
            raise ValueError(f"the answer is for stream {answer.id}, not for {self._asked}")
        number, self._asked = self._asked, 0
        archive, progress = self._archives.get(number), self.progress.get(number)
        if archive is None or progress is None:
            return  # deleted meanwhile
        if answer.error:
            self._put_off(archive, progress, answer.error, now_us)
            return
        for each in answer.lost:
            logger.error("%s: not in its table: %s", archive.stream.what(), each)
        progress.sealed, progress.failures = answer.end, 0
        archive.stream.history.sealed = answer.end

    def failed(self, reason: str, now_us: int) -> None:
        """The process has ended instead: it may be this stream's fault."""
        number, self._asked = self._asked, 0
        archive, progress = self._archives.get(number), self.progress.get(number)
        if archive is not None and progress is not None:
            self._put_off(archive, progress, reason, now_us)

    def _put_off(self, archive: Archive, progress: Progress, reason: str, now_us: int) -> None:
        progress.retry_us = now_us + min(RETRY_US_MIN << progress.failures, RETRY_US_MAX)
        progress.failures = min(progress.failures + 1, 6)
        progress.since_us = now_us - seal_after_us(archive.stream)  # its messages have waited long enough
        progress.sealed = -1  # some files may have been made before
        logger.warning("%s could not be sealed and will be retried: %s", archive.stream.what(), reason)


def seal_after_us(stream: Stream) -> int:
    """So long a message waits at most for a table that is made for it, not for a whole file."""
    given = stream.arguments.get(SEAL_AFTER, SEAL_AFTER_MS_DEFAULT)
    return (given if isinstance(given, int) else SEAL_AFTER_MS_DEFAULT) * 1000
