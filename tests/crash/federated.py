"""Broker processes that are upstreams of each other, a client at each, and a network connection that can be cut."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import AsyncExitStack, ExitStack
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from leveret.client import Channel, Connection, Properties, connect
from leveret.control.calls.blocking import ControlClient
from leveret.testing.processes import LeveretProcess

EXCHANGE: Final = "fed.x"
QUEUE: Final = "inbox"
PERSISTENT: Final = Properties(delivery_mode=2)
RETRY_S: Final = 0.2
"""How long to wait for a probe: one that was published before the bindings existed is lost."""


class Node:
    """A broker with the topic exchange fed.x and the queue inbox, which receives every message."""

    def __init__(self, name: str, directory: Path, arguments: Sequence[str] = ()) -> None:
        self.name = name
        self.process = LeveretProcess(directory / name, arguments=arguments)
        self.heard: Counter[bytes] = Counter()
        self.news = asyncio.Event()

    def call(self, command: str, **fields: Any) -> Any:
        """Call a command of the control socket."""
        with ControlClient(str(self.process.data_dir)) as control:
            return control.call(command, **fields)

    def follow(self, *upstreams: Node | str, **settings: object) -> None:
        """Federate its exchange from these brokers or URLs."""
        for number, upstream in enumerate(upstreams):
            uri = upstream if isinstance(upstream, str) else upstream.process.url
            name = f"up-{number}" if isinstance(upstream, str) else upstream.name
            value = {"uri": uri, "reconnect-delay": 0.1, **settings}
            self.call("set_parameter", vhost="/", component="federation-upstream", name=name, value=value)
        definition = {"federation-upstream-set": "all"}
        self.call("set_policy", vhost="/", name="federate", pattern="^fed", definition=definition, apply_to="exchanges")

    def links(self) -> list[dict[str, Any]]:
        """Return the status of its links."""
        found: list[dict[str, Any]] = self.call("federation_status")
        return found

    async def open(self, has_inbox: bool = True) -> Connection:
        """Connect, and declare what is needed."""
        connection = await connect(self.process.url, reconnect=False)
        channel = await connection.channel()
        await channel.declare_exchange(EXCHANGE)
        if has_inbox:
            await channel.declare_queue(QUEUE)
            await channel.bind_queue(QUEUE, EXCHANGE, "#")
        await channel.close()
        return connection

    async def hear(self, connection: Connection) -> None:
        """Consume from the inbox until the connection ends."""
        channel = await connection.channel()
        async for delivery in await channel.consume(QUEUE):
            self.heard[delivery.body] += 1
            channel.ack(delivery.delivery_tag)
            self.news.set()

    async def until_heard(self, wanted: Iterable[bytes]) -> None:
        """Return when all of these bodies were received."""
        missing = set(wanted) - set(self.heard)
        while missing:
            self.news.clear()
            await self.news.wait()
            missing -= set(self.heard)


class Net:
    """Running nodes, with a publisher and a consumer at each."""

    def __init__(self, directory: Path, *names: str) -> None:
        self.nodes = [Node(name, directory) for name in names]
        self._processes, self._clients = ExitStack(), AsyncExitStack()
        self._hearing: list[asyncio.Task[None]] = []
        self._numbers = count()
        self.channels: list[Channel] = []

    async def __aenter__(self) -> Self:
        for node in self.nodes:
            self._processes.enter_context(node.process)
            node.call("set_cluster_name", name=node.name)
        return self

    async def attend(self) -> None:
        """Run a client at each node, which consumes and may publish."""
        for node in self.nodes:
            connection = await self._clients.enter_async_context(await node.open())
            self._hearing.append(asyncio.create_task(node.hear(connection)))
            channel = await connection.channel()
            await channel.confirm_select()
            self.channels.append(channel)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for task in self._hearing:
            task.cancel()
        await self._clients.aclose()
        await asyncio.gather(*self._hearing, return_exceptions=True)
        self._processes.close()

    async def publish(self, index: int, amount: int) -> list[bytes]:
        """Publish `amount` messages at a node; return when all are confirmed."""
        bodies = [b"%d:%d" % (index, next(self._numbers)) for _ in range(amount)]
        await asyncio.gather(*(self.channels[index].publish(body, EXCHANGE, "a.b", PERSISTENT) for body in bodies))
        return bodies

    async def until_linked(self, paths: dict[int, list[int]]) -> None:
        """Return when messages that are published at each key arrive at each of its values."""
        for source, targets in paths.items():
            is_through = False
            while not is_through:
                [body] = await self.publish(source, 1)
                waiting = [self.nodes[target].until_heard([body]) for target in targets]
                try:
                    await asyncio.wait_for(asyncio.gather(*waiting), RETRY_S)
                    is_through = True
                except TimeoutError:
                    pass

    async def check(self, paths: dict[int, list[int]], amount: int) -> None:
        """Check that messages published at each key of `paths` arrive once at each of its values, and nowhere else."""
        await self.until_linked(paths)
        sent = dict(zip(paths, await asyncio.gather(*(self.publish(index, amount) for index in paths)), strict=True))
        wanted = [
            [body for source, targets in paths.items() if target in targets for body in sent[source]]
            for target in range(len(self.nodes))
        ]
        await asyncio.gather(*(node.until_heard(bodies) for node, bodies in zip(self.nodes, wanted, strict=True)))
        # messages still on their way arrive before these
        await self.until_linked(paths)
        everything = {body for bodies in sent.values() for body in bodies}
        for node, bodies in zip(self.nodes, wanted, strict=True):
            heard = {body: times for body, times in node.heard.items() if body in everything}
            assert heard == dict.fromkeys(bodies, 1), node.name


class Relay:
    """A relay to a port on this machine; it can be cut, and stalled: then connections stay open without data."""

    def __init__(self, port: int) -> None:
        self._to = port
        self._pairs: list[tuple[asyncio.StreamWriter, asyncio.StreamWriter]] = []
        self._flowing = asyncio.Event()
        self._flowing.set()
        self._is_cut = False
        self.accepted = asyncio.Event()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = int(self._server.sockets[0].getsockname()[1])
        self._tasks: set[asyncio.Task[None]] = set()
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        self._flowing.set()
        self.cut()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    @property
    def url(self) -> str:
        return f"amqp://guest:guest@127.0.0.1:{self.port}/%2F"

    def cut(self) -> None:
        """Break all connections, and new ones too until `mend`."""
        self._is_cut = True
        for pair in self._pairs:
            for writer in pair:
                writer.transport.abort()
        self._pairs.clear()

    def stall(self) -> None:
        """Stop passing data; connections stay open."""
        self._flowing.clear()

    def mend(self) -> None:
        """Undo `cut` and `stall`."""
        self._is_cut = False
        self.accepted.clear()
        self._flowing.set()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._is_cut:
            writer.transport.abort()
            return
        try:
            there, back = await asyncio.open_connection("127.0.0.1", self._to)
        except OSError:
            writer.transport.abort()
            return
        self._pairs.append((writer, back))
        for one, other in ((reader, back), (there, writer)):
            task = asyncio.create_task(self._pump(one, other))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        self.accepted.set()

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(1 << 16):
                await self._flowing.wait()
                writer.write(data)
                await writer.drain()
        except OSError:
            pass
        writer.transport.abort()
