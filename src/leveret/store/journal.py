"""The journal: one log for the whole broker, appended to in batches, each batch made durable by one fdatasync.

The store does not know what is in a payload; broker/ writes and reads it. What makes a journal trustworthy here:

- A batch is written only when the one before is on the medium, so only the last one can be torn.
- After a failed sync nothing is ever appended again. The kernel may drop the pages of a failed sync and report success
  to the next one; only a new process, which reads what is really there, may go on. A write that failed ends the journal
  as well, with one exception: a full disk. What was refused for lack of room was promised to nobody and is known to be
  unsynced, so the same batch can be written again, at the same place.
- A new file gets its header and first batch, is synced, and only then renamed to its name: a journal file with its
  proper name is never half made.
- A file that is removed becomes a spare, and a spare the next new file (spares.py). A file that grows gets room written
  ahead of its batches. Both make syncs faster, and both mean that a file's length says nothing.
- Files are removed oldest first. The settlement of a message stands in the same or a later file than the message, so
  this order can't bring a settled message back.
"""

from __future__ import annotations

import contextlib
import errno
import os
import time
from collections.abc import Callable, Iterator, Sequence

from leveret.store.disk import Disk, DiskFile, SyncFailed
from leveret.store.format import BATCH_HEADER_SIZE, DATA_START, FileHeader, new_header, pack_batch
from leveret.store.reading import journal_files, journal_path
from leveret.store.recovery import JournalRecovery, RecoveryReport, Tail
from leveret.store.salvage import UNFINISHED_SUFFIX, write_whole
from leveret.store.spares import Spares

FILE_SIZE_DEFAULT = 64 << 20
SPARE_FILES_DEFAULT = 2
AHEAD_SIZE_DEFAULT = 256 << 10
# records of a snapshot that are joined without a pause
RECORDS_AT_ONCE = 4096
# errors of a full disk, or of a user's exceeded quota
_NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT})


class JournalFailed(Exception):
    """A write or sync of the journal failed; nothing after it is durable, and the process should end.

    `errno` is the system's error number (28: the disk is full; 5: input/output error), or None.
    """

    def __init__(self, path: str, error: OSError) -> None:
        super().__init__(f"{path}: writing the journal failed: {error.strerror or error}")
        self.path = path
        self.errno = error.errno


class JournalFull(Exception):
    """The disk has no room for a batch or a new file. Nothing is lost, and the same call can be made again later.

    `has_made_room`: spare files were deleted, so a retry at once is worthwhile.
    """

    def __init__(self, path: str, error: OSError, has_made_room: bool) -> None:
        super().__init__(f"{path}: no room for the journal: {error.strerror or error}")
        self.has_made_room = has_made_room
        self.path = path
        self.errno = error.errno


