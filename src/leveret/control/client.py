"""The other end of the control socket: blocking for the command line, asyncio for the HTTP API."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any, Final

from leveret.control.address import socket_address
from leveret.control.blocking import ControlClient
from leveret.control.line import SOMEBODY, Caller, call_line, result_of
from leveret.control.refusal import ANSWER_TOO_LONG, BUSY, INTERNAL, Refused
from leveret.control.turns import Turns

__all__ = ["AsyncControlClient", "ControlClient", "Rest"]

READ_OCTETS: Final = 1 << 16
# how much of an answer must have come before it is passed on piece by piece
FIRST_OCTETS: Final = 1 << 20
# the most of an answer that has to be had whole, because something is made of it
WHOLE_OCTETS_MAX: Final = 64 << 20
# long answers that may be in progress at the same time, so that a slow reader holds up nobody else
LONG_MAX: Final = 16


class Rest:
    """What follows of a long answer, line end included. It must be read to its end, or closed."""

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
        """Nobody waits for it any more."""
        if self._client is not None:
            self._client.give_up(self._writer)
            self._client = None


class AsyncControlClient:
    """Connections for asyncio: calls may overlap, each takes a connection that is idle, or a new one.

    calls_max: how many may be in progress, at most half of them from one address; others wait for their turn (`Turns`).
    first, whole: FIRST_OCTETS and WHOLE_OCTETS_MAX.
    """

    def __init__(
        self, data_dir: str, calls_max: int = 16, first: int = FIRST_OCTETS, whole: int = WHOLE_OCTETS_MAX
    ) -> None:
        self._data_dir = data_dir
        self._turns = Turns(calls_max)
        self._first = first
        self._whole = whole
        self._long = 0
        self._idle: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []

    async def raw(self, command: str, fields: dict[str, Any], by: Caller) -> bytes:
        """The answer's line as it came, undecoded. OSError if the broker has gone.

        Refused if it is longer than what may be in memory at once.
        """
        line, rest = await self._begin(command, fields, by, self._whole)
        if rest is not None:
            rest.close()
            reason = f"the answer is longer than {self._whole >> 20} MiB: ask for pages, fewer columns, or a part of it"
            raise Refused(ANSWER_TOO_LONG, reason)
        return line

    async def begin(self, command: str, fields: dict[str, Any], by: Caller) -> tuple[bytes, Rest | None]:
        """The same, whatever its length: a short one whole, of a long one the beginning, and what follows.

        Refused if too many long answers are on their way.
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
                writer.close()  # an answer may still come that nobody waits for
                raise
        if line.endswith(b"\n"):
            self._idle.append((reader, writer))
            return line, None
        self._long += 1
        rest = Rest(self, reader, writer)
        if self._long > LONG_MAX:
            rest.close()
            reason = f"{LONG_MAX} long answers are being read already: try again later, or ask for pages"
            raise Refused(BUSY, reason)
        return line, rest

    def take_back(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """A long answer has been read."""
        self._long -= 1
        self._idle.append((reader, writer))

    def give_up(self, writer: asyncio.StreamWriter) -> None:
        """A long answer will not be read."""
        self._long -= 1
        writer.close()

    async def call(self, command: str, fields: dict[str, Any] | None = None, by: Caller = SOMEBODY) -> Any:
        """What a command answers. Refused if it can't be done; its kind is internal_error if the broker has gone."""
        try:
            return result_of(await self.raw(command, fields or {}, by))
        except OSError as error:
            raise Refused(INTERNAL, f"the broker does not answer: {error}") from error

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        with socket_address(self._data_dir) as address:
            return await asyncio.open_unix_connection(address, limit=READ_OCTETS)


async def _more(reader: asyncio.StreamReader, line: bytearray, limit: int) -> bytes:
    """What has come so far, with what follows up to the line's end, or until it is limit octets."""
    while not line.endswith(b"\n") and len(line) < limit:
        line += await _read(reader)
    return bytes(line)


async def _read(reader: asyncio.StreamReader) -> bytes:
    """Some of the answer. No JSON has a line end in it, so that of the line stands at the end of the last piece."""
    piece = await reader.read(READ_OCTETS)
    if not piece:
        raise ConnectionError("the broker closed the control socket")
    return piece
