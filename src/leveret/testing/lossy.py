"""Simulated power cuts for a directory: unsynced changes of a dead process are undone.

    disk = LossyDisk(data_dir, work_dir)
    process.extra_environment.update(disk.environment())
    ...                         # run it, kill it
    disk.absorb()               # read its log; the page cache is still there, as after any kill
    disk.power_loss(generator)  # now it is lost

The rules are those of POSIX, and of `leveret.store.disk`: bytes are safe once an fsync or fdatasync of their file that
began after the write has returned; a name is safe once an fsync of its directory has. Of the rest, any part may have
reached the medium, in any order, page by page, and the last piece of each file may be torn. A preloaded library
(lossy.c) logs the calls; `absorb` fails if a change was not logged. Needs Linux and a C compiler.
"""

from __future__ import annotations

import fcntl
import os
import random
import shutil
import struct
import subprocess
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

OPEN, WRITE, TRUNCATE, MAKE_DIRECTORY, REMOVE, RENAME, LINK, SYNC_BEGIN, SYNC_END = range(1, 10)
PAGE_SIZE: Final = 4096
# A process can be killed between a change and its log record; a shell and its child are at most two processes.
UNRECORDED_MAX: Final = 2
_HEAD: Final = struct.Struct("<IiiiqQ")
_SOURCE: Final = Path(__file__).with_name("lossy.c")


class LossyError(Exception):
    """No C compiler, or the directory was changed in a way that the library does not log."""


@dataclass(eq=False, slots=True)
class LossyFile:
    """A file: its safe bytes, and the changes since as (time, offset, data); data None truncates or extends it."""

    safe: bytearray = field(default_factory=bytearray)
    pending: list[tuple[int, int, bytes | None]] = field(default_factory=list)

    def settle(self, before: int) -> None:
        """Make the changes before this time safe."""
        for when, offset, data in self.pending:
            if when < before:
                _change(self.safe, offset, data)
        self.pending = [change for change in self.pending if change[0] >= before]

    def content(self) -> bytes:
        """Return the bytes as processes see them."""
        seen = bytearray(self.safe)
        for _, offset, data in self.pending:
            _change(seen, offset, data)
        return bytes(seen)

    def adopt(self, when: int, content: bytes) -> None:
        """Record a different content as one more change, of the pages from the first difference on.

        Equal pages were not written again, so a crash that loses this change loses nothing else.
        """
        known = self.content()
        starts = range(0, max(len(content), len(known)), PAGE_SIZE)
        start = next((at for at in starts if content[at : at + PAGE_SIZE] != known[at : at + PAGE_SIZE]), 0)
        if len(content) < len(known):
            self.pending.append((when, len(content), None))
        self.pending.append((when, start, content[start:]))

    def crash(self, generator: random.Random | None) -> int:
        """Keep none of the changes or, with a generator, some of their pages. Return the number of lost pieces."""
        pieces = [piece for _, offset, data in self.pending for piece in _pages(offset, data)]
        share = 0.0 if generator is None else generator.choice((0.0, 0.3, 0.7, 1.0))
        kept = [piece for piece in pieces if generator is not None and generator.random() < share]
        if generator is not None and kept:
            offset, data = kept[-1]
            kept[-1] = (offset, data and data[: generator.randint(0, len(data))])
        for offset, data in kept:
            _change(self.safe, offset, data)
        self.pending = []
        return len(pieces) - len(kept)


@dataclass(eq=False, slots=True)
class LossyDirectory:
    """A directory: its names as processes see them, the safe ones, and the changes since."""

    names: dict[str, LossyFile | LossyDirectory] = field(default_factory=dict)
    safe: dict[str, LossyFile | LossyDirectory] = field(default_factory=dict)
    pending: list[tuple[int, Mapping[str, LossyFile | LossyDirectory | None]]] = field(default_factory=list)

    def change(self, when: int, changes: Mapping[str, LossyFile | LossyDirectory | None]) -> None:
        """Assign files to names, or remove names (None), all in one atomic step."""
        _rename(self.names, changes)
        self.pending.append((when, changes))

    def settle(self, before: int) -> None:
        """Make the changes before this time safe."""
        for when, changes in self.pending:
            if when < before:
                _rename(self.safe, changes)
        self.pending = [change for change in self.pending if change[0] >= before]

    def crash(self, generator: random.Random | None) -> int:
        """Apply `LossyFile.crash` to the names and everything below. Files whose names are lost are gone."""
        kept = [changes for _, changes in self.pending if generator is not None and generator.random() < 0.5]
        gone = len(self.pending) - len(kept)
        for changes in kept:
            _rename(self.safe, changes)
        self.pending = []
        self.names = dict(self.safe)
        return gone + sum(node.crash(generator) for node in self.names.values())


