"""Which sockets are admitted, and which are closed to make room."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leveret.broker.broker import Broker, Settings
from leveret.net.alarms import Alarms, Gauges, ResourceLimits
from leveret.net.connections.admission import TELL_US, Admission, Admitted
from leveret.net.connections.by_address import ByAddress
from leveret.net.connections.certificates import Certificates
from leveret.net.server import Server
from leveret.store.disk import MemoryDisk
from leveret.store.journal import Journal
from leveret.store.reserve import Reserve
from leveret.store.segment import SegmentStore
from leveret.store.streams import StreamStore
from leveret.wire.frames import PROTOCOL_HEADER

from .test_tls import write_pair

LOCAL = "127.0.0.1"


class Socket:
    """A socket that holds a place."""

    def __init__(self, place: Admitted) -> None:
        self.is_open = True
        self.place = place
        place.socket = self

    def abort(self) -> None:
        self.is_open = False
        self.place.leave()


def admission(sockets_max: int | None = None, **quotas: int) -> Admission:
    return Admission(Broker(Settings(quotas=quotas), bytes), sockets_max)


def come(door: Admission, *hosts: str, now_us: int = 0) -> list[Socket]:
    """Let one socket connect from each of these addresses; return the admitted ones."""
    return [Socket(place) for host in hosts if (place := door.admit(host, now_us)) is not None]


def test_a_newcomer_gets_the_place_of_the_oldest_of_the_address_that_has_most() -> None:
    door = admission(handshake_max=4)
    idle = come(door, "10.0.0.2", "10.0.0.1", "10.0.0.1", "10.0.0.1")
    [newcomer] = come(door, "10.0.0.3")
    assert [each.is_open for each in idle] == [True, False, True, True]
    [another] = come(door, "10.0.0.1")
    assert [each.is_open for each in idle] == [True, False, False, True]
    assert newcomer.is_open
    assert another.is_open
    assert door.knocking.count == door.inside.count == 4


def test_of_addresses_that_have_the_same_number_the_first_gives_way() -> None:
    door = admission(handshake_max=2)
    idle = come(door, "10.0.0.1", "10.0.0.2", "10.0.0.3")
    assert [each.is_open for each in idle] == [False, True, True]


def test_a_network_of_ipv6_is_one_address() -> None:
    door = admission(handshake_max=3)
    idle = come(door, "2001:db8:0:1::1", "2001:db8::1", "2001:db8::2", "2001:db8:0:2::1")
    assert [each.is_open for each in idle] == [True, False, True, True]


def test_who_has_logged_in_gives_way_to_nobody() -> None:
    door = admission(handshake_max=2, sockets_max=3)
    inside = come(door, "10.0.0.1", "10.0.0.1")
    for each in inside:
        each.place.logged_in()
    come(door, *["10.0.0.1"] * 5)
    assert all(each.is_open for each in inside)
    assert (door.inside.count, door.knocking.count) == (3, 1)
    for each in come(door, "10.0.0.2"):
        each.place.logged_in()
    assert come(door, "10.0.0.3") == [], "files are kept for the journal"
    inside[0].abort()
    assert come(door, "10.0.0.3")


def test_a_place_is_free_as_soon_as_its_socket_is_closed() -> None:
    door = admission(handshake_max=1)
    [first] = come(door, "10.0.0.1")
    first.abort()
    first.abort()
    assert (door.inside.count, door.knocking.count) == (0, 0)
    [second], [third] = come(door, "10.0.0.1"), come(door, "10.0.0.2")
    assert (second.is_open, third.is_open) == (False, True)


def test_limits_of_none_let_nobody_in() -> None:
    for door in (admission(handshake_max=0), admission(sockets_max=0), admission(connection_max_per_address=0)):
        assert come(door, "10.0.0.1") == []


def test_connections_of_an_address() -> None:
    """Logged-in connections stay; others are closed for new ones, even of their own address."""
    door = admission(connection_max_per_address=2)
    first, second = come(door, "10.0.0.1", "10.0.0.1")
    first.place.logged_in()
    [third] = come(door, "10.0.0.1")
    assert (first.is_open, second.is_open) == (True, False)
    third.place.logged_in()
    assert come(door, "10.0.0.1") == []
    assert come(door, "10.0.0.2")
    third.abort()
    assert come(door, "10.0.0.1")


def test_one_line_stands_for_many(caplog: pytest.LogCaptureFixture) -> None:
    door = admission(handshake_max=1)
    for now_us in (0, 0, 1, 2, TELL_US):
        come(door, "10.0.0.1", now_us=now_us)
    refusing = admission(sockets_max=0)
    for now_us in (0, 1, 2, TELL_US):
        come(refusing, "10.0.0.1", now_us=now_us)
    assert [text.split(":")[1] for text in caplog.messages] == [
        " closed to make room for a new connection, since it has not logged in yet",
        " closed to make room for a new connection, since it has not logged in yet",
        " closed at once",
        " closed at once",
    ]
    assert "(3 connections since the last message like this one)" in caplog.messages[1]
    assert "(3 connections since the last message like this one)" in caplog.messages[3]
    assert refusing._broker.refusals == {"limit": 4}


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 3), st.integers(0, 4))))
def test_the_address_with_most_is_found_and_nothing_is_kept_of_who_has_gone(
    steps: list[tuple[bool, int, int]],
) -> None:
    table: ByAddress[int] = ByAddress()
    there: dict[str, list[int]] = {}
    for is_new, host, item in steps:
        address = str(host)
        items = there.setdefault(address, [])
        if is_new and item not in items:
            items.append(item)
            table.add(address, item)
        elif not is_new:
            table.remove(address, item)
            if item in items:
                items.remove(item)
        most = max(map(len, there.values()))
        assert table.count == sum(map(len, there.values()))
        assert list(table.of_the_most()) in [each for each in there.values() if len(each) == most]
        assert set(table._of) == {address for address, items in there.items() if items}
        assert sum(map(len, table._with.values())) == len(table._of)


# -- sockets -----------------------------------------------------------------------------------------------------------


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    """Run a server with room for three handshakes."""
    disk = MemoryDisk()
    alarms = Alarms(ResourceLimits(0, 1), Gauges(lambda: 1, lambda: 0, lambda: None))
    segments, reserve = SegmentStore(disk, "/segments"), Reserve(disk, "/reserve")
    broker = Broker(Settings(quotas={"handshake_max": 3}), os.urandom)
    server = Server(broker, Journal(disk, "/journal"), segments, StreamStore(disk, "/streams"), reserve, alarms)
    server.recover()
    running = asyncio.create_task(server.run())
    yield server
    server.stopping.set()
    await running


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(30):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0)


@pytest.mark.parametrize("sent", [b"", PROTOCOL_HEADER, b"\x16\x03\x01\x02\x00"], ids=["silent", "amqp", "tls"])
async def test_sockets_that_stay_idle_keep_nobody_out(
    server: Server, sent: bytes, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Holds for sockets in the middle of a TLS handshake, too."""
    if sent.startswith(b"\x16"):
        address = await server.listen_tls(LOCAL, 0, Certificates(write_pair(tmp_path)))
    else:
        address = await server.listen(LOCAL, 0)
    pairs = []
    for _ in range(10):
        pairs.append(await asyncio.open_connection(*address))
        pairs[-1][1].write(sent)
    for reader, _ in pairs[:7]:
        while await reader.read(4096):
            pass
    assert server.admission.knocking.count == server.admission.inside.count == 3
    await until(lambda: len(server._protocols) + len(server._tls.waiting if server._tls else ()) == 3)
    told = [text for text in caplog.messages if "certificate" not in text]
    assert len(told) == 1, "one line, and no other of those that were closed"
    for _, writer in pairs:
        writer.close()
    await until(lambda: not server.admission.inside.count)


async def test_a_place_and_its_descriptor_are_free_in_the_turn_in_which_the_socket_ends(server: Server) -> None:
    address = await server.listen(LOCAL, 0)
    with socket.create_connection(address):
        await until(lambda: server._protocols)
        [protocol] = server._protocols.values()
        protocol.transport.abort()
        assert (server.admission.inside.count, server.admission.knocking.count) == (0, 0)
        assert protocol.transport.fileno() == -1
    await until(lambda: not server._protocols)
