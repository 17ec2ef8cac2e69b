"""What a broker exposes by default: addresses, files, guest, and how many connections may be in their handshake."""

from __future__ import annotations

import ipaddress
import os
import socket
import stat
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from leveret.client import BlockingConnection
from leveret.testing.processes import LeveretProcess

from ..no_tls import NO_TLS
from ..waiting import until

HANDSHAKES = 3
LISTEN = "0A"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LeveretProcess]:
    """A broker with default settings, except for limits that a test can reach."""
    directory = tmp_path_factory.mktemp("exposure")
    config = directory / "leveret.toml"
    config.write_text(f"handshake_max = {HANDSHAKES}\nconnection_max_per_address = 5\nconsumer_max_per_channel = 1\n")
    with LeveretProcess(directory / "data", arguments=["--config", str(config)], admin=True) as process:
        until(lambda: "the HTTP API is on" in process.output, "the HTTP API serves")
        yield process


def listening(pids: list[int]) -> set[str]:
    """Return the addresses that these processes listen on, according to the kernel."""
    inodes = set()
    for pid in pids:
        for number in os.listdir(f"/proc/{pid}/fd"):
            try:
                target = os.readlink(f"/proc/{pid}/fd/{number}")
            except FileNotFoundError:
                continue
            inodes.add(target.removeprefix("socket:[").removesuffix("]"))
    found = set()
    for table in ("tcp", "tcp6"):
        for line in Path("/proc/net", table).read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == LISTEN and fields[9] in inodes:
                raw = bytes.fromhex(fields[1].partition(":")[0])
                words = [raw[at : at + 4][::-1] for at in range(0, len(raw), 4)]
                found.add(str(ipaddress.ip_address(b"".join(words))))
    return found


def children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def test_nothing_listens_beyond_this_machine(broker: LeveretProcess) -> None:
    found = listening([broker.pid, *children(broker.pid)])
    assert len(found) >= 1
    assert all(ipaddress.ip_address(address).is_loopback for address in found), found


def test_files_are_for_their_owner_only(broker: LeveretProcess) -> None:
    """This holds under any umask: files contain messages and hashes of passwords."""
    with BlockingConnection(broker.url, reconnect=False) as client:
        client.channel().declare_queue("durable")
    modes = {path: stat.S_IMODE(path.lstat().st_mode) for path in broker.data_dir.rglob("*")}
    assert len(modes) > 3
    wrong = {str(path): oct(mode) for path, mode in modes.items() if mode & 0o077}
    assert not wrong
    assert stat.S_ISSOCK((broker.data_dir / "control.sock").stat().st_mode)


@pytest.mark.parametrize(("headers", "status"), [
    ({}, 200), ({"host": "localhost"}, 200), ({"host": "evil.example"}, 401), ({"x-forwarded-for": "127.0.0.1"}, 401),
])  # fmt: skip
def test_guest_is_on_this_machine(broker: LeveretProcess, headers: dict[str, str], status: int) -> None:
    url = f"{broker.admin_url}/api/whoami"
    answer = httpx.get(url, auth=("guest", "guest"), headers=headers, timeout=30, verify=NO_TLS)
    assert answer.status_code == status
    if status == 401:
        assert answer.json()["reason"] == "User can only log in via localhost"


def is_closed(silent: socket.socket) -> bool:
    """Return whether the broker has closed the connection."""
    silent.settimeout(30)
    try:
        return silent.recv(1) == b""
    except ConnectionResetError:
        return True


def from_elsewhere(broker: LeveretProcess, address: str) -> socket.socket:
    return socket.create_connection(("127.0.0.1", broker.port), 10, source_address=(address, 0))


def test_who_only_knocks_keeps_nobody_out(broker: LeveretProcess) -> None:
    """Open connections go on, others get in, and for each the oldest idle one in its handshake is closed."""
    with BlockingConnection(broker.url, reconnect=False) as client:
        knocking = [from_elsewhere(broker, f"127.0.1.{number}") for number in range(HANDSHAKES + 1)]
        assert is_closed(knocking[0])
        client.channel().declare_queue("still-served")
        BlockingConnection(broker.url, reconnect=False).close()
        assert is_closed(knocking[1])
        for each in knocking:
            each.close()
    assert "connections have not logged in yet, and handshake_max allows 3" in broker.output


def test_connections_of_one_address(broker: LeveretProcess) -> None:
    with from_elsewhere(broker, "127.0.2.1") as other:
        others = [BlockingConnection(broker.url, reconnect=False) for _ in range(5)]
        assert is_closed(from_elsewhere(broker, "127.0.0.1")), "all five have logged in"
        for client in others:
            client.close()
        other.sendall(b"AMQP\x00\x00\x09\x01")
        assert other.recv(1) == b"\x01"
