"""Clients of the HTTP API that take their time."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from typing import Any

import pytest
import uvicorn

from leveret.admin import body
from leveret.admin.patience import Patient

from .admin import Browser

WHOAMI = b"GET /api/whoami HTTP/1.1\r\nhost: x\r\nauthorization: Basic cm9vdDpzZWNyZXQ=\r\n\r\n"


class Impatient(Patient):
    period_s = 0.05


@pytest.fixture
async def address() -> AsyncIterator[tuple[str, int]]:
    """Of a server on a fake control."""
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
