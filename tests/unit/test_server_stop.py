"""Stopping a broker process: what other threads still do after the journal's last batch."""

import asyncio
import os
import threading
from collections.abc import Sequence

from leveret.broker.broker import Broker, Settings
from leveret.net.alarms import Alarms, Gauges, ResourceLimits
from leveret.net.server import Server
from leveret.store.disk import MemoryDisk
from leveret.store.journal import Journal
from leveret.store.reserve import Reserve
from leveret.store.segment import SegmentStore
from leveret.store.streams import StreamStore


class SlowSegments(SegmentStore):
    """A segment store whose writes block until `released` is set."""

    def __init__(self) -> None:
        super().__init__(MemoryDisk(), "/segments")
        self.released = threading.Event()

    def write(self, number: int, pages: Sequence[bytes]) -> list[tuple[int, int]]:
        assert self.released.wait(60)
        return super().write(number, pages)


async def test_a_segment_that_is_finished_after_the_journal_is_no_error() -> None:
    segments = SlowSegments()
    reserve = Reserve(MemoryDisk(), "/reserve")
    alarms = Alarms(ResourceLimits(0, 1), Gauges(lambda: 1, lambda: 0, lambda: None))
    streams = StreamStore(MemoryDisk(), "/streams")
    journal = Journal(MemoryDisk(), "/journal")
    server = Server(Broker(Settings(), os.urandom), journal, segments, streams, reserve, alarms)
    server.recover()
    errors: list[dict[str, object]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: errors.append(context))
    server._write_segment(1, [b"a page"])
    stop = server._sync.stop

    def stop_and_release() -> None:
        stop()
        segments.released.set()

    server._sync.stop = stop_and_release  # type: ignore[method-assign]
    server.stopping.set()
    await server.run()
    assert segments.numbers() == [1]
    for _ in range(5):  # the callback of the executor's thread runs in one of the loop's next turns
        await asyncio.sleep(0)
    assert errors == []
