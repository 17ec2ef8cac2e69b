"""The asyncio and the blocking client against a scripted server that does what live brokers do only in trouble."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import ClassVar

import pytest

from leveret.client import BlockingConnection, Channel, ConnectionClosed, ConsumerCancelled, connect
from leveret.wire import grammar
from leveret.wire.frames import FRAME_METHOD, PROTOCOL_HEADER, FrameReader
from leveret.wire.grammar import MethodSpec
from leveret.wire.method import decode_method, method_frame

Script = Callable[["Peer", str], None]


class Peer:
    """The server's side of one connection. It answers opening and closing; a script does the rest."""

    ANSWERS: ClassVar[dict[str, list[tuple[MethodSpec, dict[str, object]]]]] = {
        "connection.start-ok": [(grammar.CONNECTION_TUNE, {"channel_max": 10, "frame_max": 8192, "heartbeat": 1})],
        "connection.open": [(grammar.CONNECTION_OPEN_OK, {})],
        "connection.close": [(grammar.CONNECTION_CLOSE_OK, {})],
        "channel.open": [(grammar.CHANNEL_OPEN_OK, {})],
        "channel.close": [(grammar.CHANNEL_CLOSE_OK, {})],
        "confirm.select": [(grammar.CONFIRM_SELECT_OK, {})],
        "basic.qos": [(grammar.BASIC_QOS_OK, {})],
    }

    def __init__(self, stream: socket.socket) -> None:
        self.stream = stream

    def say(self, spec: MethodSpec, channel: int = 0, **values: object) -> None:
        self.stream.sendall(method_frame(channel, spec, **values))

    def serve(self, script: Script) -> None:
        reader = FrameReader(0)
        assert self.stream.recv(8) == PROTOCOL_HEADER
        self.say(grammar.CONNECTION_START, version_minor=9, mechanisms=b"PLAIN", locales=b"en_US")
        while data := self.stream.recv(65536):
            reader.feed(data)
            while (frame := reader.next()) is not None:
                name = decode_method(frame.payload).name if frame.kind == FRAME_METHOD else str(frame.kind)
                for spec, values in self.ANSWERS.get(name, []):
                    self.say(spec, frame.channel, **values)
                script(self, name)


@contextmanager
def server(script: Script) -> Iterator[str]:
    """Run a server for one connection; yield its URL."""

    def run() -> None:
        stream, _ = listener.accept()
        with stream:
            try:
                Peer(stream).serve(script)
            except OSError:
                return  # the client has cut the connection, as some tests want

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=run)
        thread.start()
        yield f"amqp://127.0.0.1:{listener.getsockname()[1]}/"
        thread.join(60)
        assert not thread.is_alive()


class Blocking:
    """Blocks publishers at the first publish, until `release` is set."""

    def __init__(self) -> None:
        self.published = threading.Event()
        self.release = threading.Event()
        self.was_released = False

    def __call__(self, peer: Peer, name: str) -> None:
        if name == "basic.publish" and not self.published.is_set():
            peer.say(grammar.CONNECTION_BLOCKED, reason="low on memory")
            self.published.set()
            self.release.wait(60)
            self.was_released = True
            peer.say(grammar.CONNECTION_UNBLOCKED)


async def test_drain_waits_while_publishers_are_blocked() -> None:
    script = Blocking()
    with server(script) as url:
        async with await connect(url, reconnect=False) as connection:
            told: asyncio.Queue[str | None] = asyncio.Queue()
            connection.on_blocked(told.put_nowait)
            channel = await connection.channel()
            channel.publish(b"x", "", "q")
            await channel.drain()
            assert await asyncio.wait_for(told.get(), 10) == connection.blocked == "low on memory"
            draining = asyncio.create_task(channel.drain())
            done, _ = await asyncio.wait([draining], timeout=0.05)
            assert not done
            script.release.set()
            await asyncio.wait_for(draining, 60)
            assert connection.blocked is None


