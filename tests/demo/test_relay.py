"""The relay between an airport and hq: bytes both ways, cuts in the midst of them, the same port afterwards."""

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator

import pytest

from leveret.demo.roles.relay import HOST, Relay

MEGABYTE = bytes(range(256)) * 4096


class Upstream:
    """A server that echoes what it receives, and counts its connections."""

    def __init__(self) -> None:
        self.port = 0
        self.connections = 0
        self.ended = asyncio.Event()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while data := await reader.read(1 << 16):
                writer.write(data)
                await writer.drain()
        except OSError:
            pass
        finally:
            self.ended.set()
            writer.close()


@pytest.fixture
async def upstream() -> AsyncIterator[Upstream]:
    upstream = Upstream()
    server = await asyncio.start_server(upstream.serve, HOST, 0)
    upstream.port = server.sockets[0].getsockname()[1]
    yield upstream
    server.close()


@pytest.fixture
async def relay(upstream: Upstream) -> AsyncIterator[Relay]:
    relay = Relay(upstream.port)
    await relay.restore()
    yield relay
    relay.cut()


async def echoed(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, data: bytes) -> bytes:
    writer.write(data)
    return await reader.readexactly(len(data))


async def test_it_carries_bytes_both_ways(relay: Relay) -> None:
    reader, writer = await asyncio.open_connection(HOST, relay.port)
    assert await echoed(reader, writer, MEGABYTE) == MEGABYTE
    writer.close()


async def test_the_end_of_one_side_is_the_end_of_the_other(relay: Relay, upstream: Upstream) -> None:
    reader, writer = await asyncio.open_connection(HOST, relay.port)
    assert await echoed(reader, writer, b"hello") == b"hello"
    writer.close()
    await upstream.ended.wait()


async def test_a_cut_resets_both_sides_in_the_midst_of_traffic(relay: Relay, upstream: Upstream) -> None:
    reader, writer = await asyncio.open_connection(HOST, relay.port)
    assert await echoed(reader, writer, b"hello") == b"hello"
    writer.write(MEGABYTE * 8)  # more than the buffers on the way hold, so the transfer is under way at the cut
    assert await reader.readexactly(1000) == MEGABYTE[:1000]
    relay.cut()
    with pytest.raises(ConnectionError):  # instead of an orderly end of the stream
        await reader.read()
    await upstream.ended.wait()
    assert relay.reset == 2
    writer.close()


async def test_nobody_gets_in_until_it_is_restored_at_the_same_port(relay: Relay, upstream: Upstream) -> None:
    port = relay.port
    relay.cut()
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection(HOST, port)
    assert upstream.connections == 0
    await relay.restore()
    await relay.restore()  # a second call does nothing
    assert relay.port == port
    reader, writer = await asyncio.open_connection(HOST, port)
    assert await echoed(reader, writer, b"again") == b"again"
    writer.close()


async def test_an_upstream_that_is_gone_ends_the_connection(relay: Relay) -> None:
    dead = Relay(1)  # a port without a listener
    await dead.restore()
    reader, writer = await asyncio.open_connection(HOST, dead.port)
    assert await reader.read() == b""
    writer.close()
    dead.cut()


def test_the_process_obeys_its_input_and_ends_with_it() -> None:
    plan = '{"url": "", "flights": 1, "seed": 0, "output": "/nowhere", "faults": []}'
    command = [sys.executable, "-m", "leveret.demo.roles.relay", plan, "JFK", "1"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        ready = json.loads(process.stdout.readline())
        assert ready["port"] > 0
        for order in ("cut", "restore"):
            process.stdin.write(f"{order}\n")
            assert json.loads(process.stdout.readline()) == {"reset": 0}
        process.stdin.close()
        assert process.wait(30) == 0
