"""Copies a data directory while a broker writes to it: as it was at one instant, between two batches.

At that instant (the mark) everything that counts is on the medium: whole files of the journal, the last one up to its
size then, the segments that its records refer to, and the files of streams. Files are only appended to, and as long as
none is removed they can be copied at leisure. The copy grows under another name and is renamed in one step, when all of
it is on the medium: whatever interrupts it, no half copy looks like a whole one.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Callable
from typing import NamedTuple

from leveret.store.disk import RealDisk
from leveret.store.inspection import JOURNAL_DIRECTORY, SEGMENT_DIRECTORY, STREAM_DIRECTORY

MANIFEST_NAME = "backup.json"
UNFINISHED_SUFFIX = ".unfinished"
CHUNK_OCTETS = 1 << 20
# how much is written between syncs: a long sync would delay the journal's
SYNC_OCTETS = 4 << 20


class BackupRefused(Exception):
    """No copy was made; the text says why."""


class BackupMark(NamedTuple):
    """What to copy.

    Attributes:
        journal: Paths of the journal's files, oldest first.
        size: Of the last one, in bytes.
        segments: Paths.
        streams: Paths and sizes of the streams' files.
    """

    journal: list[str]
    size: int
    segments: list[str]
    streams: list[tuple[str, int]]


class CopiedFile(NamedTuple):
    """A file of the copy. path: relative to the copy; size: in bytes."""

    path: str
    size: int
    sha256: str


def copy(mark: BackupMark, directory: str, facts: dict[str, str], go_on: Callable[[], bool]) -> list[CopiedFile]:
    """Copy what the mark names to `directory`. The manifest lists the files, and these facts.

    go_on: called between two chunks; when it returns False the copy is given up. Raises BackupRefused then, or if the
    directory is not empty; OSError if the system refuses. In both cases no part of the copy is left.
    """
    import shutil

    if os.path.lexists(directory) and not (os.path.isdir(directory) and not os.listdir(directory)):
        raise BackupRefused(f"{directory} exists and is not empty")
    unfinished = directory + UNFINISHED_SUFFIX
    shutil.rmtree(unfinished, ignore_errors=True)  # of a process that was killed
    try:
        copied = _fill(mark, unfinished, go_on)
        manifest = json.dumps(facts | {"files": [file._asdict() for file in copied]}, indent=1)
        _write(os.path.join(unfinished, MANIFEST_NAME), manifest.encode())
        for path, _, _ in os.walk(unfinished):
            RealDisk().sync_directory(path)
        os.rename(unfinished, directory)
        RealDisk().sync_directory(os.path.dirname(directory))
    except BaseException:
        shutil.rmtree(unfinished, ignore_errors=True)
        raise
    return copied


def _fill(mark: BackupMark, unfinished: str, go_on: Callable[[], bool]) -> list[CopiedFile]:
    copied = []
    for name in (JOURNAL_DIRECTORY, SEGMENT_DIRECTORY):
        RealDisk().make_directory(os.path.join(unfinished, name))
    for path in mark.journal:
        size = mark.size if path == mark.journal[-1] else os.path.getsize(path)
        target = os.path.join(JOURNAL_DIRECTORY, os.path.basename(path))
        copied.append(_copy_file(path, size, unfinished, target, go_on))
    for path in mark.segments:
        target = os.path.join(SEGMENT_DIRECTORY, os.path.basename(path))
        with contextlib.suppress(FileNotFoundError):  # it was being removed, because nothing in it was alive
            copied.append(_copy_file(path, os.path.getsize(path), unfinished, target, go_on))
    for path, size in mark.streams:
        of_stream = os.path.join(STREAM_DIRECTORY, os.path.basename(os.path.dirname(path)))
        RealDisk().make_directory(os.path.join(unfinished, of_stream))
        copied.append(_copy_file(path, size, unfinished, os.path.join(of_stream, os.path.basename(path)), go_on))
    return copied


def _copy_file(path: str, size: int, unfinished: str, target: str, go_on: Callable[[], bool]) -> CopiedFile:
    digest = hashlib.sha256()
    left = size
    unsynced = 0
    with open(path, "rb", buffering=0) as source, open(os.path.join(unfinished, target), "xb", buffering=0) as copy:
        while left:
            if not go_on():
                raise BackupRefused("given up")
            chunk = source.read(min(left, CHUNK_OCTETS))
            if not chunk:
                raise BackupRefused(f"{path} ends {left} bytes too early")
            _write_all(copy.fileno(), chunk)
            digest.update(chunk)
            left -= len(chunk)
            unsynced += len(chunk)
            if unsynced >= SYNC_OCTETS or not left:
                os.fsync(copy.fileno())
                unsynced = 0
    return CopiedFile(target, size, digest.hexdigest())


def _write_all(descriptor: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def _write(path: str, data: bytes) -> None:
    with open(path, "xb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
