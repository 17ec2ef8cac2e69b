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
from leveret.control.address import NOBODY, Sender
from leveret.control.audit import Audit
from leveret.control.command import COMMANDS, Command
from leveret.control.line import Call, named, refusal
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

    async def answer(self, line: bytes, sender: Sender = NOBODY) -> list[bytes]:
        """The answer to one line, without its line end, in pieces: to copy a long one takes long. Never raises.

        sender: whom the socket knows at its other end, for calls that do not say on whose behalf they are.
        """
        try:
            call = self._calls.decode(line)
            command = self._decode(call.call)
        except msgspec.MsgspecError as error:
            return [refusal(BAD_REQUEST, str(error))]
        except Refused as refused:
            return [refusal(refused.kind, refused.reason)]
        outcome = "ok"
        try:
            result = command.run(self.node)
            if isinstance(result, Awaitable):
                result = await result
            if isinstance(result, Sliced):
                result = await self._result_of(result)
            if isinstance(result, Iterator):
                answer = await self._in_slices(result)
            else:
                answer = [b'{"ok":' + self._encoder.encode(result) + b"}"]
        except Refused as refused:
            outcome = refused.kind
            answer = [refusal(refused.kind, refused.reason)]
        except Exception:
            # a defect of ours must not end the broker
            logger.exception("internal error in %s", type(command).__name__)
            outcome = INTERNAL
            answer = [refusal(INTERNAL, "internal error; the broker's log says more")]
        if command.changes:
            await self.node.host.settled()
            self._audit.note(call.by.known_as(sender), command, outcome)
        return answer

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

    async def _in_slices(self, items: Iterator[object]) -> list[bytes]:
        pieces: list[bytes] = []
        parts: list[bytes] = [b'{"ok":[']
        until_ns = time.perf_counter_ns() + SLICE_NS
        for item in items:
            parts += (self._encoder.encode(item), b",")
            if time.perf_counter_ns() > until_ns:
                pieces.append(b"".join(parts))
                parts = []
                await _let_others()
                until_ns = time.perf_counter_ns() + SLICE_NS
        if parts and parts[-1] == b",":
            parts.pop()
        elif pieces:
            pieces[-1] = pieces[-1].removesuffix(b",")
        return [*pieces, b"".join(parts), b"]}"]


async def _let_others() -> None:
    """The first pause has the loop look at its sockets; only after the second one it has served them."""
    await asyncio.sleep(0)
    await asyncio.sleep(0)
