"""Control, imported at the first call: importing its commands takes longer than starting the broker.

The import runs on a thread, so that messages are not delayed.
"""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

from leveret.control.calls.address import NOBODY, LocalProcess

if TYPE_CHECKING:
    from leveret.broker.broker import Broker
    from leveret.control.control import Control
    from leveret.control.host import Host


class Awaited:
    """Stands in for Control until the first call. The arguments are those of Node."""

    def __init__(self, broker: Broker, host: Host, name: str, data_dir: str, version: str, core: str) -> None:
        self._broker = broker
        self._host = host
        self._facts = (name, data_dir, version, core)
        self._control: Control | None = None

    async def answer(self, line: bytes, sender: LocalProcess = NOBODY) -> AsyncIterator[bytes]:
        """Answer one line as Control.answer does."""
        if self._control is None:
            await asyncio.to_thread(importlib.import_module, "leveret.control.control")
        async for piece in self._the_control().answer(line, sender):
            yield piece

    def _the_control(self) -> Control:
        if self._control is None:
            from leveret.control.control import Control
            from leveret.control.node import BrokerNode

            self._control = Control(BrokerNode(self._broker, self._host, *self._facts))
        return self._control
