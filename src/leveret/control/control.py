"""Carries out commands: lines of JSON in, lines of JSON out. {"ok": ...} or {"error": KIND, "reason": TEXT}."""

from __future__ import annotations

import asyncio
import difflib
import logging
import time
from collections.abc import Awaitable, Iterator
from typing import Any, Final

import msgspec

import leveret.control.commands  # noqa: F401  (makes them known)
from leveret.control.audit import Audit
from leveret.control.command import COMMANDS, Command
from leveret.control.line import SOMEBODY, Call, Caller
from leveret.control.node import Node
from leveret.control.refusal import BAD_REQUEST, INTERNAL, Refused, bad_request
from leveret.control.sliced import Sliced

logger = logging.getLogger("leveret.control")

# so long may an answer keep the loop; then messages have their turn (bench/admin_latency.py says what that costs them)
SLICE_NS: Final = 100_000


class Control:
    """One for all sockets. Commands run on the broker's loop, long answers in slices."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self._audit = Audit()
        self._encoder = msgspec.json.Encoder()
        self._calls = msgspec.json.Decoder(Call)
        self._decoders: dict[str, msgspec.json.Decoder[Any]] = {}

    async def answer(self, line: bytes, sender: Caller = SOMEBODY) -> bytes:
        """The answer to one line, without its line end. Never raises.

        sender: whom the socket knows at its other end, for calls that do not say on whose behalf they are.
        """
        try:
            call = self._calls.decode(line)
            command = self._decode(call.call)
        except msgspec.MsgspecError as error:
            return self._refusal(BAD_REQUEST, str(error))
        except Refused as refused:
            return self._refusal(refused.kind, refused.reason)
        outcome = "ok"
        try:
            result = command.run(self.node)
            if isinstance(result, Awaitable):
                result = await result
            if isinstance(result, Sliced):
                result = await self._result_of(result)
            answer = await self._in_slices(result) if isinstance(result, Iterator) else self._encoder.encode(result)
        except Refused as refused:
            outcome = refused.kind
            answer = self._refusal(refused.kind, refused.reason)
        except Exception:
            # a defect of ours must not end the broker
            logger.exception("internal error in %s", type(command).__name__)
            outcome = INTERNAL
            answer = self._refusal(INTERNAL, "internal error; the broker's log says more")
        else:
            answer = b'{"ok":' + answer + b"}"
        if command.changes:
            await self.node.host.settled()
            self._audit.note(_caller(call.by, sender), command, outcome)
        return answer

    def _decode(self, table: msgspec.Raw) -> Command:
        name = msgspec.json.decode(table, type=_Named).command
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

    async def _in_slices(self, items: Iterator[object]) -> bytes:
        parts = []
        until_ns = time.perf_counter_ns() + SLICE_NS
        for item in items:
            parts.append(self._encoder.encode(item))
            if time.perf_counter_ns() > until_ns:
                await _let_others()
                until_ns = time.perf_counter_ns() + SLICE_NS
        return b"[" + b",".join(parts) + b"]"

    def _refusal(self, kind: str, reason: str) -> bytes:
        return self._encoder.encode({"error": kind, "reason": reason})


async def _let_others() -> None:
    """The first pause has the loop look at its sockets; only after the second one it has served them."""
    await asyncio.sleep(0)
    await asyncio.sleep(0)


def _caller(by: Caller, sender: Caller) -> Caller:
    return Caller(by.user or sender.user, by.address or sender.address, by.interface)


class _Named(msgspec.Struct):
    command: str
