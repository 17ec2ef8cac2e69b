"""A broker that was stopped by stop_app: its process remains and accepts only a few commands, such as start_app."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Final

import msgspec

from leveret.control.audit import Audit
from leveret.control.calls.address import NOBODY, LocalProcess
from leveret.control.calls.line import Call, named, refusal
from leveret.control.command import COMMANDS, Command
from leveret.control.refusal import BAD_REQUEST, INTERNAL, NOT_RUNNING

STORES: Final = ("journal", "segments")
"""Subdirectories of the data directory with messages and definitions."""
ASLEEP: Final = (
    "this command requires the 'rabbit' app to be running on the target node. Start it with 'rabbitmqctl start_app'."
)


class StoppedApp:
    """Answers on the control socket of a stopped broker."""

    def __init__(self, data_dir: str) -> None:
        self.end = asyncio.Event()  # set when the process shall start the broker again or exit
        self.starts = False  # whether it shall start it again
        self._data_dir = Path(data_dir)
        self._audit = Audit()
        self._commands: dict[str, Callable[[], None]] = {
            "start_app": self._start,
            "stop_app": lambda: None,
            "reset": self._reset,
            "stop": self.end.set,
            "ping": lambda: None,
        }

    async def answer(self, line: bytes, sender: LocalProcess = NOBODY) -> AsyncIterator[bytes]:
        """Answer one line, in one piece, without the line end."""
        yield self._answered(line, sender)

    def _answered(self, line: bytes, sender: LocalProcess) -> bytes:
        try:
            call = msgspec.json.decode(line, type=Call)
            name = named(call.call)
            if name not in self._commands:
                return refusal(NOT_RUNNING, ASLEEP)
            command: Command = msgspec.json.decode(call.call, type=COMMANDS[name])
        except msgspec.MsgspecError as error:
            return refusal(BAD_REQUEST, str(error))
        answer, outcome = b'{"ok":null}', "ok"
        try:
            self._commands[name]()
        except OSError as error:
            answer, outcome = refusal(INTERNAL, f"{error.filename}: {error.strerror}"), INTERNAL
        if command.changes:
            self._audit.note(call.by.known_as(sender), command, outcome)
        return answer

    def _start(self) -> None:
        self.starts = True
        self.end.set()

    def _reset(self) -> None:
        for name in STORES:
            if (self._data_dir / name).exists():
                shutil.rmtree(self._data_dir / name)
