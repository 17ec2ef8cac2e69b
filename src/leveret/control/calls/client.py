"""Clients of the control socket: blocking for the command line, asyncio for the HTTP API."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any, Final

from leveret.control.calls.address import socket_address
from leveret.control.calls.blocking import ControlClient
from leveret.control.calls.line import SOMEBODY, Caller, call_line, result_of
from leveret.control.calls.turns import Turns
from leveret.control.refusal import ANSWER_TOO_LONG, BUSY, INTERNAL, Refused

__all__ = ["AsyncControlClient", "ControlClient", "Rest"]

READ_OCTETS: Final = 1 << 16
# octets of an answer that are read before the rest is passed on piece by piece
FIRST_OCTETS: Final = 1 << 20
# maximum length of an answer that is read whole, because it is processed here
WHOLE_OCTETS_MAX: Final = 64 << 20
# long answers that may be in progress at the same time, so that slow readers do not hold up others
LONG_MAX: Final = 16


class Rest:
    """The rest of a long answer, line end included. It must be read to its end or closed."""

    def __init__(self, client: AsyncControlClient, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._client: AsyncControlClient | None = client
        self._reader = reader
        self._writer = writer

    async def __aiter__(self) -> AsyncIterator[bytes]:
        try:
            while self._client is not None:
                piece = await _read(self._reader)
                if piece.endswith(b"\n"):
                    self._client.take_back(self._reader, self._writer)
                    self._client = None
                yield piece
        finally:
            self.close()

    def close(self) -> None:
        """Give up the rest of the answer, if it has not been read."""
        if self._client is not None:
            self._client.give_up(self._writer)
            self._client = None


class AsyncControlClient:
    """A connection pool for asyncio. Calls may overlap; each takes an idle connection or opens a new one.

    At most `calls_max` calls are in progress, at most half of them from one address; others queue (see Turns). For
    `first` and `whole` see FIRST_OCTETS and WHOLE_OCTETS_MAX.
    """

    def __init__(
        self, data_dir: str, calls_max: int = 16, first: int = FIRST_OCTETS, whole: int = WHOLE_OCTETS_MAX
    ) -> None:
        self._data_dir = data_dir
        self._turns = Turns(calls_max)
        self._first = first
        self._whole = whole
        self._long = 0  # long answers in progress
        self._idle: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []

    async def raw(self, command: str, fields: dict[str, Any], by: Caller) -> bytes:
        """Run a command and return the line of its answer undecoded.

        Raises OSError if the broker has gone and Refused if the answer is too long to be read whole.
        """
        line, rest = await self._begin(command, fields, by, self._whole)
        if rest is not None:
            rest.close()
            reason = f"the answer exceeds {self._whole >> 20} MiB: request pages, fewer columns, or a part of it"
            raise Refused(ANSWER_TOO_LONG, reason)
        return line

    async def begin(self, command: str, fields: dict[str, Any], by: Caller) -> tuple[bytes, Rest | None]:
        """Run a command and return its answer undecoded: a short one whole, a long one as its beginning and the rest.

        Raises OSError if the broker has gone and Refused if too many long answers are in progress.
        """
        return await self._begin(command, fields, by, self._first)

    async def _begin(self, command: str, fields: dict[str, Any], by: Caller, limit: int) -> tuple[bytes, Rest | None]:
        async with self._turns.turn(by.address):
            reader, writer = self._idle.pop() if self._idle else await self._connect()
            try:
                writer.write(call_line(command, fields, by))
                line = await _read(reader)
                if not line.endswith(b"\n"):
                    line = await _more(reader, bytearray(line), limit)
            except BaseException:
                writer.close()  # the answer may still arrive, but is not wanted any more
                raise
        if line.endswith(b"\n"):
            self._idle.append((reader, writer))
            return line, None
        self._long += 1
        rest = Rest(self, reader, writer)
        if self._long > LONG_MAX:
            rest.close()
            reason = f"{LONG_MAX} large answers are already in progress: try again later, or request pages"
            raise Refused(BUSY, reason)
        return line, rest

    def take_back(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Reuse the connection: its long answer was read to the end."""
        self._long -= 1
        self._idle.append((reader, writer))

    def give_up(self, writer: asyncio.StreamWriter) -> None:
        """Close the connection: its long answer will not be read to the end."""
        self._long -= 1
        writer.close()

    async def call(self, command: str, fields: dict[str, Any] | None = None, by: Caller = SOMEBODY) -> Any:
        """Run a command and return its result. Raises Refused; its kind is internal_error if the broker has gone."""
        try:
            return result_of(await self.raw(command, fields or {}, by))
        except OSError as error:
            raise Refused(INTERNAL, f"the broker does not answer: {error}") from error

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        with socket_address(self._data_dir) as address:
            return await asyncio.open_unix_connection(address, limit=READ_OCTETS)


async def _more(reader: asyncio.StreamReader, line: bytearray, limit: int) -> bytes:
    """Read on until the end of the line or `limit` octets; return everything read so far."""
    while not line.endswith(b"\n") and len(line) < limit:
        line += await _read(reader)
    return bytes(line)


async def _read(reader: asyncio.StreamReader) -> bytes:
    """Read some of the answer. JSON contains no line ends, so a line end can only be at the end of the last piece."""
    piece = await reader.read(READ_OCTETS)
    if not piece:
        raise ConnectionError("the broker closed the control socket")
    return piece