class LossyDisk:
    """The state that a directory and everything below it would have on the medium.

    Attributes:
        ignored: "file", "directory": their syncs are ignored in what is absorbed from now on, to test the tests.
    """

    def __init__(self, directory: Path, work: Path, *, names_are_safe: bool = False) -> None:
        """Take the directory's present state as safe; create it if it does not exist.

        Args:
            directory: its path must not contain symbolic links.
            work: an existing directory for the library and its log, not below `directory`.
            names_are_safe: simulate a file system that loses bytes but no names; close to ext4 with its journal.

        Raises:
            LossyError: there is no C compiler.
            ValueError: `directory` or `work` is not as required.
        """
        directory.mkdir(parents=True, exist_ok=True)
        if directory != directory.resolve() or work.resolve().is_relative_to(directory):
            raise ValueError(f"{directory} must contain no symbolic links, and {work} must be outside of it")
        self.directory = directory
        self.ignored: Collection[str] = ()
        self._log = work / "lossy.log"
        self._gate = work / "lossy.gate"
        self._library = work / "lossy.so"
        self._names_are_safe = names_are_safe
        self._clock = 0
        self._root = _read(directory)
        self._gate.touch()
        self._log.write_bytes(b"")
        if shutil.which("cc") is None:
            raise LossyError("a C compiler (cc) is needed to build the library that watches the calls")
        build = ["cc", "-O2", "-shared", "-fPIC", "-pthread", "-o", str(self._library), str(_SOURCE)]
        subprocess.run(build, check=True)

    def environment(self) -> dict[str, str]:
        """Return the environment variables that the process needs."""
        return {
            "LD_PRELOAD": str(self._library),
            "LOSSY_DIR": str(self.directory),
            "LOSSY_LOG": str(self._log),
            "LOSSY_GATE": str(self._gate),
        }

    @contextmanager
    def syncs_stopped(self) -> Iterator[None]:
        """Block new syncs within this context; syncs that began before may end."""
        with self._gate.open("rb") as gate:
            fcntl.flock(gate, fcntl.LOCK_EX)
            yield

    def wait_for_a_sync(self) -> None:
        """While syncs are blocked, return when one waits: everything that it covers has been written."""
        inode = f":{self._gate.stat().st_ino} "
        while not any("->" in line and inode in line for line in Path("/proc/locks").read_text().splitlines()):
            os.sched_yield()

    def count_syncs(self) -> int:
        """Count the fsync and fdatasync calls that returned since the last `absorb`; processes may be running."""
        return sum(kind == SYNC_END for kind, *_ in _records(self._log.read_bytes()))

    def absorb(self) -> int:
        """Read the log, after all processes have ended. Return the number of unlogged changes: 0 unless one was killed.

        Raises:
            LossyError: there are more of them than kills explain.
        """
        self._replay(self._log.read_bytes())
        self._log.write_bytes(b"")
        unrecorded = self._adopt(self._root, self.directory)
        if unrecorded > UNRECORDED_MAX:
            raise LossyError(f"{unrecorded} files or names in {self.directory} differ from what was logged")
        return unrecorded

    def power_loss(self, generator: random.Random | None = None) -> int:
        """Undo all unsafe changes or, with a generator, any part of them. Return the number of lost changes."""
        gone = self._root.crash(generator)
        _write(self._root, self.directory)
        return gone

    # -- the log

    def _replay(self, log: bytes) -> None:
        descriptors: dict[tuple[int, int], tuple[LossyFile | LossyDirectory, int]] = {}
        syncs: dict[int, tuple[LossyFile | LossyDirectory, int]] = {}
        for kind, pid, descriptor, flags, offset, data in _records(log):
            self._clock += 1
            if kind == OPEN:
                node = self._open(Path(os.fsdecode(data)), flags)
                descriptors[pid, descriptor] = (node, flags)
            elif kind in (WRITE, TRUNCATE):
                node, opened = descriptors[pid, descriptor]
                assert isinstance(node, LossyFile)
                node.pending.append((self._clock, offset, data if kind == WRITE else None))
                if (opened | flags) & os.O_DSYNC:
                    self._settle(node, self._clock + 1)
            elif kind == SYNC_BEGIN:
                syncs[offset] = (descriptors[pid, descriptor][0], self._clock)
            elif kind == SYNC_END:
                self._settle(*syncs.pop(offset))
            else:
                self._change_names(kind, [Path(os.fsdecode(path)) for path in data.split(b"\0")])

    def _settle(self, node: LossyFile | LossyDirectory, before: int) -> None:
        if ("file" if isinstance(node, LossyFile) else "directory") not in self.ignored:
            node.settle(before)

    def _open(self, path: Path, flags: int) -> LossyFile | LossyDirectory:
        node = self._find(path)
        if node is None:
            node = LossyFile()
            self._name(path.parent, {path.name: node})
        elif flags & os.O_TRUNC and isinstance(node, LossyFile):
            node.pending.append((self._clock, 0, None))
        return node

    def _change_names(self, kind: int, paths: list[Path]) -> None:
        path = paths[0]
        if kind == MAKE_DIRECTORY:
            self._name(path.parent, {path.name: LossyDirectory()})
        elif kind == REMOVE:
            self._name(path.parent, {path.name: None})
        elif kind == LINK:
            self._name(paths[1].parent, {paths[1].name: self._find(path)})
        elif path.parent == paths[1].parent:
            self._name(path.parent, {path.name: None, paths[1].name: self._find(path)})
        else:
            self._name(paths[1].parent, {paths[1].name: self._find(path)})
            self._name(path.parent, {path.name: None})

    def _name(self, parent: Path, changes: Mapping[str, LossyFile | LossyDirectory | None]) -> None:
        directory = self._find(parent)
        assert isinstance(directory, LossyDirectory)
        directory.change(self._clock, changes)
        if self._names_are_safe:
            directory.settle(self._clock + 1)

    def _find(self, path: Path) -> LossyFile | LossyDirectory | None:
        node: LossyFile | LossyDirectory | None = self._root
        for name in Path(os.path.normpath(path)).relative_to(self.directory).parts:
            node = node.names.get(name) if isinstance(node, LossyDirectory) else None
        return node

    def _adopt(self, node: LossyDirectory, path: Path) -> int:
        """Record differences between the directory and the log as unsynced changes; return their number."""
        found = 0
        self._clock += 1
        present = {entry.name: entry for entry in _entries(path)}
        missing = {name: known for name, known in node.names.items() if name not in present}
        for name, entry in present.items():
            known = node.names.get(name)
            if entry.is_dir():
                if not isinstance(known, LossyDirectory):
                    known = LossyDirectory()
                    node.change(self._clock, {name: known})
                    found += 1
                found += self._adopt(known, entry)
                continue
            content = entry.read_bytes()
            if isinstance(known, LossyFile) and known.content() == content:
                continue
            found += 1
            same = [old for old, gone in missing.items() if isinstance(gone, LossyFile) and gone.content() == content]
            if same:
                # renamed, which is atomic
                node.change(self._clock, {same[0]: None, name: missing.pop(same[0])})
            else:
                if not isinstance(known, LossyFile):
                    known = LossyFile()
                    node.change(self._clock, {name: known})
                known.adopt(self._clock, content)
        for name in missing:
            node.change(self._clock, {name: None})
        return found + len(missing)


