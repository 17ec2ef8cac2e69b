"""A spool directory: segments in the order of their messages, one owner, one queue.

What is appended is synced when :meth:`Spool.append` returns, so that it may be acknowledged. A file is written aside
and renamed: one that has a segment's name is whole. Segments that Spark is done with are kept for as long as their
messages may be delivered again.
"""

from __future__ import annotations

import contextlib
import json
import os
import uuid
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from leveret.client.url import parse_url
from leveret.spark.queues.errors import QueueBusy, SourceError
from leveret.spark.queues.options import QueueOptions, SpoolOptions
from leveret.spark.queues.spool import segment as segments_of
from leveret.spark.queues.spool.files import Files
from leveret.spark.queues.spool.segment import Segment, SegmentPart

if TYPE_CHECKING:
    from leveret.client import Delivery

KEPT: Final = 2
"""Segments that stay at least. The last one's acknowledgement may be lost with the connection, with the broker those
of the last moments: these messages come again."""

_IDENTITY: Final = "spool.json"
_LOCK: Final = "lock"
_ASIDE: Final = ".part"


class Spool:
    """The spool of one query in ``options.directory``, which is made where it is missing.

    kind: "stream" or "batch"; a spool is of one kind for ever. files: the file operations.
    Raises ``QueueBusy`` where another process has it, and ``SourceError`` where it is of another queue or kind, where
    a file is missing or the directory can't be used.
    """

    def __init__(self, queue: QueueOptions, options: SpoolOptions, kind: str, files: Files | None = None) -> None:
        self._directory = options.directory
        self._compression = options.compression
        self._files = files or Files()
        self._lock = -1
        with self._explained("used"):
            self._files.make_directory(self._directory)
            self._lock = _locked(self._path(_LOCK), self._directory)
            try:
                self.id = self._identified(queue, kind)
                self._segments = self._found()
            except BaseException:
                self.close()
                raise

    @property
    def first(self) -> int:
        """The first message that Spark is not done with."""
        return next((one.first for one in self._segments if not one.is_done), self.end)

    @property
    def end(self) -> int:
        """The number of the message that comes next."""
        return self._segments[-1].end if self._segments else 0

    def append(self, deliveries: Sequence[Delivery]) -> None:
        """Write them down: they are on the disk when this returns, and may be acknowledged."""
        segment = Segment(self.end, self.end + len(deliveries))
        path = self._path(segment.name)
        aside = path + _ASIDE
        with self._explained("written", "; nothing of it was acknowledged"):
            try:
                self._files.write(aside, segments_of.encoded(deliveries, self._compression))
                self._files.sync(aside)
                self._files.rename(aside, path)
                self._files.sync_directory(self._directory)
            except OSError:
                for left in (aside, path):
                    with contextlib.suppress(OSError):
                        self._files.unlink(left)
                raise
        self._segments = [*self._segments, segment]

    def release(self, end: int) -> None:
        """Spark is done with all messages before ``end``."""
        with self._explained("tidied"):
            for place, one in enumerate(self._segments):
                if one.end <= end and not one.is_done:
                    done = Segment(one.first, one.end, is_done=True)
                    self._files.rename(self._path(one.name), self._path(done.name))
                    self._segments[place] = done
            # oldest first: what is left has no gap, wherever this ends
            while len(self._segments) > KEPT and self._segments[0].is_done:
                self._files.unlink(self._path(self._segments[0].name))
                self._segments = self._segments[1:]

    def parts(self, start: int, end: int, parts_min: int = 1) -> list[SegmentPart]:
        """Messages start ≤ n < end as work for tasks, one per segment or (parts_min) more.

        Raises ``SourceError`` where some of them are not here any more.
        """
        if start < end and (not self._segments or start < self._segments[0].first or end > self.end):
            kept = f"{self._segments[0].first} to {self.end}" if self._segments else "none"
            raise SourceError(
                f"the checkpoint asks for messages {start} to {end}, but the spool in {self._directory} has {kept}: "
                "use the checkpointLocation and the option spoolDir that belong together"
            )
        size_max = max(1, -(-(end - start) // parts_min))
        parts = []
        for one in self._segments:
            at, stop = max(one.first, start), min(one.end, end)
            while at < stop:
                to = min(stop, at + size_max)
                parts.append(SegmentPart(self._path(one.name), at - one.first, to - one.first))
                at = to
        return parts

    def last_batches(self) -> Iterator[pa.RecordBatch]:
        """The deliveries that may come again: those of the last :data:`KEPT` segments."""
        for one in self._segments[-KEPT:]:
            yield from segments_of.batches(self._path(one.name))

    def close(self) -> None:
        """Give the directory up; a second call does nothing."""
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def _path(self, name: str) -> str:
        return os.path.join(self._directory, name)

    def _identified(self, queue: QueueOptions, kind: str) -> str:
        """The spool's own id. Refuses a directory that belongs to something else."""
        address = parse_url(queue.url)
        wanted = {
            "version": 1,
            "kind": kind,
            "broker": f"{address.host}:{address.port}",
            "vhost": address.vhost,
            "queue": queue.queue,
        }
        path = self._path(_IDENTITY)
        try:
            found = json.loads(self._files.read(path))
        except FileNotFoundError:
            identity = {"id": uuid.uuid4().hex[:16], **wanted}
            self._files.write(path + _ASIDE, json.dumps(identity).encode())
            self._files.sync(path + _ASIDE)
            self._files.rename(path + _ASIDE, path)
            self._files.sync_directory(self._directory)
            return str(identity["id"])
        except ValueError:
            raise SourceError(f"{path} is damaged: it identifies the owner of the spool (option spoolDir)") from None
        for name, value in wanted.items():
            if found.get(name) != value:
                raise SourceError(
                    f"the spool in {self._directory} has {name} {found.get(name)!r} but must have {value!r}: use a "
                    "separate directory for each queue and query (option spoolDir)"
                )
        return str(found["id"])

    def _found(self) -> list[Segment]:
        segments = []
        for name in self._files.names(self._directory):
            if name.endswith(_ASIDE):
                self._files.unlink(self._path(name))
            elif (one := Segment.parse(name)) is not None:
                segments.append(one)
        segments.sort(key=lambda one: one.first)
        for before, after in pairwise(segments):
            if before.end != after.first:
                raise SourceError(
                    f"the spool in {self._directory} has lost messages {before.end} to {after.first}: a file was "
                    "removed (option spoolDir)"
                )
        return segments

    @contextlib.contextmanager
    def _explained(self, what: str, more: str = "") -> Iterator[None]:
        try:
            yield
        except OSError as error:
            text = error.strerror or str(error)
            raise SourceError(
                f"the spool in {self._directory} can't be {what}: {text}{more} (option spoolDir)"
            ) from error


def is_spool(directory: str) -> bool:
    """Whether a query has a spool there."""
    return os.path.exists(os.path.join(directory, _IDENTITY))


def _locked(path: str, directory: str) -> int:
    """An open file whose lock goes away with this process, however that ends."""
    import fcntl  # not everywhere, and needed by nothing but spools

    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        text = f"the spool in {directory} is used by another query: give each query its own (option spoolDir)"
        raise QueueBusy(text) from None
    except OSError:
        os.close(descriptor)
        raise
    return descriptor
