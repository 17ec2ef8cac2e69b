"""Runs control commands on a broker without sockets, including commands whose answers come in steps."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any, cast

import msgspec
import pytest

import leveret.control.commands  # noqa: F401  (makes them known)
from leveret.broker.peer import Peer
from leveret.control.command import COMMANDS
from leveret.control.host import Host
from leveret.control.node import BrokerNode
from leveret.control.refusal import Refused
from leveret.control.sliced import Sliced

from .support import Bench, Client


async def whole(pieces: AsyncIterator[bytes]) -> bytes:
    """Join all pieces of an answer."""
    return b"".join([piece async for piece in pieces])


def listed(result: Any) -> Any:
    """Turn an answer's iterators, which are read while it is sent, into lists."""
    if isinstance(result, dict):
        return {name: listed(value) for name, value in result.items()}
    return [item for item in result if item is not None] if isinstance(result, Iterator) else result


class Environment:
    """The part of a Host that the commands use."""

    def __init__(self, bench: Bench, clients: list[Client]) -> None:
        self._bench = bench
        self._clients = clients

    def now_us(self) -> int:
        return self._bench.now_us

    def peers(self) -> list[Peer]:
        return [client.peer for client in self._clients]


class Operator:
    """Runs commands on a bench's broker."""

    def __init__(self, bench: Bench | None = None) -> None:
        self.bench = bench or Bench()
        self.clients: list[Client] = []  # whose connections the host knows
        host = cast(Host, Environment(self.bench, self.clients))
        self.node = BrokerNode(self.bench.broker, host, "leveret@test", "/data", "1", "interpreted")
        self.steps = 0  # steps of the last answer
        self.between_steps: list[Callable[[], None]] = []  # called after the first steps, one after each

    def client(self) -> Client:
        made = self.bench.connect()
        self.clients.append(made)
        return made

    def ask(self, command: str, **fields: Any) -> Any:
        """Return a command's answer, as decoded JSON."""
        result = msgspec.convert({"command": command, **fields}, COMMANDS[command]).run(self.node)
        self.steps = 0
        while isinstance(result, Sliced):
            try:
                next(result.steps)
                self.steps += 1
                if self.between_steps:
                    self.between_steps.pop(0)()
            except StopIteration as end:
                result = end.value
        return msgspec.json.decode(msgspec.json.encode(listed(result)))

    def refusal(self, command: str, **fields: Any) -> tuple[str, str]:
        """Return the kind and the reason of the Refused that a command raises."""
        with pytest.raises(Refused) as refused:
            self.ask(command, **fields)
        return refused.value.kind, refused.value.reason
