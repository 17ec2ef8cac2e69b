"""The files of one stream, and the history that the broker reads from them.

Like commit.py, this module uses no loop, clock or thread of its own. Blocking disk work goes through `submit`.
"""

from __future__ import annotations

import errno
import logging
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, Protocol

from leveret.broker.streams.chunk import encode_pieces
from leveret.broker.streams.filter import digest_of
from leveret.broker.streams.history import Fetched, History
from leveret.broker.streams.stream import Stream
from leveret.store.stream_files import (
    APPEND_OCTETS_MAX,
    LARGE_OCTETS,
    Appended,
    Chunk,
    ChunkPlace,
    Segment,
    StreamDamaged,
    StreamFiles,
)

logger = logging.getLogger("leveret")

# for chunks that readers share in memory, over all streams
CACHE_OCTETS_MAX = 8 << 20
# a read that fails with one of these errors may succeed later
_PASSING = {errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN, errno.EINTR}
# how many chunks are skipped by their digests at a time
PASSED_MAX = 64


class Submit(Protocol):
    """Run `work`, which blocks on the disk, and call `done` on the loop with its result or its error.

    Jobs without is_reading run one after the other, in the order of submission.
    """

    def __call__(
        self, work: Callable[[], Any], done: Callable[[Any, BaseException | None], None], is_reading: bool = False
    ) -> None: ...


class Cache:
    """The most recently read chunks' payloads, by stream number and first offset; b"" stands for a lost chunk."""

    def __init__(self) -> None:
        self._kept: OrderedDict[tuple[int, int], bytes] = OrderedDict()
        self._octets = 0

    def get(self, number: int, first: int) -> bytes | None:
        """The payload, None if it is not cached."""
        payload = self._kept.get((number, first))
        if payload is not None:
            self._kept.move_to_end((number, first))
        return payload

    def put(self, number: int, first: int, payload: bytes) -> None:
        """Cache a payload; the least recently used ones are dropped."""
        self._octets += len(payload) - len(self._kept.pop((number, first), b""))
        self._kept[(number, first)] = payload
        while self._octets > CACHE_OCTETS_MAX and len(self._kept) > 1:
            self._octets -= len(self._kept.popitem(last=False)[1])


