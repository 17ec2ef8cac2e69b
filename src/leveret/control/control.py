"""Runs commands: lines of JSON in, lines of JSON out: {"ok": ...} or {"error": KIND, "reason": TEXT}."""

from __future__ import annotations

import asyncio
import difflib
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Iterator
from typing import Any, Final

import msgspec

import leveret.control.commands  # noqa: F401  (makes them known)
from leveret.control.audit import Audit
from leveret.control.calls.address import NOBODY, LocalProcess
from leveret.control.calls.line import Call, named, refusal
from leveret.control.command import COMMANDS, Command
from leveret.control.node import BrokerNode
from leveret.control.refusal import BAD_REQUEST, INTERNAL, Refused, bad_request
from leveret.control.sliced import Sliced

logger = logging.getLogger("leveret.control")

# how long an answer may occupy the event loop before messages are served (bench/admin_latency.py measures their delay)
SLICE_NS: Final = 100_000
# approximate size of the pieces of a long answer; the next one is made when the caller has taken the last
PIECE_OCTETS: Final = 1 << 15
INTERNAL_ERROR: Final = "internal error; see the broker's log"


class AnswerBroken(ConnectionError):
    """A defect showed up after the beginning of an answer had been sent; the answer is incomplete."""


class Control:
    """Answers the calls of all sockets. Commands run on the broker's event loop, long answers in slices."""

    def __init__(self, node: BrokerNode) -> None:
        self.node = node
        self._audit = Audit()
        self._encoder = msgspec.json.Encoder()
        self._calls = msgspec.json.Decoder(Call)
        self._decoders: dict[str, msgspec.json.Decoder[Any]] = {}

    async def answer(self, line: bytes, sender: LocalProcess = NOBODY) -> AsyncIterator[bytes]:
        """Answer one line, in pieces, without the line end.

        A long answer is made while it is taken, so that only one piece of it is in memory. Raises AnswerBroken if a
        defect shows up after the first piece.

        `sender` is the peer of the socket, for calls that do not name a caller.
        """
        try:
            call = self._calls.decode(line)
            command = self._decode(call.call)
        except msgspec.MsgspecError as error:
            yield refusal(BAD_REQUEST, str(error))
            return
        except Refused as refused:
            yield refusal(refused.kind, refused.reason)
            return
        outcome = "ok"
        pieces: AsyncIterator[bytes] = _in_slices(iter(()))
        try:
            result = command.run(self.node)
            if isinstance(result, Awaitable):
                result = await result
            if isinstance(result, Sliced):
                pieces = _in_slices(self._parts(await self._result_of(result)))
            elif isinstance(result, Iterator):
                pieces = _in_slices(self._parts(result))
            else:
                pieces = _in_slices(iter([b'{"ok":' + self._encoder.encode(result) + b"}"]))
            # a change runs to its end before it is answered; of a query the first piece shows whether it is refused
            ready = [piece async for piece in pieces] if command.changes else [await anext(pieces)]
        except Refused as refused:
            outcome = refused.kind
            ready = [refusal(refused.kind, refused.reason)]
        except Exception:
            # a defect of the broker's own must not end it
            logger.exception("internal error in %s", type(command).__name__)
            outcome = INTERNAL
            ready = [refusal(INTERNAL, INTERNAL_ERROR)]
        if command.changes:
            await self.node.host.settled()
            self._audit.note(call.by.known_as(sender), command, outcome)
        for piece in ready:
            yield piece
        if outcome != "ok":
            return
        try:
            async for piece in pieces:
                yield piece
        except Exception as error:
            logger.exception("internal error in %s", type(command).__name__)
            raise AnswerBroken(INTERNAL_ERROR) from error

    def _decode(self, table: msgspec.Raw) -> Command:
        name = named(table)
        if name not in COMMANDS:
            near = difflib.get_close_matches(name, COMMANDS, 1)
            raise bad_request(f"unknown command {name!r}" + (f"; did you mean {near[0]!r}?" if near else ""))
        if name not in self._decoders:
            self._decoders[name] = msgspec.json.Decoder(COMMANDS[name])
        command = self._decoders[name].decode(table)
        assert isinstance(command, Command)
        return command

    async def _result_of(self, work: Sliced) -> object:
        until_ns = time.perf_counter_ns() + SLICE_NS
        while True:
            try:
                next(work.steps)
            except StopIteration as end:
                return end.value
            if time.perf_counter_ns() > until_ns:
                await _let_others()
                until_ns = time.perf_counter_ns() + SLICE_NS

    def _parts(self, result: object) -> Iterator[bytes | None]:
        """Yield the JSON of an answer; an array, or one inside a table, may be long. None is a pause."""
        yield b'{"ok":'
        if isinstance(result, dict):
            before = b"{"
            for name, value in result.items():
                yield before + self._encoder.encode(name) + b":"
                yield from self._array(value)
                before = b","
            yield b"}" if before == b"," else b"{}"
        else:
            yield from self._array(result)
        yield b"}"

    def _array(self, items: object) -> Iterator[bytes | None]:
        if not isinstance(items, Iterator | list):
            yield self._encoder.encode(items)
            return
        before = b"["
        for item in items:
            if item is None and not isinstance(items, list):
                yield None
            else:
                yield before + self._encoder.encode(item)
                before = b","
        yield b"]" if before == b"," else b"[]"


async def _in_slices(parts: Iterator[bytes | None]) -> AsyncIterator[bytes]:
    """Join the parts into pieces, with pauses in which messages are served."""
    ready: list[bytes] = []
    size = 0
    until_ns = time.perf_counter_ns() + SLICE_NS
    for part in parts:
        if part is not None:
            ready.append(part)
            size += len(part)
        if size >= PIECE_OCTETS:
            yield b"".join(ready)
            ready, size = [], 0
        if time.perf_counter_ns() > until_ns:
            await _let_others()
            until_ns = time.perf_counter_ns() + SLICE_NS
    yield b"".join(ready)


async def _let_others() -> None:
    """Let the event loop serve its sockets: the first pause polls them, and only the second one runs their handlers."""
    await asyncio.sleep(0)
    await asyncio.sleep(0)
