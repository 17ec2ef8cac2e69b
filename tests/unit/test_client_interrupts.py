"""The blocking client's socket when KeyboardInterrupt comes while it waits, and while it moves bytes."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from typing import Any
from unittest.mock import patch

import pytest

from leveret.client import BlockingConnection, ConnectionClosed
from leveret.client.protocol.url import parse_url
from leveret.client.stream import ClientSocket

from .test_client_faces import server, silent


class Polling:
    """A selector that raises KeyboardInterrupt the first time."""

    def __init__(self, polling: Any) -> None:
        self._polling = polling
        self._is_first = True

    def poll(self, *arguments: Any) -> Any:
        if self._is_first:
            self._is_first = False
            raise KeyboardInterrupt
        return self._polling.poll(*arguments)


@pytest.fixture
def stream() -> Iterator[tuple[ClientSocket, socket.socket]]:
    """A socket of the blocking client, and its other end."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        stream = ClientSocket(parse_url(f"amqp://127.0.0.1:{listener.getsockname()[1]}"), 60)
        peer, _ = listener.accept()
        with peer:
            yield stream, peer
        stream.close()


def test_what_an_interrupted_write_has_left_is_written_next_time(stream: tuple[ClientSocket, socket.socket]) -> None:
    here, peer = stream
    here._both = Polling(here._both)  # type: ignore[assignment]
    large = bytes(range(256)) * 65536
    with pytest.raises(KeyboardInterrupt):
        here.write(lambda: large, lambda _: None)
    assert here.has_unsent
    assert not here.is_torn
    received = bytearray()

    def read() -> None:
        while len(received) < len(large) + 4:
            received.extend(peer.recv(1 << 20))

    reading = threading.Thread(target=read)
    reading.start()
    here.write(lambda: b"more", lambda _: None)
    reading.join(60)
    assert received == large + b"more"


def test_an_interrupted_wait_for_the_socket_loses_nothing(stream: tuple[ClientSocket, socket.socket]) -> None:
    here, peer = stream
    here._reading = Polling(here._reading)  # type: ignore[assignment]
    read: list[bytes] = []
    with pytest.raises(KeyboardInterrupt):
        here.read(None, read.append)
    peer.sendall(b"x")
    assert here.read(None, read.append)
    assert read == [b"x"]


def test_an_interrupt_while_bytes_move_ends_the_connection(stream: tuple[ClientSocket, socket.socket]) -> None:
    def interrupt(_data: bytes = b"") -> bytes:
        raise KeyboardInterrupt

    here, peer = stream
    with pytest.raises(KeyboardInterrupt):
        here.write(interrupt, lambda _: None)
    assert here.is_torn
    here.is_torn = False
    peer.sendall(b"x")
    with pytest.raises(KeyboardInterrupt):
        here.read(None, interrupt)
    assert here.is_torn
    with server(silent) as url:
        connection = BlockingConnection(url, reconnect=False)
        connection._stream.is_torn = True
        with pytest.raises(ConnectionClosed, match="a call was interrupted during a read or write"):
            connection.channel()
        connection.close()


def test_an_interrupted_close_closes_the_socket() -> None:
    with server(silent) as url:
        connection = BlockingConnection(url, reconnect=False)
        with patch.object(connection._stream, "read", side_effect=KeyboardInterrupt), pytest.raises(KeyboardInterrupt):
            connection.close()  # the answer may come before the wait, so the call is interrupted, not the poll
        assert connection.is_closed
        assert connection._stream._socket.fileno() == -1


