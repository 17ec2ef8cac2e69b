"""Connections from the same machine are not paced; others keep the system's congestion control."""

import asyncio
import socket
from pathlib import Path

import pytest

from leveret import tcp_settings
from leveret.broker.broker import Broker, Settings
from leveret.client import BlockingConnection, connect
from leveret.net.connections.admission import Admission
from leveret.net.connections.listening import Listening

SYSTEM = Path("/proc/sys/net/ipv4/tcp_congestion_control").read_text().strip()


def control(connection: socket.socket) -> str:
    return connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16).rstrip(b"\0").decode()


class Seen(asyncio.Protocol):
    def __init__(self, made: asyncio.Event) -> None:
        self.made = made
        self.stream: object = None

    def connection_made(self, stream: object) -> None:
        self.stream = stream
        self.made.set()


@pytest.mark.parametrize(
    ("host", "expected"), [("127.0.0.1", "reno"), ("0.0.0.0", SYSTEM)], ids=["within", "elsewhere"]
)
def test_what_a_listener_accepts(host: str, expected: str) -> None:
    async def accepted() -> str:
        made = asyncio.Event()
        user = Seen(made)
        admission = Admission(Broker(Settings(), bytes))
        listening = Listening(asyncio.get_running_loop(), lambda host: admission.admit(host, 0))
        listener = await listening.add("amqp", lambda: user, host, 0)
        with socket.create_connection(("127.0.0.1", listener.port)):
            await made.wait()
            found = control(user.stream._socket)
            user.stream.abort()
        listening.suspend()
        return found

    assert asyncio.run(accepted()) == expected


async def test_the_clients_connections(broker: str) -> None:
    async with await connect(broker) as connection:
        assert control(connection._stream._transport.get_extra_info("socket")) == "reno"
    with BlockingConnection(broker) as blocking:
        assert control(blocking._stream.socket) == "reno"


@pytest.mark.parametrize("address", ["127.0.0.1", "127.8.9.1", "::1"])
def test_within_the_machine(address: str) -> None:
    with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET) as endpoint:
        tcp_settings.quicken(endpoint, address)
        assert control(endpoint) == "reno"


@pytest.mark.parametrize("address", ["192.0.2.1", "0.0.0.0", "::", "fe80::1%lo", "2001:db8::1"])
def test_to_other_machines(address: str) -> None:
    with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET) as endpoint:
        tcp_settings.quicken(endpoint, address)
        assert control(endpoint) == SYSTEM


def test_a_system_that_has_none_of_it() -> None:
    with socket.socket(socket.AF_UNIX) as endpoint:
        tcp_settings.quicken(endpoint, "127.0.0.1")  # not TCP: the system refuses
