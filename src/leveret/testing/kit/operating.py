"""Operator commands for a broker in this process."""

from __future__ import annotations

from typing import Any

import msgspec

from leveret import __version__, core
from leveret.control.control import Control
from leveret.control.node import BrokerNode
from leveret.testing.kit.run import BrokerRun


def operate(broker_run: BrokerRun, command: str, arguments: dict[str, Any]) -> Any:
    """Run a control command and return its answer. Raises ValueError if it is refused."""
    server = broker_run.server
    node = BrokerNode(server.broker, server, "leveret@testing", "", __version__, core())
    line = msgspec.json.encode({"call": {"command": command, **arguments}})

    async def answer() -> bytes:
        return b"".join([piece async for piece in Control(node).answer(line)])

    result = msgspec.json.decode(broker_run.wait(answer()))
    if "error" in result:
        raise ValueError(f"{command}: {result['reason']}")
    return result["ok"]
