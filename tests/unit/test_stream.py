"""leveret.net.connections.stream and listening: sockets on the loop whose peers read slowly, never, or disconnect."""

from __future__ import annotations

import asyncio
import errno
import os
import random
import socket
from typing import Any

import pytest

from leveret.broker.broker import Broker, Settings
from leveret.net.connections import listening
from leveret.net.connections.admission import Admission, Admitted
from leveret.net.connections.listening import Listening
from leveret.net.connections.stream import BUFFERS_MAX, READ_OCTETS, READ_OCTETS_MAX, WRITE_HIGH_OCTETS, TcpStream

LOCAL = "127.0.0.1"


def anybody(host: str) -> Admitted | None:
    """Admit every connection."""
    return Admission(Broker(Settings(), os.urandom)).admit(host, 0)


class User:
    """Records the events of a stream."""

    def __init__(self) -> None:
        self.data = bytearray()
        self.sizes: list[int] = []
        self.heard: list[object] = []
        self.stream: TcpStream
        self.fails = False

    def connection_made(self, stream: TcpStream) -> None:
        self.stream = stream

    def data_received(self, data: bytes) -> None:
        if self.fails:
            raise LookupError("a defect")
        self.data += data
        self.sizes.append(len(data))
        self.tell()

    def eof_received(self) -> None:
        self.tell("eof")

    def pause_writing(self) -> None:
        self.tell("pause")

    def resume_writing(self) -> None:
        self.tell("resume")

    def connection_lost(self, error: Exception | None) -> None:
        self.tell("lost" if error is None else error)

    def tell(self, *what: object) -> None:
        self.heard += what

    async def until(self, condition: Any) -> None:
        async with asyncio.timeout(30):
            while not condition():  # noqa: ASYNC110
                await asyncio.sleep(0)


class Pair:
    """A stream and its peer, a plain socket with small buffers."""

    def __init__(self) -> None:
        listener = socket.create_server((LOCAL, 0))
        self.other = socket.socket()
        self.other.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
        self.other.connect(listener.getsockname())
        connection, address = listener.accept()
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 65536)
        connection.setblocking(False)
        listener.close()
        self.other.setblocking(False)
        self.user = User()
        self.stream = TcpStream(asyncio.get_running_loop(), connection, address, self.user)

    async def read(self, count: int) -> bytes:
        """Read this many octets at the peer."""
        found = bytearray()
        async with asyncio.timeout(30):
            while len(found) < count:
                try:
                    found += self.other.recv(count - len(found))
                except BlockingIOError:
                    await asyncio.sleep(0)
        return bytes(found)


async def test_what_is_read_is_handed_on_and_ends() -> None:
    pair = Pair()
    assert pair.stream.peername == pair.other.getsockname()
    assert pair.stream.sockname == pair.other.getpeername()
    pair.other.send(b"one")
    await pair.user.until(lambda: pair.user.data == b"one")
    pair.stream.pause_reading()
    pair.other.send(b"two")
    for _ in range(10):
        await asyncio.sleep(0)
    assert pair.user.data == b"one"
    pair.stream.resume_reading()
    await pair.user.until(lambda: pair.user.data == b"onetwo")
    pair.other.close()
    await pair.user.until(lambda: pair.user.heard == ["eof", "lost"])
    assert pair.stream.is_closing()
    assert pair.stream.fileno() == -1


async def test_who_says_much_is_read_in_larger_pieces() -> None:
    pair = Pair()
    ours, other = socket.socketpair()
    ours.setblocking(False)
    other.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
    sizes = []
    for filling in (READ_OCTETS - 1, READ_OCTETS, READ_OCTETS_MAX + 1):
        user = User()
        pair.stream._socket, pair.stream._user, pair.stream._read_octets = ours, user, READ_OCTETS
        other.setblocking(False)
        left = filling + READ_OCTETS_MAX
        while left:
            try:
                left -= other.send(bytes(left))
            except BlockingIOError:
                pair.stream._readable()
        while len(user.data) < filling + READ_OCTETS_MAX:
            pair.stream._readable()
        sizes.append(max(user.sizes))
        assert user.sizes[0] <= READ_OCTETS
    assert sizes[-1] > READ_OCTETS
    pair.stream.abort()


@pytest.mark.parametrize("seed", range(3))
async def test_everything_written_arrives_in_order(seed: int) -> None:
    pair, chance = Pair(), random.Random(seed)
    said = bytearray()
    for _ in range(30):
        buffers: list[bytes | memoryview] = []
        for _ in range(chance.choice((1, 1, 3, BUFFERS_MAX + 50))):
            part = chance.randbytes(chance.choice((1, 100, 5000)))
            buffers.append(memoryview(part) if chance.random() < 0.5 else part)
            said += part
        pair.stream.writelines(buffers)
    assert pair.stream.get_write_buffer_size() > 0
    assert await pair.read(len(said)) == said
    await pair.user.until(lambda: not pair.stream.get_write_buffer_size())
    assert pair.user.heard.count("pause") == pair.user.heard.count("resume")
    pair.stream.abort()