def test_blocking_publish_waits_while_publishers_are_blocked() -> None:
    script = Blocking()
    with server(script) as url, BlockingConnection(url, reconnect=False) as connection:
        channel = connection.channel()
        channel.publish(b"x", "", "q")
        channel.flush()
        assert script.published.wait(60)
        while connection.blocked is None:
            channel.flush()
        threading.Timer(0.1, script.release.set).start()
        channel.publish(b"y", "", "q")
        assert script.was_released
        assert connection.blocked is None


def cancelling(peer: Peer, name: str) -> None:
    """Accept a consumer and cancel it at once."""
    if name == "basic.consume":
        peer.say(grammar.BASIC_CONSUME_OK, 1, consumer_tag="t")
        peer.say(grammar.BASIC_CANCEL, 1, consumer_tag="t", no_wait=True)


async def test_a_consumer_that_the_broker_cancels_at_once() -> None:
    with server(cancelling) as url:
        async with await connect(url, reconnect=False) as connection:
            consumer = await (await connection.channel()).consume("q", tag="t")
            with pytest.raises(ConsumerCancelled, match="'t'"):
                await asyncio.wait_for(anext(consumer), 60)


def test_a_blocking_consumer_that_the_broker_cancels_at_once() -> None:
    with server(cancelling) as url, BlockingConnection(url, reconnect=False) as connection:
        channel = connection.channel()
        channel.consume("q", tag="t", prefetch_count=1)
        with pytest.raises(ConsumerCancelled, match="'t'"):
            channel.deliveries(1, 10)


def hanging_up(peer: Peer, name: str) -> None:
    """Cut the connection at the first publish."""
    if name == "basic.publish":
        peer.stream.shutdown(socket.SHUT_RDWR)


async def unconfirmed(channel: Channel) -> list[BaseException | None]:
    await channel.confirm_select()
    confirms = [channel.publish(b"x", "", "q") for _ in range(3)]
    await asyncio.wait(confirms, timeout=60)
    return [confirm.exception() for confirm in confirms]


async def test_a_connection_that_breaks_fails_every_unconfirmed_publish() -> None:
    with server(hanging_up) as url:
        connection = await connect(url, reconnect=False)
        channel = await connection.channel()
        outcomes = await unconfirmed(channel)
        assert [type(outcome) for outcome in outcomes] == [ConnectionClosed] * 3
        assert connection.is_closed
        with pytest.raises(ConnectionClosed, match="connection lost"):
            await channel.wait_for_confirms()
        await connection.close()


def test_a_blocking_connection_that_breaks_is_told_by_the_wait() -> None:
    with server(hanging_up) as url:
        connection = BlockingConnection(url, reconnect=False)
        channel = connection.channel()
        channel.confirm_select()
        channel.publish(b"x", "", "q")
        with pytest.raises(ConnectionClosed, match="connection lost"):
            channel.wait_for_confirms(10)
        with pytest.raises(ConnectionClosed, match="connection lost"):
            channel.publish(b"x", "", "q")
        connection.close()


def silent(_peer: Peer, _name: str) -> None:
    """Send nothing unasked, not even heartbeats."""


async def test_a_silent_server_is_given_up() -> None:
    with server(silent) as url:
        connection = await connect(url, heartbeat_s=1, reconnect=False)
        channel = await connection.channel()
        await channel.confirm_select()
        with pytest.raises(ConnectionClosed, match="silent for 2 s"):
            await asyncio.wait_for(channel.publish(b"x", "", "q"), 60)
        await connection.close()


def test_a_silent_server_is_given_up_by_the_blocking_face() -> None:
    with server(silent) as url:
        connection = BlockingConnection(url, heartbeat_s=1, reconnect=False)
        channel = connection.channel()
        channel.confirm_select()
        channel.publish(b"x", "", "q")
        with pytest.raises(ConnectionClosed, match="silent for 2 s"):
            channel.wait_for_confirms(10)
        connection.close()


def test_a_confirm_that_does_not_come_in_time() -> None:
    with server(silent) as url, BlockingConnection(url, reconnect=False) as connection:
        channel = connection.channel()
        channel.confirm_select()
        channel.publish(b"x", "", "q")
        with pytest.raises(TimeoutError, match=r"1 publishes were not confirmed within 0\.05 s"):
            channel.wait_for_confirms(0.05)


