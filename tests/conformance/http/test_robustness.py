"""The HTTP API under load and attack: many clients at once, slow ones, and processes that are killed."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pika
import pytest

from leveret.testing.processes import LeveretProcess

from ...waiting import until
from .api import Api

GUEST = "Authorization: Basic Z3Vlc3Q6Z3Vlc3Q="


@pytest.fixture
def process() -> Iterator[LeveretProcess]:
    """A leveret for one test."""
    with LeveretProcess(admin=True) as process:
        yield process


@pytest.fixture
def api(process: LeveretProcess) -> Iterator[Api]:
    """The leveret's HTTP API, once it answers."""
    api = Api(process.admin_url)
    until(lambda: answers(api))
    yield api
    api.close()


def answers(api: Api) -> bool:
    """Return whether the API answers now."""
    try:
        return api.call("GET", "/api/whoami").status == 200
    except httpx.TransportError:
        return False


def children(pid: int) -> list[int]:
    """Return the child processes of a process."""
    return [int(child) for file in Path(f"/proc/{pid}/task").glob("*/children") for child in file.read_text().split()]


def test_a_thousand_requests_at_once(process: LeveretProcess, api: Api) -> None:
    """The client is a bare one: httpx looks at all of its connections for each request."""
    address = urlsplit(process.admin_url)

    async def ask(number: int) -> int:
        path = ("/api/overview", "/api/queues?page=1", "/api/exchanges", "/api/nodes", "/api/users")[number % 5]
        line, body = f"GET {path}", ""
        if number % 10 == 0:
            line, body = f"PUT /api/queues/%2F/q{number}", '{"durable": true}'
        headers = f"Host: {address.netloc}\r\n{GUEST}\r\nConnection: close\r\nContent-Length: {len(body)}"
        reader, writer = await asyncio.open_connection(address.hostname, address.port)
        writer.write(f"{line} HTTP/1.1\r\n{headers}\r\n\r\n{body}".encode())
        answer = await reader.read()
        writer.close()
        return int(answer.split(maxsplit=2)[1])

    async def all_of_them() -> list[int]:
        return await asyncio.gather(*map(ask, range(1000)))

    statuses = asyncio.run(all_of_them())
    assert statuses.count(201) == 100
    assert statuses.count(200) == 900
    assert len(api.call("GET", "/api/queues").json) == 100


def test_slow_clients_hold_nobody_up(process: LeveretProcess, api: Api) -> None:
    address = urlsplit(process.admin_url)
    slow = []
    for number in range(200):
        client = socket.create_connection((address.hostname, address.port))
        # some send half of the headers, some half a body, some never read
        client.sendall(
            (
                b"GET /api/over",
                b"PUT /api/queues/%2F/x HTTP/1.1\r\nHost: localhost\r\nContent-Length: 50\r\n\r\n{",
                f"GET /api/exchanges HTTP/1.1\r\nHost: localhost\r\n{GUEST}\r\n\r\n".encode() * 50,
            )[number % 3]
        )
        slow.append(client)
    assert answers(api)
    assert api.call("PUT", "/api/queues/%2F/q", {}).status == 201
    with pika.BlockingConnection(pika.URLParameters(process.url)) as connection:
        assert connection.channel().queue_declare("q", passive=True).method.queue == "q"
    for client in slow:
        client.close()


def test_a_killed_api_comes_back(process: LeveretProcess, api: Api) -> None:
    assert api.call("PUT", "/api/queues/%2F/q", {"durable": True}).status == 201
    with pika.BlockingConnection(pika.URLParameters(process.url)) as connection:
        for _ in range(2):
            [child] = children(process.pid)
            os.kill(child, signal.SIGKILL)
            until(lambda child=child: child not in children(process.pid))
            until(lambda: answers(api))
            assert api.call("GET", "/api/queues/%2F/q").status == 200
        # AMQP clients of the broker were not affected
        assert connection.channel().queue_declare("q", passive=True).method.queue == "q"


def test_the_api_ends_with_a_killed_broker(process: LeveretProcess, api: Api) -> None:
    assert api.call("PUT", "/api/vhosts/kept").status == 201
    [child] = children(process.pid)
    os.kill(process.pid, signal.SIGKILL)
    until(lambda: not Path(f"/proc/{child}").exists() or "State:\tZ" in Path(f"/proc/{child}/status").read_text())
    process.kill()
    process.start()
    until(lambda: answers(api))
    assert api.call("GET", "/api/vhosts/kept").status == 200


def test_the_api_ends_with_a_stopped_broker(process: LeveretProcess, api: Api) -> None:
    [child] = children(process.pid)
    assert process.stop() == 0
    assert not Path(f"/proc/{child}").exists()
    assert not answers(api)
    assert "Traceback" not in process.output
    process.start()
    until(lambda: answers(api))


def test_a_stopped_api_does_not_stop_the_broker(process: LeveretProcess, api: Api) -> None:
    [child] = children(process.pid)
    os.kill(child, signal.SIGSTOP)
    try:
        with pika.BlockingConnection(pika.URLParameters(process.url)) as connection:
            channel = connection.channel()
            channel.queue_declare("q")
            channel.confirm_delivery()
            channel.basic_publish("", "q", b"x")
    finally:
        os.kill(child, signal.SIGCONT)
    assert api.call("GET", "/api/queues/%2F/q").json["messages"] == 1
