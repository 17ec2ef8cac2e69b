"""A broker with streams, its journal and its files on a disk that can crash, and a virtual clock."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from leveret.broker.storage.recovery import Recovery
from leveret.broker.streams.stream import Stream
from leveret.net.disk.archive import Archive
from leveret.net.disk.streams import StreamStorage
from leveret.store.disk import MemoryDisk
from leveret.store.streams import StreamStore
from leveret.store.tables import TableFile, date_directory, file_name, stream_directory, table_files

from .support import Bench, Client, counted_bytes

HOME = "/data/streams"
TABLES = "/data/tables"
DAY = "2026-11-22"
Done = Callable[[Any, BaseException | None], None]


class StreamRig:
    """A broker with streams; each `fill` makes one file of a stream."""

    def __init__(self, disk: MemoryDisk | None = None, batches: list[bytes] | None = None, now_us: int = 0) -> None:
        self.disk = disk or MemoryDisk()
        self.works: list[tuple[Callable[[], Any], Done]] = []  # work on files, which waits for `run`
        self._life = 0 if batches is None else len(batches)
        self.bench = Bench(chance=self._life)
        self.bench.now_us = now_us or self.bench.now_us
        source = counted_bytes(self._life)
        store = StreamStore(self.disk, HOME, lambda count: next(source)[-count:])
        self.streams = StreamStorage(self.bench.broker, store, self._submit, lambda: None, lambda: self.bench.now_us)
        recovery = Recovery(self.bench.broker, self.bench.now_us)
        for batch in batches or []:
            recovery.batch(batch)
        recovery.finish()
        self.streams.recovered()
        self.bench.batches = list(batches or [])
        self.client: Client = self.bench.connect()

    def _submit(self, work: Callable[[], Any], done: Done, is_reading: bool = False) -> None:
        self.works.append((work, done))

    def run(self) -> None:
        """Do the waiting work, and the work that results from it."""
        while self.works:
            work, done = self.works.pop(0)
            try:
                result = work()
            except OSError as error:
                done(None, error)
            else:
                done(result, None)

    def crash(self, keep: list[int] | None = None) -> StreamRig:
        """Restart after a power cut that lost what was not synced, except the pending disk operations in `keep`."""
        self.disk.crash(keep or [])
        return StreamRig(self.disk, self.bench.batches, self.bench.now_us)

    def declare(self, name: str = "s", **arguments: object) -> None:
        smallest = {"x-stream-max-segment-size-bytes": 1}
        self.client.queue(name, durable=True, arguments={"x-queue-type": "stream", **smallest, **arguments})

    def delete(self, name: str = "s") -> None:
        self.bench.broker.vhosts["/"].delete_queue(self.stream(name))
        self.step()

    def step(self) -> None:
        """Sync the journal, and tell the streams."""
        self.bench.sync()
        self.streams.step()

    def look(self, ms: int = 0) -> None:
        """Let time pass, then let the streams look for work, and do it."""
        self.bench.pass_time(ms * 1000)
        self.streams.look()
        self.run()

    def stream(self, name: str = "s") -> Stream:
        found = self.bench.broker.vhosts["/"].queues[name]
        assert isinstance(found, Stream)
        return found

    def archive(self, name: str = "s") -> Archive:
        return self.streams.archives[int(self.stream(name).number)]

    def fill(self, count: int, name: str = "s") -> None:
        """Publish messages into a native file of their own, and seal that in a table."""
        stream = self.stream(name)
        first = int(stream.next_offset)
        for _ in range(count):
            self.client.publish(name, b"x" * 100)
        self.step()
        self.archive(name).write()
        self.run()
        self.seal(first, first + count - 1, stream.creation, name)

    def seal(self, first: int, last: int, creation: str, name: str = "s") -> str:
        """Create a table's file as the sealing process does."""
        folder = f"{stream_directory(TABLES, '/', name)}/{date_directory(DAY)}"
        self.disk.make_directory(folder)
        path = f"{folder}/{file_name(first, last, creation)}"
        self.disk.create(path).close()
        self.disk.sync_directory(folder)
        return path

    def natives(self, name: str = "s") -> list[int]:
        """Return the first offsets of the native files on the disk."""
        names = self.disk.list_names(f"{HOME}/{self.stream(name).number}")
        return [int(each.removesuffix(".lvs")) for each in names]

    def tables(self, name: str = "s") -> list[TableFile]:
        return table_files(self.disk, stream_directory(TABLES, "/", name))

    def grant(self, first: int, duration_ms: int, name: str = "s") -> str:
        """Grant a lease, and sync it."""
        stream = self.stream(name)
        lease = stream.leases.grant("reader", first, int(stream.first), duration_ms, self.bench.now_us)
        self.bench.sync()
        return lease.id
