"""Clients of the HTTP API that are slow or idle."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
import uvicorn

from leveret.admin import body
from leveret.admin.__main__ import context_of
from leveret.admin.handshake import Loop
from leveret.admin.idle_timeout import IdleTimeout
from leveret.net.connections.certificates import Certificates

from .admin import Browser
from .test_tls import write_pair

WHOAMI = b"GET /api/whoami HTTP/1.1\r\nhost: x\r\nauthorization: Basic cm9vdDpzZWNyZXQ=\r\n\r\n"


class Impatient(IdleTimeout):
    period_s = 0.05


@pytest.fixture
async def address() -> AsyncIterator[tuple[str, int]]:
    """Run a server on a fake control; yield its address."""
    listener = socket.create_server(("127.0.0.1", 0))
    config = uvicorn.Config(Browser().api, http=Impatient, ws="none", lifespan="off", log_config=None)
    server = uvicorn.Server(config)
    serving = asyncio.create_task(server._serve([listener]))
    yield listener.getsockname()
    server.should_exit = True
    await serving


@pytest.mark.parametrize("sent", [b"", b"GET /api/whoami HT", WHOAMI[:-2]])
async def test_half_a_request_is_not_waited_for(address: tuple[str, int], sent: bytes) -> None:
    reader, writer = await asyncio.open_connection(*address)
    writer.write(sent)
    with contextlib.suppress(ConnectionError):
        assert await reader.read() == b""
    writer.close()


async def test_half_a_second_request_is_not_waited_for(address: tuple[str, int]) -> None:
    reader, writer = await asyncio.open_connection(*address)
    writer.write(WHOAMI + WHOAMI[:-2])
    with contextlib.suppress(ConnectionError):
        answer = await reader.readuntil(b"}")
        assert b'"root"' in answer
        assert await reader.read() == b""
    writer.close()


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(30):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0)


@pytest.fixture
async def crowded(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[tuple[tuple[str, int], Browser]]:
    """Run a server with room for three connections; yield its address and the browser whose API it serves."""
    monkeypatch.setattr(IdleTimeout, "connections_max", 4)
    browse, listener = Browser(), socket.create_server(("127.0.0.1", 0))
    config = uvicorn.Config(
        browse.api, http=IdleTimeout, ws="none", lifespan="off", log_config=None, limit_concurrency=4
    )  # fmt: skip
    server = uvicorn.Server(config)
    serving = asyncio.create_task(server._serve([listener]))
    yield listener.getsockname(), browse
    server.should_exit = True
    server.force_exit = True
    await serving
    await until(lambda: not IdleTimeout.sockets.count)


async def another_gets_in(
    port: int,
    idle: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]],
    gone: int,
    context: ssl.SSLContext | None = None,
) -> None:
    """Connect from another address and get two answers; check that the `gone` oldest idle connections were closed.

    Closes all connections at the end.
    """
    reader, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=("127.0.0.9", 0), ssl=context)
    for _ in range(2):
        writer.write(WHOAMI)
        assert b"200 OK" in await reader.readuntil(b"}")
    for each, _ in idle[:gone]:
        with contextlib.suppress(ConnectionError):
            assert await each.read() == b""
    assert IdleTimeout.sockets.count == 3
    for _, other in (*idle, (reader, writer)):
        other.close()


async def test_idle_connections_keep_nobody_out(
    crowded: tuple[tuple[str, int], Browser], caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Idle connections are silent ones, ones with half a request or half a body, and ones that have had an answer."""
    monkeypatch.setattr(IdleTimeout, "_told_s", float("-inf"))
    address, _ = crowded
    form = b"POST /api/login HTTP/1.1\r\nhost: x\r\ncontent-type: application/x-www-form-urlencoded\r\n"
    idle = []
    for sent in (b"", WHOAMI[:-2], form + b"content-length: 9\r\n\r\nx", b"", b"", b""):
        idle.append(await asyncio.open_connection(*address))
        idle[-1][1].write(sent)
        await until(lambda: IdleTimeout.sockets.count == min(len(idle), 3))
    await another_gets_in(address[1], idle, 4)
    assert len([text for text in caplog.messages if "to make room for another" in text]) == 1


def test_half_handshakes_keep_nobody_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """TLS handshakes count as connections too, so their number is bounded."""
    monkeypatch.setattr(IdleTimeout, "connections_max", 4)
    with asyncio.Runner(loop_factory=Loop) as runner:
        runner.run(_among_half_handshakes(context_of(Certificates(write_pair(tmp_path)))))


async def _among_half_handshakes(context: ssl.SSLContext) -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    config = uvicorn.Config(
        Browser().api, http=IdleTimeout, ws="none", lifespan="off", log_config=None, limit_concurrency=4,
        ssl_context_factory=lambda config, default: context,
    )  # fmt: skip
    server = uvicorn.Server(config)
    serving = asyncio.create_task(server._serve([listener]))
    address = listener.getsockname()
    half = []
    for sent in (b"", b"\x16\x03\x01\x02\x00", b"", b"", b""):
        half.append(await asyncio.open_connection(*address))
        half[-1][1].write(sent)
        await until(lambda: IdleTimeout.sockets.count == min(len(half), 3))
    await another_gets_in(address[1], half, 3, ssl._create_unverified_context())
    await until(lambda: not IdleTimeout.sockets.count)
    server.should_exit = server.force_exit = True
    await serving


async def test_a_request_that_is_worked_at_gives_way_to_nobody(crowded: tuple[tuple[str, int], Browser]) -> None:
    address, browse = crowded
    goes_on = asyncio.Event()
    answer = browse.control.call

    async def slowly(*arguments: Any) -> Any:
        await goes_on.wait()
        return await answer(*arguments)

    browse.control.call = slowly  # type: ignore[method-assign]
    reader, writer = await asyncio.open_connection(*address)
    writer.write(WHOAMI)
    await until(lambda: [each for each in IdleTimeout.sockets.items("127.0.0.1") if not each.is_waited_for])
    others = [await asyncio.open_connection(*address) for _ in range(5)]
    for gone, _ in others[:3]:
        with contextlib.suppress(ConnectionError):
            assert await gone.read() == b""
    goes_on.set()
    assert b"200 OK" in await reader.readuntil(b"}")
    for _, other in (*others, (reader, writer)):
        other.close()


async def test_a_body_that_does_not_come(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(body, "BODY_S_MAX", 0.05)
    browse = Browser()
    browse.control.answers["get_queue"] = lambda _: {"name": "q"}

    async def slowly() -> AsyncIterator[bytes]:
        yield b"{"
        await asyncio.Event().wait()

    sent: list[Any] = []
    messages = slowly()

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": await anext(messages), "more_body": True}

    async def send(message: Any) -> None:
        sent.append(message)

    headers = [(b"authorization", b"Basic cm9vdDpzZWNyZXQ=")]
    path = b"/api/queues/%2F/q"
    scope = {"type": "http", "method": "PUT", "raw_path": path, "path": "/", "query_string": b"", "headers": headers}
    await browse.api(scope, receive, send)
    assert sent[0]["status"] == 408
