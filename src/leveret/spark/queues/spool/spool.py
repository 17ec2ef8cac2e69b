"""A spool directory: segments in the order of their messages, with one owner and one queue.

:meth:`Spool.append` returns when its messages are synced and may be acknowledged. Files are written aside and renamed,
so a file with a segment's name is complete. Segments that Spark is done with are kept as long as their messages may be
redelivered.
"""

from __future__ import annotations

import contextlib
import json
import os
import uuid
from collections.abc import Iterator
from itertools import pairwise
from typing import Final

import pyarrow as pa

from leveret.client.protocol.delivering import RawDeliveries
from leveret.client.protocol.url import parse_url
from leveret.spark.queues.errors import QueueBusy, SourceError
from leveret.spark.queues.options import QueueOptions, SpoolOptions
from leveret.spark.queues.spool import segment as segments_of
from leveret.spark.queues.spool.files import SpoolFiles
from leveret.spark.queues.spool.segment import SegmentPart, SpoolSegment

KEPT: Final = 2
"""Segments that are kept at least: their messages are redelivered if the last segment's acknowledgement is lost with
the connection, or those of the last moments with the broker."""

_IDENTITY: Final = "spool.json"
_LOCK: Final = "lock"
_ASIDE: Final = ".part"


class Spool:
    """The spool of one query in ``options.directory``, which is created if missing.

    ``kind`` is "stream" or "batch", and never changes. Raises ``QueueBusy`` if another process uses the spool, and
    ``SourceError`` if it belongs to another queue or kind, a file is missing, or the directory is unusable.
    """

    def __init__(self, queue: QueueOptions, options: SpoolOptions, kind: str, files: SpoolFiles | None = None) -> None:
        self._directory = options.directory
        self._compression = options.compression
        self._files = files or SpoolFiles()
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
        """The number of the first message that Spark is not done with."""
        return next((one.first for one in self._segments if not one.is_done), self.end)

    @property
    def end(self) -> int:
        """The number of the next message."""
        return self._segments[-1].end if self._segments else 0

    def append(self, deliveries: RawDeliveries) -> None:
        """Write messages to disk; they may be acknowledged when this returns."""
        segment = SpoolSegment(self.end, self.end + len(deliveries))
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
        """Mark the messages before ``end`` as done, and remove old segments."""
        with self._explained("tidied"):
            for place, one in enumerate(self._segments):
                if one.end <= end and not one.is_done:
                    done = SpoolSegment(one.first, one.end, is_done=True)
                    self._files.rename(self._path(one.name), self._path(done.name))
                    self._segments[place] = done
            # oldest first: a crash leaves no gap
            while len(self._segments) > KEPT and self._segments[0].is_done:
                self._files.unlink(self._path(self._segments[0].name))
                self._segments = self._segments[1:]

    def parts(self, start: int, end: int, parts_min: int = 1) -> list[SegmentPart]:
        """Return messages start ≤ n < end as work for tasks: one part per segment, or more to reach ``parts_min``.

        Raises ``SourceError`` if some of them are not in the spool any more.
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
        """Yield the deliveries that may be redelivered: those of the last :data:`KEPT` segments."""
        for one in self._segments[-KEPT:]:
            yield from segments_of.batches(self._path(one.name))

    def close(self) -> None:
        """Unlock the directory; a second call does nothing."""
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def _path(self, name: str) -> str:
        return os.path.join(self._directory, name)

    def _identified(self, queue: QueueOptions, kind: str) -> str:
        """Return the spool's own id; ``SourceError`` if the directory belongs to another queue or kind."""
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

    def _found(self) -> list[SpoolSegment]:
        segments = []
        for name in self._files.names(self._directory):
            if name.endswith(_ASIDE):
                self._files.unlink(self._path(name))
            elif (one := SpoolSegment.parse(name)) is not None:
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
    """Whether the directory has a query's spool."""
    return os.path.exists(os.path.join(directory, _IDENTITY))


def _locked(path: str, directory: str) -> int:
    """Open a file with a lock that ends with this process, even by a crash; ``QueueBusy`` if it is locked."""
    import fcntl  # missing on some platforms, and only spools need it

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
