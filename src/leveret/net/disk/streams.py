"""Connects the broker's streams with their files: when a tail is written to files, and which files are kept.

Like commit.py, this module uses no loop, clock or thread of its own: the simulation (tests/sim) drives it just as the
server does. Blocking disk work goes through `submit`, which may run it on another thread.
"""

from __future__ import annotations

import contextlib
import functools
import logging
from collections.abc import Callable

from leveret.broker.broker import Broker
from leveret.broker.storage.log import TAILS_OCTETS_MAX
from leveret.broker.streams.history import History
from leveret.broker.streams.leases import NOTHING
from leveret.broker.streams.stream import TAIL_OCTETS, Stream
from leveret.net.disk.archive import Archive, Cache, Submit
from leveret.store.streams import StreamStore
from leveret.store.tables import Extent

logger = logging.getLogger("leveret")

# writing is behind when tails take this many times the memory that they should
BEHIND = 4


class StreamStorage:
    """Decides when streams are written to files, and removes the files that retention no longer keeps."""

    def __init__(
        self, broker: Broker, store: StreamStore, submit: Submit, stirred: Callable[[], None], now_us: Callable[[], int]
    ) -> None:
        self.archives: dict[int, Archive] = {}  # by queue number
        self._broker = broker
        self._store = store
        self._submit = submit
        self._stirred = stirred  # called when readers can go on outside of a turn
        self._now_us = now_us
        self._cache = Cache()
        self._has_failed = False
        self._holds = False  # a backup runs: files that are no longer needed stay
        self._held: list[Callable[[], None]] = []
        broker.log.open_history = self._open

    def _open(self, stream: Stream) -> History:
        number = int(stream.number)
        files = self._store.open(number, int(stream.next_offset))
        archive = Archive(stream, files, self._cache, self._submit, self._changed, self._stir)
        self.archives[number] = archive
        return archive.history

    def recovered(self) -> None:
        """Remove the files of streams that the journal does not know; called after the journal has been read."""
        for number, archive in list(self.archives.items()):
            if archive.stream.is_deleted:
                del self.archives[number]
        for number in self._store.numbers():
            if number not in self.archives:
                self._store.remove(number)
        self._broker.log.dead_streams.clear()
        if not self._broker.is_new:  # tables without a journal may be all that is left of a user's messages
            streams = [archive.stream for archive in self.archives.values()]
            extents = {(stream.vhost.name, stream.name): self._extent(stream) for stream in streams}
            self._submit(lambda: self._store.trim_all_tables(extents), self._removed)

    # -- writing -------------------------------------------------------------------------------------------------------

    @property
    def is_behind(self) -> bool:
        """Whether messages arrive faster than they can be written, so that memory grows."""
        return self._broker.log.tail_octets > BEHIND * TAILS_OCTETS_MAX and not self._has_failed

    def step(self) -> None:
        """Write long tails to files, and remove files of deleted streams. Called when the log has such work."""
        log = self._broker.log
        log.has_stream_work = False
        streams, log.long_streams = log.long_streams, []
        for stream in streams:
            stream.is_long = False
            if not stream.is_deleted and not self._has_failed:
                self.archives[int(stream.number)].write()
        if log.tail_octets > log.relieve_at:
            self._relieve()
        dead, log.dead_streams = log.dead_streams, []
        for batch, number in dead:
            if batch > log.synced:
                log.dead_streams.append((batch, number))
                log.has_stream_work = True
            elif (archive := self.archives.pop(number, None)) is not None:
                self._remove(functools.partial(self._store.remove, number))
                self._trim_tables(archive.stream)

    def _relieve(self) -> None:
        """Write the longest tails when many short ones take much memory; repeated when they have grown further."""
        log = self._broker.log
        tails = sorted(self.archives.values(), key=lambda archive: archive.stream.tail_octets, reverse=True)
        excess = log.tail_octets - TAILS_OCTETS_MAX // 2
        for archive in tails:
            if excess <= 0 or self._has_failed:
                break
            excess -= archive.stream.tail_octets
            archive.write()
        log.relieve_at = log.tail_octets + TAILS_OCTETS_MAX // 2

    def look(self) -> None:
        """Write tails that keep journal files alive, apply retention by age, and retry what failed. Called regularly.
        """
        self._has_failed = False
        log = self._broker.log
        log.relieve_at = TAILS_OCTETS_MAX
        if log.tail_octets > TAILS_OCTETS_MAX:
            self._relieve()  # of the newest messages nothing was on disk at the last attempt
        limit = log.crowded_below()
        for archive in self.archives.values():
            tail = archive.stream.tail
            if tail and tail[0].id < limit:
                archive.write()
        for archive in list(self.archives.values()):
            archive.try_again()
            self.retain(archive)

    def _changed(self, archive: Archive, is_new: bool, error: BaseException | None) -> None:
        if error is not None:
            if not self._has_failed:
                logger.warning("%s: its tail stays in the journal: %s", archive.stream.what(), error)
            self._has_failed = True  # until the next look
            return
        if is_new:
            self.retain(archive)
        stream = archive.stream
        if stream.tail_octets >= TAIL_OCTETS:
            stream.lengthened()

    def _stir(self, stream: Stream) -> None:
        if not stream.is_touched:
            stream.touch()
        self._stirred()

    # -- retention -----------------------------------------------------------------------------------------------------

    def retain(self, archive: Archive) -> None:
        """Remove the oldest files that the stream's limits do not keep; the newest file always stays."""
        try:
            count = self._unneeded(archive)
        except OSError as error:
            logger.warning("%s: its files can't be inspected: %s", archive.stream.what(), error)
            return
        if count == 0:
            return
        files = archive.files
        gone = files.dropped(count)
        archive.update()
        self._remove(functools.partial(files.remove, gone))
        self._trim_tables(archive.stream)

    def retained_from(self, archive: Archive) -> int:
        """The offset of the oldest message that a stream's limits keep, in whole files; leases may keep more."""
        count = self._superfluous(archive)
        return archive.files.segments[count].first if count else int(archive.stream.first)

    def sealed_offset(self, stream: Stream) -> int | None:
        """The offset after the last message in the stream's tables. None if it has no tables or they cannot be listed.
        """
        with contextlib.suppress(OSError):
            return self._store.sealed_end(stream.vhost.name, stream.name, stream.creation) or None
        return None

    def tables_directory(self, stream: Stream) -> str:
        """The directory of the stream's tables; it exists only if the stream has any."""
        return self._store.tables_of(stream.vhost.name, stream.name)

    def _unneeded(self, archive: Archive) -> int:
        """How many of the oldest files neither the stream's limits nor leases keep."""
        count = self._superfluous(archive)
        floor = archive.stream.leases.floor(self._now_us()) if count else NOTHING
        if floor != NOTHING:
            while count > 0 and archive.files.segments[count - 1].end > floor:
                count -= 1
        return count

    def _trim_tables(self, stream: Stream) -> None:
        """Remove the tables whose messages are gone, whichever stream has this name now."""
        vhost = self._broker.vhosts.get(stream.vhost.name)
        now = None if vhost is None else vhost.queues.get(stream.name)
        extent = self._extent(now) if isinstance(now, Stream) else None
        names = stream.vhost.name, stream.name
        self._submit(lambda: self._store.trim_tables(*names, extent), self._removed)

    def _extent(self, stream: Stream) -> Extent:
        """The range of messages that a stream's tables may hold once all work submitted so far is done.

        If the stream has no files it is new, or its files were damaged or removed: its tables are left alone then.
        """
        files = self.archives[int(stream.number)].files
        return Extent(stream.creation, files.first if files.segments else 0, int(stream.next_offset))

    def _superfluous(self, archive: Archive) -> int:
        """How many of the oldest files the stream's limits do not keep."""
        kept, segments = archive.stream.kept, archive.files.segments
        octets = archive.files.octets
        before_us = -1
        if kept.max_age_us >= 0:
            before_us = int(self._broker.timeline.wall_us(self._now_us()) - kept.max_age_us)
        count = 0
        while count < len(segments) - 1:
            is_long = 0 <= kept.max_octets < octets
            if not is_long and not archive.files.ended_before(segments[count], before_us):
                break
            octets -= segments[count].size
            count += 1
        return count

    def hold(self) -> list[tuple[str, int]]:
        """Stop removing files until `release`; returns path and size in bytes of each current file."""
        self._holds = True
        found: list[tuple[str, int]] = []
        for archive in self.archives.values():
            files = archive.files
            found += [(files.path(segment.first), segment.size) for segment in files.segments]
        return found

    def release(self) -> None:
        """Remove files again, beginning with those whose removal was postponed."""
        self._holds = False
        held, self._held = self._held, []
        for work in held:
            self._remove(work)

    def _remove(self, work: Callable[[], None]) -> None:
        if self._holds:
            self._held.append(work)
        else:
            self._submit(work, self._removed)

    def _removed(self, _: object, error: BaseException | None) -> None:
        if error is not None:
            logger.warning("files of a stream could not be removed: %s", error)