class Archive:
    """Writes a stream's tail to its files, and reads chunks from them."""

    def __init__(
        self, stream: Stream, files: StreamFiles, cache: Cache, submit: Submit,
        changed: Callable[[Archive, bool, BaseException | None], None], stirred: Callable[[Stream], None],
    ) -> None:  # fmt: skip
        self.stream = stream
        self.files = files
        self.is_writing = False  # chunks are being written
        self.errors = 0  # how many writes failed
        self.is_stalled = False  # a read failed for a reason that may pass
        self.history = History()
        self.history.fetch = self._fetch
        self.history.pass_over = self._pass_over
        self.history.since = self._since
        self._cache = cache
        self._submit = submit
        # called after a write with (archive, whether a new file was begun, the error if it failed)
        self._changed = changed
        self._stirred = stirred  # called when readers of the stream can go on
        self._coming: set[tuple[str, int]] = set()
        self.update()

    def update(self) -> None:
        """Bring the history up to date with the files."""
        history, files = self.history, self.files
        history.first, history.end, history.octets = files.first, files.end, files.octets

    # -- writing -------------------------------------------------------------------------------------------------------

    def write(self) -> bool:
        """Write the committed part of the tail to files. False if it is empty or a write is under way."""
        groups = [] if self.is_writing else self.stream.chunks(APPEND_OCTETS_MAX)
        if not groups:
            return False
        self.is_writing = True
        segment_octets = int(self.stream.kept.segment_octets)

        def work() -> Appended:
            chunks = []
            for part in groups:
                first, last = part[0], part[-1]
                count = int(last.end - first.offset)
                times = int(first.time_us), int(last.time_us)
                chunks.append(Chunk(int(first.offset), count, *times, encode_pieces(part), digest_of(part)))
            return self.files.append(chunks, segment_octets)

        self._submit(work, self._written)
        return True

    def _written(self, result: Appended | None, error: BaseException | None) -> None:
        self.is_writing = False
        if self.stream.is_deleted:
            return
        is_new = False
        self.errors += error is not None
        if result is not None:
            count = len(self.files.segments)
            self.files.appended(result)
            self.update()
            self.stream.stored()
            is_new = len(self.files.segments) > count
        self._changed(self, is_new, error)

    # -- reading -------------------------------------------------------------------------------------------------------

    def _fetch(self, offset: int) -> Fetched | None:
        segment = self.files.segment_of(offset)
        if segment is None:
            return Fetched(offset, self.files.end, b"")
        if segment.places is None:
            self._later(("index", segment.first), lambda: self._look_into(segment), lambda _: None)
            return None
        place = self.files.place_of(segment, offset)
        if place is None:
            following = (place.first for place in segment.places if place.first > offset)
            return Fetched(offset, next(following, max(segment.end, offset + 1)), b"")
        payload = self._cache.get(int(self.stream.number), place.first)
        if payload is None and place.octets <= LARGE_OCTETS:
            payload = self._read(segment, place, is_cached=True)
            self._keep(place, payload)
        if payload is None:
            key = ("chunk", place.first)
            self._later(key, lambda: self._read(segment, place, is_cached=False), lambda got: self._keep(place, got))
            return None
        return Fetched(place.first, place.end, payload)

    def _pass_over(self, offset: int, may_admit: Callable[[bytes], bool]) -> int:
        segment = self.files.segment_of(offset)
        if segment is None or segment.places is None:
            return offset
        index = max(0, bisect_right(segment.places, offset, key=lambda place: place.first) - 1)
        for place in segment.places[index : index + PASSED_MAX]:
            if place.first > offset or place.end <= offset or may_admit(place.digest):
                break  # or the chunk that should be here is lost
            offset = place.end
        return offset

    def _since(self, time_us: int) -> int:
        try:
            return self.files.first_since(time_us)
        except OSError as error:
            logger.warning(
                "%s: reading from its beginning, because its index can't be read: %s", self.stream.what(), error
            )
            return self.files.first

    def _keep(self, place: ChunkPlace, payload: bytes | None) -> None:
        if payload is not None:
            self._cache.put(int(self.stream.number), place.first, payload)

    def _look_into(self, segment: Segment) -> bool:
        """Read a segment's index. False if that is not possible now, but may be later."""
        try:
            self.files.look_into(segment)
        except OSError as error:
            if not _is_lost(error):
                return False
            segment.places = []
        if not segment.places or segment.places[-1].end < segment.end:
            first = segment.places[-1].end if segment.places else segment.first
            self._tell_lost(segment, first, segment.end, "the index of its file ends there")
        return True

    def _read(self, segment: Segment, place: ChunkPlace, is_cached: bool) -> bytes | None:
        try:
            return self.files.read(segment, place, is_cached)
        except (StreamDamaged, OSError) as error:
            if not _is_lost(error):
                return None
            self._tell_lost(segment, place.first, place.end, error)
            return b""

    def _tell_lost(self, segment: Segment, first: int, end: int, why: object) -> None:
        # otherwise retention has removed it meanwhile
        if segment.first >= self.files.first and not self.stream.is_deleted:
            logger.error("%s: messages %d to %d are lost: %s", self.stream.what(), first, end - 1, why)

    def _later(self, key: tuple[str, int], work: Callable[[], Any], keep: Callable[[Any], None]) -> None:
        if key in self._coming:
            return
        self._coming.add(key)

        def done(result: Any, error: BaseException | None) -> None:
            assert error is None, error
            self._coming.discard(key)
            if self.stream.is_deleted:
                return
            if result is None or result is False:
                self.is_stalled = True
                return
            keep(result)
            self._stirred(self.stream)

        self._submit(work, done, is_reading=True)

    def try_again(self) -> None:
        """Let readers retry after a read that failed for a reason that may pass."""
        if self.is_stalled:
            self.is_stalled = False
            self._stirred(self.stream)


def _is_lost(error: Exception) -> bool:
    """Whether a retry is pointless."""
    return not (isinstance(error, OSError) and error.errno in _PASSING)