async def test_a_socket_that_takes_no_more_is_told_once_and_told_again_when_it_does() -> None:
    pair = Pair()
    piece = bytes(WRITE_HIGH_OCTETS // 2)
    for _ in range(6):
        pair.stream.writelines([piece])
    assert pair.user.heard == ["pause"]
    await pair.read(6 * len(piece))
    await pair.user.until(lambda: pair.user.heard == ["pause", "resume"])
    assert pair.stream.get_write_buffer_size() == 0
    pair.stream.abort()


async def test_close_sends_what_is_left_and_reads_nothing_more() -> None:
    pair = Pair()
    said = random.Random(1).randbytes(1 << 20)
    pair.stream.writelines([said])
    pair.stream.close()
    pair.other.send(b"too late")
    assert pair.stream.is_closing()
    assert await pair.read(len(said)) == said
    await pair.user.until(lambda: pair.user.heard == ["lost"])
    assert not pair.user.data


async def test_abort_drops_what_is_left_and_the_user_hears_of_it_later_once() -> None:
    pair = Pair()
    pair.stream.writelines([bytes(1 << 19)])
    pair.stream.abort()
    pair.stream.abort()
    pair.stream.close()
    pair.stream.writelines([b"nobody"])
    assert pair.user.heard == []
    await pair.user.until(lambda: pair.user.heard)
    assert pair.user.heard == ["lost"]
    assert pair.stream.get_write_buffer_size() == 0


async def test_a_reset_is_an_error_whoever_meets_it() -> None:
    for is_writing in (False, True):
        pair = Pair()
        if is_writing:
            pair.stream.pause_reading()
        pair.other.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        pair.other.close()
        if is_writing:
            while not pair.stream.is_closing():
                pair.stream.writelines([b"x"])
                await asyncio.sleep(0)
        await pair.user.until(lambda pair=pair: pair.user.heard)
        assert [type(what) for what in pair.user.heard] in ([ConnectionResetError], [BrokenPipeError])


async def test_a_defect_behind_it_ends_the_connection() -> None:
    pair = Pair()
    pair.user.fails = True
    reported: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context))
    pair.other.send(b"x")
    await pair.user.until(lambda: pair.user.heard == ["lost"])
    assert isinstance(reported[0]["exception"], LookupError)


async def test_a_name_with_several_addresses_is_listened_on_at_all_of_them() -> None:
    loop = asyncio.get_running_loop()
    users: list[User] = []

    def accept() -> User:
        users.append(User())
        return users[-1]

    found = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (host, 0)) for host in (LOCAL, "127.0.0.2")]

    async def getaddrinfo(*_: object, **__: object) -> object:
        return found + found[:1]

    rig = Listening(loop, anybody)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop, "getaddrinfo", getaddrinfo)
        await rig.add("amqp", accept, "both", 0)
    addresses = [opened.getsockname() for opened in rig._sockets]
    assert [host for host, _ in addresses] == [LOCAL, "127.0.0.2"]
    callers = [socket.create_connection(address) for address in addresses]
    await User().until(lambda: len(users) == 2)
    rig.suspend()
    for address in addresses:
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(address)
    for caller in callers:
        caller.close()
    for user in users:
        await user.until(lambda user=user: user.heard == ["eof", "lost"])


async def test_what_is_accepted_sends_at_once() -> None:
    rig, accepted = Listening(asyncio.get_running_loop(), anybody), []

    class Accepted(User):
        def connection_made(self, stream: TcpStream) -> None:
            super().connection_made(stream)
            with socket.socket(fileno=os.dup(stream.fileno())) as copy:
                accepted.append(copy.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))

    listener = await rig.add("amqp", Accepted, LOCAL, 0)
    with socket.create_connection((LOCAL, listener.port)):
        await User().until(lambda: accepted)
    rig.suspend()
    assert accepted[0] != 0


async def test_an_address_that_is_taken_leaves_nothing_open() -> None:
    taken = socket.create_server((LOCAL, 0))
    rig = Listening(asyncio.get_running_loop(), anybody)
    with pytest.raises(OSError, match="in use"):
        await rig.add("amqp", User, LOCAL, taken.getsockname()[1])
    assert not rig._sockets
    taken.close()


async def test_without_room_for_another_socket_it_waits_and_looks_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(listening, "NO_ROOM_S", 0.001)
    rig, users = Listening(asyncio.get_running_loop(), anybody), []
    listener = await rig.add("amqp", lambda: users.append(User()) or users[-1], LOCAL, 0)
    full = iter([OSError(errno.EMFILE, "Too many open files")])

    class Full:
        """A listening socket that once fails for lack of file descriptors."""

        def __init__(self, real: socket.socket) -> None:
            self.real = real

        def accept(self) -> object:
            for error in full:
                raise error
            return self.real.accept()

        def __getattr__(self, name: str) -> object:
            return getattr(self.real, name)

    real = rig._sockets[0]
    asyncio.get_running_loop().remove_reader(real)
    rig._sockets[0] = Full(real)
    rig._look_again(rig._sockets[0], rig._places[0][1])
    caller = socket.create_connection((LOCAL, listener.port))
    await User().until(lambda: users)
    assert "can't accept connections" in caplog.text
    rig.suspend()
    caller.close()
    await users[0].until(lambda: users[0].heard == ["eof", "lost"])


async def test_a_stream_tells_how_often_what_waited_was_taken_and_resets() -> None:
    pair = Pair()
    stream = pair.user.stream
    stream.writelines([b"x" * 1000])
    assert stream.taken == 0  # nothing was buffered
    stream.writelines([b"x" * (4 << 20)])
    unsent = stream.get_write_buffer_size()
    assert unsent > 0
    while stream.get_write_buffer_size() == unsent:
        assert stream.taken == 0
        pair.other.recv(1 << 20)
        await asyncio.sleep(0)
    assert stream.taken > 0
    stream.reset()
    await pair.user.until(lambda: "lost" in pair.user.heard)

    def is_reset() -> bool:
        try:
            while pair.other.recv(1 << 20):
                pass
        except BlockingIOError:
            return False
        except ConnectionResetError:
            return True
        raise AssertionError("it was closed, not reset")

    await pair.user.until(is_reset)
    pair.other.close()
