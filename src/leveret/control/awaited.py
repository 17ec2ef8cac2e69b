"""Control, imported when somebody asks for the first time: its commands take longer to import than the broker to start.

They are imported on a thread, so that messages do not wait meanwhile.
"""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

from leveret.control.address import NOBODY, Sender

if TYPE_CHECKING:
    from leveret.broker.broker import Broker
    from leveret.control.control import Control
    from leveret.control.host import Host


class Awaited:
    """Answers as Control does. The arguments are those of Node."""

    def __init__(self, broker: Broker, host: Host, name: str, data_dir: str, version: str, core: str) -> None:
        self._broker = broker
        self._host = host
        self._facts = (name, data_dir, version, core)
        self._control: Control | None = None

    async def answer(self, line: bytes, sender: Sender = NOBODY) -> AsyncIterator[bytes]:
        """The answer to one line, without its line end, in pieces: see Control.answer."""
        if self._control is None:
            await asyncio.to_thread(importlib.import_module, "leveret.control.control")
        async for piece in self._the_control().answer(line, sender):
            yield piece

    def _the_control(self) -> Control:
        if self._control is None:
            from leveret.control.control import Control
            from leveret.control.node import Node

            self._control = Control(Node(self._broker, self._host, *self._facts))
        return self._control
