"""The asyncio and the blocking client on a broker without sockets; a test decides when data crosses."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Callable
from typing import Any, TypeVar

from leveret.broker.peer import Peer
from leveret.client import BlockingChannel, BlockingConnection, Connection
from leveret.client.aio import READ_SIZE, _Socket
from leveret.client.protocol.connection_core import ConnectionCore
from leveret.client.protocol.url import parse_url
from leveret.client.protocol.waiter import Waiter

from .support import Bench

T = TypeVar("T")
URL = parse_url("amqp://guest:guest@memory")
# how far a call has got
NOT_HEARD = "the broker has not heard it"
NOT_ANSWERED = "the answer is on its way"
ANSWERED = "the answer is there, and its caller has not looked"
MOMENTS = (NOT_HEARD, NOT_ANSWERED, ANSWERED)
# no call takes so many rounds
ROUNDS_MAX = 1000
BODIES = [b"1", b"2", b"3"]


class InMemory:
    """A connection to a broker of its own. No data moves before the test says so."""

    def __init__(self) -> None:
        self.bench = Bench()
        self.peer = Peer(self.bench.broker, "memory:1", True)
        self.core = ConnectionCore(URL, 0, "memory")
        self.said = b""

    def say(self) -> None:
        """Move what the client has written to `said`."""
        self.said += self.core.take()

    def give(self, data: bytes) -> None:
        """Pass the client data from the broker."""
        self.core.receive(data)

    def hear(self) -> bool:
        """Pass the broker what the client wrote, and sync; return whether there was anything."""
        self.say()
        said, self.said = self.said, b""
        if said:
            self.peer.turn(said, self.bench.now_us)
            self.bench.sync()
        return bool(said)

    def answer(self) -> bool:
        """Pass the client what the broker wrote; return whether there was anything."""
        data = b"".join(self.peer.take(self.bench.broker.log.synced))
        for start in range(0, len(data), READ_SIZE):
            self.give(data[start : start + READ_SIZE])
        return bool(data)

    def advance(self, moment: str) -> None:
        """Move data until a call has got as far as this moment."""
        if moment != NOT_HEARD:
            self.hear()
        if moment == ANSWERED:
            self.answer()

    def settle(self) -> None:
        """Move data until neither side has anything to send."""
        while self.hear() | self.answer():
            pass


class Transport(asyncio.Transport):
    """What the client takes for asyncio's socket transport."""

    def __init__(self, line: AsyncLine) -> None:
        super().__init__()
        self.is_closed = False
        self._line = line

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self._line.said += bytes(data)

    def get_write_buffer_size(self) -> int:
        return 0

    def close(self) -> None:
        if not self.is_closed:
            self.is_closed = True
            asyncio.get_running_loop().call_soon(self._line.socket.connection_lost, None)

    abort = close


class AsyncLine(InMemory):
    """The asyncio client."""

    def __init__(self) -> None:
        super().__init__()
        self.socket = _Socket(self.core)
        self.connection = Connection(self.core, self.socket)
        self.transport = Transport(self)
        self.socket.connection_made(self.transport)
        self.settle()
        assert self.core.opened.done

    def say(self) -> None:
        self.socket.flush()

    def give(self, data: bytes) -> None:
        self.socket.get_buffer(-1)[: len(data)] = data
        self.socket.buffer_updated(len(data))

    def channel(self) -> Any:
        return self.connection.channel()

    def rpc(self, reply_queue: bool = False) -> Any:
        return self.connection.rpc(reply_queue)

    async def do(self, call: Callable[[], Any]) -> Any:
        """Make a call and let the broker answer it."""
        called = call()
        if not inspect.isawaitable(called):
            return called
        task = asyncio.ensure_future(called)
        for _ in range(ROUNDS_MAX):
            if task.done():
                return task.result()
            await asyncio.sleep(0)
            self.settle()
        raise AssertionError("it waits for what never comes")

    async def cut(self, call: Callable[[], Any], moment: str, rounds: int = 0) -> list[Any]:
        """Make a call, answer so many rounds, cancel it at this moment. Return [], or the result if it completed
        first."""
        task = asyncio.ensure_future(call())
        for _ in range(rounds):
            await asyncio.sleep(0)
            self.settle()
        await asyncio.sleep(0)
        if task.done():
            return [task.result()]
        self.advance(moment)
        task.cancel()
        await asyncio.wait([task])
        await asyncio.sleep(0)  # the undoing is written at the end of the turn
        return [] if task.cancelled() else [task.result()]


