"""The other end of the control socket: blocking for the command line, asyncio for the HTTP API."""

from __future__ import annotations

import asyncio
from typing import Any

from leveret.control.address import LINE_OCTETS_MAX, socket_address
from leveret.control.blocking import ControlClient
from leveret.control.line import SOMEBODY, Caller, call_line, result_of
from leveret.control.refusal import INTERNAL, Refused

__all__ = ["AsyncControlClient", "ControlClient"]


class AsyncControlClient:
    """Connections for asyncio: calls may overlap, each takes a connection that is idle, or a new one.

    calls_max: so many may be on their way; others wait for their turn.
    """

    def __init__(self, data_dir: str, calls_max: int = 16) -> None:
        self._data_dir = data_dir
        self._turns = asyncio.Semaphore(calls_max)
        self._idle: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []

    async def raw(self, command: str, fields: dict[str, Any], by: Caller) -> bytes:
        """The answer's line as it came, for who can use it undecoded. OSError if the broker has gone."""
        async with self._turns:
            return await self._exchange(call_line(command, fields, by))

    async def _exchange(self, call: bytes) -> bytes:
        reader, writer = self._idle.pop() if self._idle else await self._connect()
        try:
            writer.write(call)
            line = await reader.readline()
            if not line.endswith(b"\n"):
                raise ConnectionError("the broker closed the control socket")
        except BaseException:
            writer.close()  # an answer may still come that nobody waits for
            raise
        self._idle.append((reader, writer))
        return line

    async def call(self, command: str, fields: dict[str, Any] | None = None, by: Caller = SOMEBODY) -> Any:
        """What a command answers. Refused if it can't be done; its kind is internal_error if the broker has gone."""
        try:
            return result_of(await self.raw(command, fields or {}, by))
        except OSError as error:
            raise Refused(INTERNAL, f"the broker does not answer: {error}") from error

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        with socket_address(self._data_dir) as address:
            return await asyncio.open_unix_connection(address, limit=LINE_OCTETS_MAX)