async def test_a_port_that_does_not_answer() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"amqp://127.0.0.1:{listener.getsockname()[1]}/"
        with pytest.raises(ConnectionClosed, match=r"no AMQP connection to 127\.0\.0\.1:\d+ within 0\.1 s"):
            await connect(url, timeout_s=0.1, reconnect=False)
        with pytest.raises(ConnectionClosed, match=r"no AMQP connection to 127\.0\.0\.1:\d+ within 0\.1 s"):
            await asyncio.to_thread(BlockingConnection, url, timeout_s=0.1)
    with pytest.raises(ConnectionClosed, match="cannot connect to"):
        await connect(url, reconnect=False)
    with pytest.raises(ConnectionClosed, match="cannot connect to"):
        await asyncio.to_thread(BlockingConnection, url)


@contextmanager
def nobody() -> Iterator[str]:
    """Yield a host and port on which nobody listens, and which nobody else can get."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{taken.getsockname()[1]}"


def refusing(code: int, text: str) -> Script:
    """Return a script that refuses to open the virtual host."""

    def script(peer: Peer, name: str) -> None:
        if name == "connection.tune-ok":
            peer.say(grammar.CONNECTION_CLOSE, reply_code=code, reply_text=text)

    return script


@pytest.mark.parametrize("form", ["hosts", "commas", "semicolons", "list"])
@pytest.mark.parametrize("face", [connect, BlockingConnection])
async def test_hosts_are_tried_in_turn(form: str, face: Callable[..., object]) -> None:
    with nobody() as first, server(refusing(320, "closing")) as second, server(silent) as third:
        urls = [f"amqp://{first}/%2F", second, third]
        hosts = [url.removeprefix("amqp://").partition("/")[0] for url in urls]
        forms = {"hosts": f"amqp://guest:guest@{','.join(hosts)}/", "commas": ", ".join(urls)}
        given = {**forms, "semicolons": ";".join(urls)}.get(form, urls)
        if face is connect:
            await (await connect(given, reconnect=False)).close()
        else:
            (await asyncio.to_thread(BlockingConnection, given)).close()


@pytest.mark.parametrize("face", [lambda urls: asyncio.run(connect(urls, reconnect=False)), BlockingConnection])
def test_what_another_host_would_refuse_too_is_final(face: Callable[[list[str]], object]) -> None:
    with (
        nobody() as first,
        server(refusing(530, "NOT_ALLOWED")) as second,
        nobody() as third,
        pytest.raises(ConnectionClosed, match="530 NOT_ALLOWED"),
    ):
        face([f"amqp://{first}", second, f"amqp://{third}"])


async def test_hosts_of_which_none_answers() -> None:
    with nobody() as first, nobody() as second:
        urls = f"amqp://{first},{second}"
        text = f"none of 2 hosts accepted the connection: cannot connect to {first}: .*; cannot connect to {second}: "
        with pytest.raises(ConnectionClosed, match=text):
            await connect(urls, reconnect=False)
        with pytest.raises(ConnectionClosed, match=text):
            await asyncio.to_thread(BlockingConnection, urls)


async def test_a_host_that_does_not_answer_leaves_time_for_the_next_one() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener, server(silent) as other:
        urls = [f"amqp://127.0.0.1:{listener.getsockname()[1]}", other]
        await (await connect(urls, timeout_s=1, reconnect=False)).close()
    with socket.create_server(("127.0.0.1", 0)) as listener, server(silent) as other:
        url = f"amqp://127.0.0.1:{listener.getsockname()[1]},{other}"
        (await asyncio.to_thread(BlockingConnection, url, timeout_s=1)).close()


@pytest.mark.parametrize("urls", [[], "amqp://a,http://b", ["amqp://a", "b"], "amqp://a:1,b:x/"])
def test_wrong_urls(urls: str | list[str]) -> None:
    with pytest.raises(ValueError, match="URL"):
        BlockingConnection(urls, reconnect=False)
