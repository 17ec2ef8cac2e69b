"""A TCP proxy that breaks connections after random numbers of octets, and changes nothing else but time."""

from __future__ import annotations

import asyncio
import random
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit, urlunsplit

READ_OCTETS = 4096
PAUSE_S = 0.003
LOGIN_OCTETS = 2000
"""More than a login takes, both directions together."""


class CuttingProxy:
    """Passes connections on to the broker with this URL. An async context manager.

    Each of the next `cuts` connections ends after a random number of octets: by a reset, by an orderly end in one
    direction, or in both. Later ones stay.
    """

    def __init__(self, url: str, chance: random.Random, cuts: int = 0, octets_max: int = 20_000) -> None:
        self._broker = urlsplit(url)
        self._chance = chance
        self._octets_max = octets_max
        self._cuts = cuts
        self._tasks: set[asyncio.Task[None]] = set()
        self._writers: set[asyncio.StreamWriter] = set()
        self.connections = 0  # how many were accepted
        self.is_refusing = False  # new connections are reset at once

    @property
    def url(self) -> str:
        """The URL to connect to."""
        login = self._broker.netloc.rpartition("@")[0]
        place = f"{login}@127.0.0.1:{self._port}" if login else f"127.0.0.1:{self._port}"
        return urlunsplit(self._broker._replace(netloc=place))

    def cut(self) -> None:
        """Reset all connections."""
        for writer in list(self._writers):
            writer.transport.abort()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self._port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.close()
        self.cut()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        if self.is_refusing:
            writer.transport.abort()
            return
        host, port = self._broker.hostname or "127.0.0.1", self._broker.port or 5672
        try:
            from_broker, to_broker = await asyncio.open_connection(host, port)
        except OSError:
            writer.transport.abort()
            return
        self._writers |= {writer, to_broker}
        budget = 1 << 62
        if self._cuts:
            self._cuts -= 1
            budget = self._chance.randrange(self._octets_max)
            if self.connections == 1:
                budget += LOGIN_OCTETS  # a client that cannot log in at first gives up
        connection = _Connection(self._chance, budget, (writer, to_broker))
        for source, target in ((reader, to_broker), (from_broker, writer)):
            task = asyncio.get_running_loop().create_task(connection.pass_on(source, target))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)


class _Connection:
    """One connection, with the octets that pass until it breaks."""

    def __init__(self, chance: random.Random, budget: int, ends: tuple[asyncio.StreamWriter, asyncio.StreamWriter]):
        self._chance = chance
        self._budget = budget
        self._ends = ends

    async def pass_on(self, source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        """Pass one direction on until either end hangs up, or the budget is spent."""
        try:
            while data := await source.read(READ_OCTETS):
                if self._chance.random() < 0.1:
                    await asyncio.sleep(self._chance.random() * PAUSE_S)
                passed = data[: self._budget]
                self._budget -= len(passed)
                target.write(passed)
                await target.drain()
                if not self._budget:
                    self._break(target)
                    return
        except (OSError, asyncio.CancelledError):
            pass
        finally:
            target.close()

    def _break(self, target: asyncio.StreamWriter) -> None:
        way = self._chance.randrange(3)
        if way == 0:
            for end in self._ends:
                end.transport.abort()
        elif way == 1:
            target.write_eof()  # the other direction goes on
        else:
            for end in self._ends:
                end.close()
