"""Decides which messages of streams become tables, and when. A separate process makes them (sealing_process.py).

A complete native file is sealed as it is. Of the newest file, messages are sealed that have waited for as long as the
stream's argument x-leveret-seal-after-ms says; for that the tail is written to the file first. One request is under way
at a time, for at most one native file. The names of the tables tell what is sealed.

Like commit.py, this module uses no loop, clock or thread of its own; times are the broker's, in µs.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from leveret.broker.streams.stream import Stream
from leveret.net.disk.archive import Archive, Submit
from leveret.store.disk import Disk
from leveret.store.tables import stream_directory, table_files
from leveret.wire.body_schema import SCHEMA

logger = logging.getLogger("leveret")

SEAL_AFTER: Final = "x-leveret-seal-after-ms"
SEAL_AFTER_MS_DEFAULT: Final = 60_000
RETRY_US_MIN: Final = 1_000_000
RETRY_US_MAX: Final = 60_000_000
"""How long a stream is left alone after it could not be sealed, doubled each time; other streams go on."""


@dataclass(slots=True)
class SealProgress:
    """How far one stream is sealed.

    Attributes:
        sealed: Messages below this offset are in tables, or lost; -1 if that has not been looked up yet.
        since_us: Since when there has been something to seal, 0 if there is nothing.
        target: The offset up to which to seal, set once the oldest message has waited long enough, at due_us; else 0.
        retry_us: No attempt is made before this time, after `failures` failures.
        is_looked_for: `sealed` is being looked up.
    """

    sealed: int = -1
    since_us: int = 0
    target: int = 0
    due_us: int = 0
    retry_us: int = 0
    failures: int = 0
    is_looked_for: bool = False


class Answer(msgspec.Struct):
    """The sealing process's answer to a request."""

    id: int
    end: int
    lost: list[str]
    error: str


class Sealing:
    """Decides what to seal, and sends requests to the sealing process."""

    def __init__(
        self, archives: dict[int, Archive], tables_dir: str, disk: Disk, submit: Submit, ask: Callable[[bytes], None]
    ) -> None:
        self.progress: dict[int, SealProgress] = {}
        self._archives = archives  # by queue number
        self._tables_dir = tables_dir
        self._disk = disk
        self._submit = submit
        self._ask = ask  # sends a request, one JSON object, to the process
        self._asked = 0  # number of the stream that the process works on, 0 = none

    def look(self, now_us: int) -> None:
        """Find what is due, and request the oldest of it. Called regularly, and after each answer."""
        for number in [number for number in self.progress if number not in self._archives]:
            del self.progress[number]
        due: list[tuple[int, int, int]] = []
        for number, archive in self._archives.items():
            progress = self.progress.setdefault(number, SealProgress())
            end = self._due(archive, progress, now_us)
            if end:
                due.append((progress.since_us, number, end))
        if due and not self._asked:
            _, number, end = min(due)
            self._asked = number
            self._ask(self._request(number, end))

    def _due(self, archive: Archive, progress: SealProgress, now_us: int) -> int:
        """The offset up to which the stream is to be sealed now, 0 if nothing is due."""
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

    def _look_for(self, archive: Archive, progress: SealProgress) -> None:
        """Look up, on a thread, how far the stream is sealed."""
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
            progress.since_us, progress.target = progress.due_us, 0  # messages since then begin to wait
        return msgspec.json.encode(request)

    def answered(self, line: bytes, now_us: int) -> None:
        """Handle the process's answer; it is free again. ValueError if this is no answer to the last request."""
        try:
            answer = msgspec.json.decode(line, type=Answer)
        except msgspec.MsgspecError as error:
            raise ValueError(f"malformed answer: {error}") from None
        if answer.id != self._asked:
            raise ValueError(f"the answer is for stream {answer.id}, not for {self._asked}")
        number, self._asked = self._asked, 0
        archive, progress = self._archives.get(number), self.progress.get(number)
        if archive is None or progress is None:
            return  # the stream was deleted meanwhile
        if answer.error:
            self._put_off(archive, progress, answer.error, now_us)
            return
        for each in answer.lost:
            logger.error("%s: not in its table: %s", archive.stream.what(), each)
        progress.sealed, progress.failures = answer.end, 0
        archive.stream.history.sealed = answer.end

    def failed(self, reason: str, now_us: int) -> None:
        """Handle that the process has ended without an answer, which may be due to this stream."""
        number, self._asked = self._asked, 0
        archive, progress = self._archives.get(number), self.progress.get(number)
        if archive is not None and progress is not None:
            self._put_off(archive, progress, reason, now_us)

    def _put_off(self, archive: Archive, progress: SealProgress, reason: str, now_us: int) -> None:
        progress.retry_us = now_us + min(RETRY_US_MIN << progress.failures, RETRY_US_MAX)
        progress.failures = min(progress.failures + 1, 6)
        progress.since_us = now_us - seal_after_us(archive.stream)  # its messages have waited long enough already
        progress.sealed = -1  # look again, since some files may have been made before
        logger.warning("%s could not be sealed and will be retried: %s", archive.stream.what(), reason)


def seal_after_us(stream: Stream) -> int:
    """How long messages of the newest file wait, at most, until a table is made for them."""
    given = stream.arguments.get(SEAL_AFTER, SEAL_AFTER_MS_DEFAULT)
    return (given if isinstance(given, int) else SEAL_AFTER_MS_DEFAULT) * 1000
