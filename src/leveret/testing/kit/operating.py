"""An operator's commands for a broker in this process."""

from __future__ import annotations

from typing import Any

import msgspec

from leveret import __version__, core
from leveret.control.control import Control
from leveret.control.node import Node
from leveret.testing.kit.life import Life


def operate(life: Life, command: str, arguments: dict[str, Any]) -> Any:
    """Carry out a command; returns its answer. ValueError if it is refused."""
    server = life.server
    node = Node(server.broker, server, "leveret@testing", "", __version__, core())
    line = msgspec.json.encode({"call": {"command": command, **arguments}})

    async def answer() -> bytes:
        return b"".join([piece async for piece in Control(node).answer(line)])

    result = msgspec.json.decode(life.wait(answer()))
    if "error" in result:
        raise ValueError(f"{command}: {result['reason']}")
    return result["ok"]
