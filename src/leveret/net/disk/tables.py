"""Seals a server's streams into tables: connects `Sealing`, which decides, and `SealingProcess` with loop and clock.

A broker that has never had a stream imports neither of them.
"""

from __future__ import annotations

import asyncio
import importlib.util
from typing import TYPE_CHECKING, Final

from leveret.net.server import Server
from leveret.net.work import WorkThreads
from leveret.store.disk import RealDisk

if TYPE_CHECKING:
    from leveret.net.disk.sealing import Sealing
    from leveret.net.disk.sealing_process import SealingProcess

LOOK_S: Final = 1.0
NEEDED: Final = ("pyarrow", "fastavro")


def are_possible() -> bool:
    """Whether the packages of the extra leveret[lake], which make tables, are installed."""
    return all(importlib.util.find_spec(module) is not None for module in NEEDED)


class Tables:
    """Seals the streams of a server below `tables_dir`, from now until `stop`."""

    def __init__(self, server: Server, tables_dir: str) -> None:
        self._server = server
        self._tables_dir = tables_dir
        self._process: SealingProcess | None = None
        self._work = WorkThreads("leveret-tables", server.loop, self._look)
        self._sealing: Sealing | None = None
        self._timer: asyncio.TimerHandle | None = server.loop.call_later(LOOK_S, self._tick)

    @property
    def pid(self) -> int | None:
        """The sealing process's id, None if it does not run."""
        return None if self._process is None else self._process.pid

    async def stop(self) -> None:
        """Seal no more; returns when the process is gone."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._work.stop()
        if self._process is not None:
            await self._process.stop()

    @property
    def sealing(self) -> Sealing:
        """Decides what is sealed when; made at the first use."""
        if self._sealing is None:
            from leveret.net.disk.sealing import Sealing

            archives = self._server.streams.archives
            self._sealing = Sealing(archives, self._tables_dir, RealDisk(), self._work.submit, self._ask)
        return self._sealing

    def _tick(self) -> None:
        self._timer = self._server.loop.call_later(LOOK_S, self._tick)
        self._look()

    def _look(self) -> None:
        """Seal what is due, unless the disk is nearly full: tables can wait, and the journal may need the room."""
        server = self._server
        if self._sealing is None and not server.streams.archives:
            return
        if self._timer is not None and not server.stopping.is_set() and not server.alarms.is_low_on_disk:
            self.sealing.look(server.now_us())

    def _ask(self, request: bytes) -> None:
        from leveret.net.disk.sealing_process import SealingProcess

        if self._process is None:
            self._process = SealingProcess(self._tables_dir, self._answered, self._failed)
        self._process.ask(request)

    def _answered(self, line: bytes) -> None:
        self.sealing.answered(line, self._server.now_us())
        self._look()

    def _failed(self, reason: str) -> None:
        self.sealing.failed(reason, self._server.now_us())