class Journal:
    """A directory of journal files. Replay once, to the end; then append, on one thread at a time.

    `directory` is created if it is missing. `file_size` (bytes) is only a mark: `is_full` says when it is reached, and
    the owner decides when to `rotate`. `random_bytes` supplies the generations of new files. At most `spare_files`
    files are kept to be overwritten, as long as the disk has room for everything else. After a batch that makes its
    file longer, `ahead_size` bytes of zeros are written.
    """

    def __init__(
        self,
        disk: Disk,
        directory: str,
        file_size: int = FILE_SIZE_DEFAULT,
        random_bytes: Callable[[int], bytes] = os.urandom,
        spare_files: int = SPARE_FILES_DEFAULT,
        ahead_size: int = AHEAD_SIZE_DEFAULT,
    ) -> None:
        self.file_size = file_size
        self.report = RecoveryReport()
        self.current = 0
        self.current_size = 0
        self._disk = disk
        self._directory = directory
        self._random_bytes = random_bytes
        self._files: tuple[int, ...] = ()
        self._next_number = 1
        self._header: FileHeader | None = None
        self._file: DiskFile | None = None
        self._failure: JournalFailed | None = None
        self._snapshot_size = 0  # of the current file's snapshot, 0 if an earlier process began the file
        self._end = 0  # end of the current file, including the batch that has begun
        self._room = 0  # the current file's length: every byte before it was written at least once
        self._ahead = bytes(ahead_size)
        self._spares = Spares(disk, directory, spare_files, 2 * file_size + ahead_size)

    @property
    def is_full(self) -> bool:
        """Whether the current file has reached `file_size`, and is twice as long as the snapshot that it began with.

        Without the second condition a broker with very many declarations would begin a new file with each batch, and
        write nothing else.
        """
        return self.current_size >= max(self.file_size, 2 * self._snapshot_size)

    def files(self) -> list[int]:
        """The numbers of the journal's files, oldest first; the last one is `current`."""
        return list(self._files)

    def path(self, number: int) -> str:
        """The path of file `number`."""
        return journal_path(self._directory, number)

    def replay(self) -> Iterator[bytes]:
        """Yield the payload of every whole batch, in the order of writing; then the journal is ready for appends.

        A torn tail is cut. Damage is reported, a copy of the file is put into `salvage/`, and the rest is yielded.
        `report` says what was found. Raises JournalVersionError if a newer leveret wrote the journal, OSError if the
        directory cannot be read or written at all.
        """
        self._disk.make_directory(self._directory)
        names = self._disk.list_names(self._directory)
        recovery = JournalRecovery(self._disk, self._directory, self._random_bytes)
        self.report = recovery.report
        # a crash while a file was being made leaves it under its working name; nothing was ever appended to it
        for name in names:
            if name.endswith(UNFINISHED_SUFFIX):
                self._disk.remove(os.path.join(self._directory, name))
        self._files = tuple(journal_files(names))
        yield from recovery.read(self._files)
        self._next_number = recovery.next_number
        if recovery.tail is not None:
            self._continue(recovery.tail)
        else:
            self._begin((self._files[-1] if self._files else 0) + 1, [])
        # only now that the directory is synced: a file must not be changed before its new name as a spare is on the
        # medium
        self._spares.find(names)

    def append(self, payload: bytes | Sequence[bytes]) -> None:
        """Write one batch and return when it is on the medium.

        `payload` is not empty: bytes, or parts that are joined. Raises JournalFull if the disk has no room for it: the
        payload is not in the journal, and the next append must be of the same one. Raises JournalFailed if the system
        refused for another reason, now or at any earlier time; ValueError for an empty payload or one of 4 GiB or more.
        """
        file = self.begin(payload)
        failure: OSError | None = None
        try:
            file.sync()
        except OSError as error:
            failure = error
        self.end(failure)

    def begin(self, payload: bytes | Sequence[bytes]) -> DiskFile:
        """Do the first half of `append`: write the batch, and return the file to be synced. Raises as `append` does.

        Until `end` the batch is not part of the journal, and the same one may be appended again.
        """
        if self._failure is not None:
            raise self._failure
        if self._file is None or self._header is None:
            raise RuntimeError("the journal is appended to after replay and before close")
        parts = [payload] if isinstance(payload, bytes) else payload
        batch_header, size = pack_batch(self._header, self._next_number, parts)
        if size == BATCH_HEADER_SIZE:
            raise ValueError("a batch has a payload; without one it would be a tombstone")
        self._end = self.current_size + size
        pieces = [batch_header, *parts]
        if self._end > self._room:
            # One extension serves many batches: most syncs then write data only, as in a recycled file. It is not tried
            # again for the same batch, since there may be room for the batch alone.
            pieces.append(self._ahead)
            self._room = self._end + len(self._ahead)
        try:
            self._file.write(self.current_size, pieces)
        except OSError as error:
            raise self._fail(error) from error
        return self._file

    def end(self, error: OSError | None = None) -> None:
        """Do the second half of `append`, after `begin` and a sync. JournalFailed if the sync failed with this error.
        """
        if error is not None:
            raise self._fail(error) from error
        self.current_size = self._end
        self._next_number += 1

    def rotate(self, snapshot: bytes | Sequence[bytes]) -> int:
        """Begin a new file, with `snapshot` as its first batch (none if it is empty), and return its number.

        `snapshot` is bytes, or records that are joined. Everything is on the medium on return. Raises as `append` does;
        after JournalFull the current file is unchanged.
        """
        if self._failure is not None:
            raise self._failure
        if self._file is None:
            raise RuntimeError("the journal is rotated after replay and before close")
        try:
            self._begin(self.current + 1, [snapshot] if isinstance(snapshot, bytes) else _joined(snapshot))
        except OSError as error:
            raise self._fail(error) from error
        return self.current

    def remove(self, number: int) -> None:
        """Take the oldest file out of the journal: it becomes a spare, or is deleted.

        ValueError for any other file, and for the current one; OSError if the system refuses. JournalFailed after a
        failure: the settlements that made the file superfluous may be those that did not reach the medium.
        """
        if self._failure is not None:
            raise self._failure
        if number != self._files[0] or number == self.current:
            raise ValueError(f"journal file {number} is not the oldest of {list(self._files)}, or still written to")
        path = self.path(number)
        spare = self._spares.keep(path, number)
        if spare is None:
            self._disk.remove(path)
        self._files = self._files[1:]
        self._disk.sync_directory(self._directory)
        if spare is not None:
            self._spares.add(spare)

    @property
    def spare_count(self) -> int:
        """How many spare files there are."""
        return self._spares.kept

    def drop_spares(self) -> bool:
        """Delete the spare files to make room on the disk; returns whether there were any."""
        return self._spares.give_up()

    def close(self) -> None:
        """Close the file. Everything appended is already on the medium.

        The file is cut behind its last batch, so that the next start need not read the rest; after a crash it does.
        """
        if self._file is not None:
            if self._failure is None:
                with contextlib.suppress(OSError):
                    self._file.truncate(self.current_size)
            self._file.close()
            self._file = None

    def _fail(self, error: OSError) -> JournalFailed | JournalFull:
        if error.errno in _NO_ROOM and not isinstance(error, SyncFailed):
            return JournalFull(self.path(self.current), error, self.drop_spares())
        self._failure = JournalFailed(self.path(self.current), error)
        return self._failure

    def _begin(self, number: int, snapshot: list[bytes]) -> None:
        header = new_header(number, self._next_number, self._random_bytes)
        parts = [header.pack()]
        size = sum(map(len, snapshot))
        if size:
            parts += [pack_batch(header, self._next_number, snapshot)[0], *snapshot]
        path = self.path(number)
        if not self._spares.become(path, parts):
            write_whole(self._disk, path, parts)
        self._disk.sync_directory(self._directory)
        file = self._disk.open(path)
        if self._file is not None:
            self._file.close()
        self._file, self._header = file, header
        self._next_number += bool(size)
        self._files = (*self._files, number)
        self.current, self.current_size = number, sum(map(len, parts))
        self._snapshot_size = size
        self._room = self._disk.size(path)

    def _continue(self, tail: Tail) -> None:
        """Continue writing in the last file, behind its last whole batch.

        That batch is written over itself and synced: it may have come from the page cache of a process that died, or
        whose sync failed, and what the broker now builds on it must not outlive it. No earlier batch can be in doubt.
        """
        self._file, self._header = self._disk.open(tail.path), tail.header
        if tail.torn:
            # the file keeps its length, but the torn batch is overwritten, so that nothing of it can be taken for a
            # later one
            self._file.write(tail.size, [bytes(tail.torn)])
        if tail.last_batch:
            self._file.write(tail.last_batch_offset, [tail.last_batch])
        self._file.sync()
        # the same holds for the file's name, if the process died between renaming it and syncing the directory
        self._disk.sync_directory(self._directory)
        self.current, self.current_size = self._files[-1], tail.size
        self._room = self._disk.size(tail.path)
        assert self.current_size >= DATA_START


def _joined(records: Sequence[bytes]) -> list[bytes]:
    """Join records into a few parts, since joining a hundred thousand at once would hold up the loop's thread."""
    parts: list[bytes] = []
    for start in range(0, len(records), RECORDS_AT_ONCE):
        parts.append(b"".join(records[start : start + RECORDS_AT_ONCE]))
        time.sleep(0)
    return parts
