"""The environment of federation links in a server: transports to upstreams, direct connections, time."""

from __future__ import annotations

import asyncio
import datetime
import gc
import os
import socket
import ssl
import subprocess
import sys
import threading
import weakref
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
import trustme

from leveret.broker.broker import Broker, Settings
from leveret.client.protocol.url import Address, parse_url
from leveret.net import tcp_transport
from leveret.net.alarms import Alarms, Gauges, ResourceLimits
from leveret.net.direct import InProcessConnection
from leveret.net.links import Links
from leveret.net.server import Server
from leveret.store.disk import MemoryDisk
from leveret.store.journal import Journal
from leveret.store.reserve import Reserve
from leveret.store.segment import SegmentStore
from leveret.store.streams import StreamStore
from leveret.wire import grammar
from leveret.wire.frames import PROTOCOL_HEADER, FrameReader, content_frames
from leveret.wire.method import decode_method, method_frame
from leveret.wire.properties import Properties, encode_header


class User:
    """The user of a transport or a direct connection."""

    def __init__(self) -> None:
        self.events: asyncio.Queue[tuple[str, object]] = asyncio.Queue()  # what it heard, in order
        self.on_event: Callable[[str], None] = lambda name: None  # called within each event

    def connected(self) -> None:
        self._hear("connected", None)

    def received(self, data: bytes) -> None:
        self._hear("received", data)

    def lost(self, reason: str) -> None:
        self._hear("lost", reason)

    def answered(self, data: bytes) -> None:
        self._hear("answered", data)

    def held(self, is_held: bool) -> None:
        self._hear("held", is_held)

    def shut(self, reason: str) -> None:
        self._hear("shut", reason)

    def _hear(self, name: str, what: object) -> None:
        self.events.put_nowait((name, what))
        self.on_event(name)

    async def next(self, name: str) -> object:
        """Return the value of the next event, which must have this name."""
        found, what = await self.events.get()
        assert found == name, (found, what)
        return what

    async def methods(self, count: int) -> list[str]:
        """Return the names of the next `count` methods from the direct connection."""
        reader, found = FrameReader(0), []
        while len(found) < count:
            data = await self.next("answered")
            assert isinstance(data, bytes)
            reader.feed(data)
            while (frame := reader.next()) is not None:
                found.append(decode_method(frame.payload).name)
        return found


@pytest.fixture
def free_octets() -> list[int]:
    """The free octets of the disk, in a list that tests change."""
    return [1 << 30]


@pytest.fixture
async def server(free_octets: list[int]) -> AsyncIterator[Server]:
    disk = MemoryDisk()
    alarms = Alarms(ResourceLimits(1 << 20, 1), Gauges(lambda: free_octets[0], lambda: 0, lambda: None))
    segments, reserve = SegmentStore(disk, "/segments"), Reserve(disk, "/reserve")
    streams = StreamStore(disk, "/streams")
    server = Server(Broker(Settings(), os.urandom), Journal(disk, "/journal"), segments, streams, reserve, alarms)
    server.recover()
    running = asyncio.create_task(server.run())
    await server.serving.wait()
    yield server
    server.stopping.set()
    await running


@pytest.fixture
def links(server: Server) -> Links:
    return Links(server)


async def address_of(server: Server, options: str = "") -> Address:
    host, port = await server.listen("127.0.0.1", 0)
    return parse_url(f"amqp://{host}:{port}{options}")


def enter(links: Links, user: User, has_confirms: bool = True) -> InProcessConnection:
    """Open a direct connection, and declare the durable queue q."""
    vhost = links.server.broker.vhosts["/"]
    direct = links.enter(vhost, "Federation link (upstream: up, policy: all)", has_confirms, user)
    direct.write(method_frame(1, grammar.QUEUE_DECLARE, queue="q", durable=True))
    return direct


def publish(body: bytes) -> bytes:
    header = encode_header(Properties(delivery_mode=2), len(body))
    method = method_frame(1, grammar.BASIC_PUBLISH, exchange="", routing_key="q")
    return method + content_frames(1, header, body, 131072)


def waiting(server: Server) -> int:
    return int(server.broker.vhosts["/"].queues["q"].count())


# -- transports --------------------------------------------------------------------------------------------------------


async def test_a_line_carries_bytes_both_ways(server: Server, links: Links) -> None:
    user = User()
    line = links.dial(await address_of(server), user)
    await user.next("connected")
    line.write(PROTOCOL_HEADER)
    data = await user.next("received")
    assert isinstance(data, bytes)
    assert data[7:11] == b"\x00\x0a\x00\x0a"  # connection.start
    line.close()