class BlockingLine(InMemory):
    """The blocking client."""

    def __init__(self) -> None:
        super().__init__()
        self.lock = threading.RLock()
        self.new_channel = BlockingChannel
        # where the wait after `rounds` more is interrupted; None: nowhere
        self.moment: str | None = None
        self.rounds = 0
        self.settle()

    def pump(self, timeout_s: float | None) -> bool:
        self.hear()
        return self.answer()

    def wait(self, waiter: Waiter[T], timeout_s: float | None = None) -> bool:
        if self.moment is not None and not waiter.done:
            if not self.rounds:
                moment, self.moment = self.moment, None
                self.advance(moment)
                raise KeyboardInterrupt
            self.rounds -= 1
        self.settle()
        assert waiter.done
        return True

    def channel(self) -> Any:
        return BlockingConnection.channel(self)  # type: ignore[arg-type]

    def rpc(self, reply_queue: bool = False) -> Any:
        return BlockingConnection.rpc(self, reply_queue)  # type: ignore[arg-type]

    async def do(self, call: Callable[[], Any]) -> Any:
        return call()

    async def cut(self, call: Callable[[], Any], moment: str, rounds: int = 0) -> list[Any]:
        """Make a call; interrupt it after so many rounds at this moment. Return [], or its result if it did not
        wait."""
        self.moment, self.rounds = moment, rounds
        try:
            return [call()]
        except KeyboardInterrupt:
            return []
        finally:
            self.moment = None


Line = AsyncLine | BlockingLine


class Case:
    """A channel with three messages in the queue "tasks", on which a test cancels a call."""

    def __init__(self, line: AsyncLine | BlockingLine, channel: Any) -> None:
        self.line = line
        self.channel = channel
        self.kept: Any = None  # what a preparation passes to its call

    @classmethod
    async def new(cls, line: AsyncLine | BlockingLine) -> Case:
        case = cls(line, await line.do(line.channel))
        await case.do(lambda: case.channel.declare_queue("tasks"))
        for body in BODIES:
            case.channel.publish(body, "", "tasks")
        line.settle()
        return case

    @classmethod
    async def confirming(cls, line: AsyncLine | BlockingLine) -> Case:
        """Return a case in confirm mode, with a queue "full" that refuses every message."""
        case = await cls.new(line)
        await case.do(case.channel.confirm_select)
        refusing = {"x-max-length": 0, "x-overflow": "reject-publish"}
        await case.do(lambda: case.channel.declare_queue("full", arguments=refusing))
        return case

    async def do(self, call: Callable[[], Any]) -> Any:
        return await self.line.do(call)

    async def info(self) -> tuple[int, int]:
        """Return the message count and consumer count of "tasks"; check that the channel's answers still match its
        calls."""
        info = await self.do(lambda: self.channel.declare_queue("tasks", passive=True))
        assert info.name == "tasks"
        return info.message_count, info.consumer_count

    async def take(self, count: int, no_ack: bool = True) -> list[bytes]:
        """Get this many messages from "tasks"."""
        found = []
        for _ in range(count):
            delivery = await self.do(lambda: self.channel.get("tasks", no_ack))
            found.append(delivery.body if delivery is not None else b"")
        return found

    @property
    def queues(self) -> set[str]:
        return set(self.line.bench.broker.vhosts["/"].queues)

    @property
    def channels(self) -> tuple[int, int]:
        """Return how many channels are open, for the client and for the broker."""
        return len(self.line.core._channels), len(self.line.peer.channels)