def _entries(path: Path) -> Iterator[Path]:
    """Yield the entries of a directory, without sockets, which have no data on the disk."""
    return (entry for entry in path.iterdir() if not entry.is_socket())


def _records(log: bytes) -> Iterator[tuple[int, int, int, int, int, bytes]]:
    """Yield kind, process, descriptor, flags, offset and data of each record, without one truncated by a kill."""
    at = 0
    while at + _HEAD.size <= len(log):
        kind, pid, descriptor, flags, offset, size = _HEAD.unpack_from(log, at)
        at += _HEAD.size + size
        if at <= len(log):
            yield kind, pid, descriptor, flags, offset, log[at - size : at]


def _change(target: bytearray, offset: int, data: bytes | None) -> None:
    """Apply a write, or (None) a new length. Gaps read as zeros."""
    if len(target) < offset:
        target.extend(bytes(offset - len(target)))
    if data is None:
        del target[offset:]
    else:
        target[offset : offset + len(data)] = data


def _pages(offset: int, data: bytes | None) -> list[tuple[int, bytes | None]]:
    """Split a change into the pieces that reach the medium independently."""
    if data is None:
        return [(offset, None)]
    ends = [*range(PAGE_SIZE - offset % PAGE_SIZE, len(data), PAGE_SIZE), len(data)]
    return [(offset + start, data[start:end]) for start, end in zip([0, *ends], ends, strict=False)]


def _rename(
    names: dict[str, LossyFile | LossyDirectory], changes: Mapping[str, LossyFile | LossyDirectory | None]
) -> None:
    for name, node in changes.items():
        if node is None:
            names.pop(name, None)
        else:
            names[name] = node


def _read(path: Path) -> LossyDirectory:
    """Read a directory; all of it counts as safe."""
    names = {
        entry.name: _read(entry) if entry.is_dir() else LossyFile(bytearray(entry.read_bytes()))
        for entry in _entries(path)
    }
    return LossyDirectory(names, dict(names))


def _write(node: LossyDirectory, path: Path) -> None:
    """Write the state of `node` to the disk. Files that are equal stay, with their modes."""
    for entry in path.iterdir():
        known = node.names.get(entry.name)
        if known is None or entry.is_dir() != isinstance(known, LossyDirectory):
            shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
    for name, known in node.names.items():
        entry = path / name
        if isinstance(known, LossyDirectory):
            entry.mkdir(exist_ok=True)
            _write(known, entry)
        elif not entry.exists() or entry.read_bytes() != known.safe:
            entry.write_bytes(known.safe)