async def test_a_line_within_the_machine_is_not_paced(
    server: Server, links: Links, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = await address_of(server)
    seen: list[tuple[int, str]] = []
    settings = tcp_transport.tcp_settings
    monkeypatch.setattr(settings, "quicken", lambda endpoint, address: seen.append((endpoint.type, address)))
    user = User()
    line = links.dial(address, user)
    await user.next("connected")
    assert seen == [(socket.SOCK_STREAM, "127.0.0.1")]
    line.close()


async def test_a_host_is_found_by_its_name(server: Server, links: Links) -> None:
    user = User()
    port = (await address_of(server)).port
    links.dial(parse_url(f"amqp://localhost:{port}"), user).pause(False)
    await user.next("connected")


@pytest.mark.parametrize("host", ["no-such-host.invalid", "a..b", "x" * 70])
async def test_a_name_that_nobody_knows_is_a_reason(links: Links, host: str) -> None:
    user = User()
    links.dial(parse_url(f"amqp://guest:secret@{host}:5672"), user)
    reason = await user.next("lost")
    assert str(reason).startswith(f"cannot connect to {host}:5672: ")
    assert "secret" not in str(reason)


async def test_a_port_where_nobody_listens_is_a_reason(server: Server, links: Links) -> None:
    address = await address_of(server)
    server.listening.suspend()
    user = User()
    links.dial(address, user)
    assert await user.next("lost") == f"cannot connect to 127.0.0.1:{address.port}: Connection refused"


async def test_an_upstream_that_says_nothing_is_given_up(links: Links) -> None:
    listener = await asyncio.start_server(lambda reader, writer: None, "127.0.0.1", 0)
    port = listener.sockets[0].getsockname()[1]
    user = User()
    links.dial(parse_url(f"amqps://127.0.0.1:{port}?connection_timeout=20"), user)
    assert await user.next("lost") == f"no connection to 127.0.0.1:{port} within 20 ms"
    listener.close()


async def test_an_upstream_that_hangs_up_is_lost_once(links: Links) -> None:
    listener = await asyncio.start_server(lambda reader, writer: writer.close(), "127.0.0.1", 0)
    user = User()
    line = links.dial(parse_url(f"amqp://127.0.0.1:{listener.sockets[0].getsockname()[1]}"), user)
    await user.next("connected")
    assert await user.next("lost") == "the upstream closed the connection"
    line.write(b"too late")
    line.close()
    assert user.events.empty()
    listener.close()


async def test_a_line_that_is_paused_hears_nothing_until_it_goes_on(server: Server, links: Links) -> None:
    user, other = User(), User()
    line = links.dial(await address_of(server), user)
    await user.next("connected")
    line.pause(True)
    line.write(PROTOCOL_HEADER)
    # another transport does the same meanwhile, so the answer to the first one is there, too
    links.dial(await address_of(server), other).pause(True)
    await other.next("connected")
    assert user.events.empty()
    line.pause(False)
    await user.next("received")


async def test_what_was_written_before_the_close_arrives(links: Links) -> None:
    arrived: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

    async def listen(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"unread" * 100_000)
        arrived.set_result(await reader.read())
        writer.close()

    listener = await asyncio.start_server(listen, "127.0.0.1", 0)
    user = User()
    line = links.dial(parse_url(f"amqp://127.0.0.1:{listener.sockets[0].getsockname()[1]}"), user)
    await user.next("connected")
    line.pause(True)
    line.write(b"last words" * 300_000)
    line.close()
    line.write(b"nothing more")
    assert await arrived == b"last words" * 300_000
    assert user.events.empty()
    listener.close()


async def test_a_line_is_closed_though_the_upstream_was_quicker(links: Links) -> None:
    """For example one that refuses a login: it hangs up before it is answered, so the answer breaks the connection."""
    closed = []

    def answer(name: str) -> None:
        if name == "received":
            line.write(b"close-ok")
            line.close()
            closed.append(name)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setblocking(False)
        user = User()
        user.on_event = answer
        line = links.dial(parse_url(f"amqp://127.0.0.1:{listener.getsockname()[1]}"), user)
        connection, _ = await asyncio.get_running_loop().sock_accept(listener)
        connection.send(b"close")
        connection.close()
        await user.next("connected")
        await user.next("received")
    assert closed == ["received"]


async def test_a_line_that_is_closed_while_it_is_dialled_is_not_heard_of(server: Server, links: Links) -> None:
    user, other = User(), User()
    address = await address_of(server)
    links.dial(address, user).close()
    links.dial(address, other)
    await other.next("connected")
    assert user.events.empty()


async def test_an_upstream_that_reads_nothing_is_lost(links: Links, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tcp_transport, "UNSENT_OCTETS_MAX", 1 << 20)
    accepted: list[asyncio.Transport] = []

    class Deaf(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            assert isinstance(transport, asyncio.Transport)
            transport.pause_reading()
            accepted.append(transport)

    listener = await asyncio.get_running_loop().create_server(Deaf, "127.0.0.1", 0)
    user = User()
    line = links.dial(parse_url(f"amqp://127.0.0.1:{listener.sockets[0].getsockname()[1]}"), user)
    await user.next("connected")
    while user.events.empty():
        line.write(bytes(1 << 20))
        await asyncio.sleep(0)
    assert await user.next("lost") == "send buffer limit exceeded: the upstream does not read"
    accepted[0].abort()
    listener.close()


async def test_a_defect_of_a_link_costs_its_line_and_nothing_else(
    server: Server, links: Links, caplog: pytest.LogCaptureFixture
) -> None:
    user, other = User(), User()
    address = await address_of(server)
    line, second = links.dial(address, user), links.dial(address, other)
    await user.next("connected")
    await other.next("connected")

    def fail(name: str) -> None:
        if name == "received":
            raise ZeroDivisionError

    user.on_event = fail
    line.write(PROTOCOL_HEADER)
    await user.next("received")
    assert await user.next("lost") == "internal error"
    second.write(PROTOCOL_HEADER)
    await other.next("received")
    assert "federation link: internal error" in caplog.text


# -- TLS ---------------------------------------------------------------------------------------------------------------


async def listen_with_tls(authority: trustme.CA, name: str, days: int) -> asyncio.Server:
    """Listen as an upstream that says hello, with a certificate for this name that ends in `days` days."""
    until = datetime.datetime.now(datetime.UTC) + datetime.timedelta(days=days)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert(name, not_before=until - datetime.timedelta(days=60), not_after=until).configure_cert(context)
    return await asyncio.start_server(lambda _, writer: writer.write(b"hello"), "127.0.0.1", 0, ssl=context)


@pytest.mark.parametrize(
    ("name", "days", "options", "reason"),
    [
        ("127.0.0.1", 30, "cacertfile={ca}", None),
        ("127.0.0.1", 30, "cacertfile={ca}&verify=verify_peer", None),
        ("127.0.0.1", 30, "", "unable to get local issuer certificate"),
        ("127.0.0.1", 30, "cacertfile={other}", "unable to get local issuer certificate"),
        ("localhost", 30, "cacertfile={ca}", "IP address mismatch, certificate is not valid for '127.0.0.1'"),
        ("localhost", 30, "cacertfile={ca}&server_name_indication=localhost", None),
        (
            "localhost",
            30,
            "cacertfile={ca}&server_name_indication=other",
            "Hostname mismatch",
        ),
        ("localhost", 30, "cacertfile={ca}&server_name_indication=disable", None),
        ("localhost", 30, "server_name_indication=disable", "unable to get local issuer certificate"),
        ("127.0.0.1", -1, "cacertfile={ca}", "certificate has expired"),
        ("localhost", -1, "verify=verify_none", None),
    ],
)
async def test_who_an_upstream_is_must_be_proven(
    links: Links, tmp_path: Path, name: str, days: int, options: str, reason: str | None
) -> None:
    authority, user = trustme.CA(), User()
    listener = await listen_with_tls(authority, name, days)
    port = listener.sockets[0].getsockname()[1]
    ca, other = tmp_path / "ca.pem", tmp_path / "other.pem"
    authority.cert_pem.write_to_path(str(ca))
    trustme.CA().cert_pem.write_to_path(str(other))
    query = options.format(ca=ca, other=other)
    line = links.dial(parse_url(f"amqps://127.0.0.1:{port}?{query}"), user)
    if reason is None:
        await user.next("connected")
        assert await user.next("received") == b"hello"
    else:
        found = str(await user.next("lost"))
        assert found.startswith(f"TLS with 127.0.0.1:{port} failed: ")
        assert reason in found
    line.close()
    listener.close()


async def test_a_file_that_is_not_there_is_a_reason(links: Links, tmp_path: Path) -> None:
    user = User()
    links.dial(parse_url(f"amqps://127.0.0.1:1?cacertfile={tmp_path}/none.pem"), user)
    reason = await user.next("lost")
    assert reason == f"cannot connect to 127.0.0.1:1: cacertfile {tmp_path}/none.pem: No such file or directory"


# -- direct connections ------------------------------------------------------------------------------------------------


async def test_a_publish_is_confirmed_in_a_later_call_when_it_is_on_disk(server: Server, links: Links) -> None:
    user = User()
    direct = enter(links, user)
    direct.write(publish(b"one") + publish(b"two"))
    assert user.events.empty()
    server.end_turn()
    assert await user.methods(2) == ["queue.declare-ok", "basic.ack"]
    assert server.broker.log.synced == server.broker.log.batch - 1
    assert waiting(server) == 2


async def test_all_that_is_written_for_one_read_is_one_batch(server: Server, links: Links) -> None:
    user = User()
    direct = enter(links, user)
    server.end_turn()
    await user.methods(1)
    line_user = User()
    line = links.dial(await address_of(server), line_user)
    await line_user.next("connected")
    before = server.broker.log.batch
    turns = server.broker.log.measures.turn_us
    seen: list[tuple[int, int]] = []  # turns that these publishes took, and the batch after them

    def forward(name: str) -> None:
        ended = sum(turns.counts)
        direct.write(publish(b"one"))
        direct.write(publish(b"two"))
        seen.append((sum(turns.counts) - ended, server.broker.log.batch))

    line_user.on_event = forward
    line.write(PROTOCOL_HEADER)
    assert await user.methods(1) == ["basic.ack"]  # multiple
    assert seen == [(0, before)]
    assert server.broker.log.batch == before + 1


async def test_a_door_is_held_while_an_alarm_is_on(server: Server, links: Links, free_octets: list[int]) -> None:
    user = User()
    direct = enter(links, user)
    server.end_turn()
    await user.methods(1)
    free_octets[0] = 0
    server._check_alarms()
    direct.write(publish(b"waits"))
    server.end_turn()
    assert await user.next("held") is True
    assert waiting(server) == 0
    free_octets[0] = 1 << 30
    server._check_alarms()
    assert await user.next("held") is False
    assert await user.methods(1) == ["basic.ack"]
    assert waiting(server) == 1


async def test_a_door_is_held_while_the_journal_is_behind(server: Server, links: Links) -> None:
    user = User()
    direct = enter(links, user)
    direct.write(publish(b"a publisher"))
    server.end_turn()
    await user.methods(2)
    server._pressure.journal(True)
    assert await user.next("held") is True
    server._pressure.journal(False)
    server._pressure.journal(True)
    server._pressure.journal(False)
    assert await user.next("held") is False
    server.end_turn()
    assert user.events.empty()


async def test_an_operator_closes_a_door(server: Server, links: Links) -> None:
    user = User()
    direct = enter(links, user)
    server.end_turn()
    await user.methods(1)
    assert server.peers() == [direct.peer]
    assert server.unsent_octets(direct.peer) == 0
    server.close(direct.peer, "for a reason")
    server.end_turn()
    assert await user.methods(1) == ["connection.close"]
    assert await user.next("shut") == "CONNECTION_FORCED - for a reason"
    assert server.peers() == []
    direct.write(publish(b"too late"))
    direct.close()
    server.end_turn()
    assert waiting(server) == 0
    assert user.events.empty()


async def test_a_mistake_ends_the_channel_and_is_told(server: Server, links: Links) -> None:
    user = User()
    direct = enter(links, user)
    direct.write(method_frame(1, grammar.QUEUE_DECLARE, queue="no", passive=True))
    server.end_turn()
    assert await user.methods(2) == ["queue.declare-ok", "channel.close"]
    assert server.peers() == [direct.peer]


async def test_who_leaves_is_not_heard_of_and_what_was_published_stays(
    server: Server, links: Links, caplog: pytest.LogCaptureFixture
) -> None:
    user = User()
    direct = enter(links, user)
    direct.write(publish(b"stays"))
    direct.close()
    direct.close()
    await server.settled()
    assert server.peers() == []
    assert waiting(server) == 1
    assert user.events.empty()
    assert "lost" not in caplog.text


async def test_a_door_needs_no_heartbeats_and_outlives_ticks(server: Server, links: Links) -> None:
    user = User()
    direct = enter(links, user)
    for _ in range(3):
        server.begin()
    assert server.peers() == [direct.peer]
    assert not server.broker.has_hung_up(direct.peer)


async def test_what_a_door_writes_may_take_several_turns(server: Server, links: Links) -> None:
    """A turn ends when its messages take 1 MiB. The rest follows by itself; the direct connection is held until
    then."""
    user = User()
    direct = enter(links, user)
    direct.write(b"".join(publish(bytes([65 + i % 20]) * 100_000) for i in range(40)))
    assert waiting(server) < 40
    server.end_turn()
    events = []
    while waiting(server) < 40 or (events and events[-1] != ("held", False)):
        event = await user.events.get()
        if event[0] == "held":
            events.append(event)
    assert events == [("held", True), ("held", False)]


# -- time, and the end -------------------------------------------------------------------------------------------------


async def test_later_calls_come_in_turns_of_their_own(server: Server, links: Links) -> None:
    user, calls = User(), []
    direct = enter(links, user)
    links.later(0, lambda: calls.append("first"))
    links.later(20_000, lambda: direct.write(publish(b"later")))
    never = links.later(10_000, lambda: calls.append("never"))
    links.later(0, lambda: calls.append("second"))
    assert calls == []
    never.cancel()
    assert await user.methods(2) == ["queue.declare-ok", "basic.ack"]
    assert calls == ["first", "second"]
    assert abs(links.now_us() - server.now_us()) < 1_000_000


async def test_at_an_orderly_stop_what_was_heard_is_acknowledged(server: Server, links: Links) -> None:
    """The user acknowledges upstream what is confirmed here; the acknowledgement must still go out."""
    heard: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

    async def listen(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"a message")
        heard.set_result(await reader.read())
        writer.close()

    listener = await asyncio.start_server(listen, "127.0.0.1", 0)
    line_user, user = User(), User()
    direct = enter(links, user)
    server.end_turn()
    await user.methods(1)
    line = links.dial(parse_url(f"amqp://127.0.0.1:{listener.sockets[0].getsockname()[1]}"), line_user)

    is_taken = asyncio.Event()

    def take(name: str) -> None:
        if name == "received":
            direct.write(publish(b"a message"))
            is_taken.set()

    line_user.on_event = take
    user.on_event = lambda name: line.write(b"ack" if name == "answered" else b"")
    is_slow, append = threading.Event(), server.journal.append
    server._slow_until_us = links.now_us() + 3_600_000_000  # so that the thread does it

    def append_slowly(*arguments: Any) -> Any:
        assert is_slow.wait(60)
        return append(*arguments)

    server.journal.append = append_slowly  # type: ignore[method-assign]
    await is_taken.wait()
    quiet = asyncio.create_task(links.quiesce())
    for _ in range(5):
        await asyncio.sleep(0)
    assert not quiet.done()
    is_slow.set()
    await quiet
    line.close()
    await links.gone()
    assert await heard == b"ack"
    listener.close()


def test_a_server_without_upstreams_loads_nothing_of_it() -> None:
    """Neither the links nor the client that they use."""
    program = "import leveret.cli.serve, sys; print(*[name for name in sys.modules if name.startswith('leveret.')])"
    loaded = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout.split()
    assert "leveret.net.federation" in loaded
    federation = ("leveret.federation.federator", "leveret.federation.link", "leveret.net.links")
    costly = ("leveret.client.protocol.connection_core", *federation)
    assert not set(costly) & set(loaded)


async def test_federation_begins_with_the_first_upstream(server: Server) -> None:
    assert server.federator.statuses() == []
    assert not any(do("00000000") for do in (server.federator.restart, server.federator.pause, server.federator.resume))
    definitions = server.broker.definitions
    definitions.put("parameter", {"vhost": "/", "component": "shovel", "name": "s", "value": {}})
    await asyncio.sleep(0)
    assert server.federator._federator is None
    value = {"uri": "amqp://127.0.0.1:1"}
    for name in ("one", "two"):
        definitions.put("parameter", {"vhost": "/", "component": "federation-upstream", "name": name, "value": value})
    await asyncio.sleep(0)
    begun = server.federator._federator
    assert begun is not None
    assert server.broker.watcher is begun


async def test_nothing_is_left_of_a_line_whose_upstream_cannot_be_found(
    links: Links, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is dialled again every few seconds, and the garbage collector is off."""

    class Missing(OSError):
        pass

    def look_up(address: Address) -> Any:
        raise Missing(2, "no such host")

    monkeypatch.setattr(tcp_transport, "look_up", look_up)
    gc.collect()
    gc.disable()
    user = User()
    line = weakref.ref(links.dial(parse_url("amqp://nowhere"), user))
    await user.next("lost")
    for thread in threading.enumerate():
        if thread.name == "leveret-dial":
            thread.join()  # the thread refers to the error, whose traceback refers to the transport
    for _ in range(3):
        await asyncio.sleep(0)  # the dial's task ends
    assert line() is None
    assert not [each for each in gc.get_objects() if isinstance(each, Missing)]
