"""The blocking face's socket: it never waits longer than asked for, and reads while it writes."""

from __future__ import annotations

import select
import socket
import ssl
from collections.abc import Callable
from typing import Final

from leveret.client.url import Address

READ_SIZE: Final = 256 * 1024


class Stream:
    """A connected TCP or TLS socket. address: where to; timeout_s: for connecting, in seconds. OSError if it fails."""

    def __init__(self, address: Address, timeout_s: float) -> None:
        plain = socket.create_connection((address.host, address.port), timeout_s)
        try:
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            context = address.tls_context()
            self._socket = plain if context is None else context.wrap_socket(plain, server_hostname=address.server_name)
        except BaseException:
            plain.close()
            raise
        self._socket.setblocking(False)
        self._buffer = bytearray(READ_SIZE)
        self._view = memoryview(self._buffer)
        self._reading = select.poll()
        self._reading.register(self._socket, select.POLLIN)
        self._both = select.poll()
        self._both.register(self._socket, select.POLLIN | select.POLLOUT)

    def read(self, timeout_s: float | None) -> bytes:
        """What is there, or what comes within timeout_s (None = whenever it comes); b"" if nothing does.

        ConnectionResetError when the peer has hung up.
        """
        data = self._read_now()
        if data or timeout_s == 0:
            return data
        self._reading.poll(None if timeout_s is None else max(0.0, timeout_s) * 1000)
        return self._read_now()

    def write(self, data: bytes, on_data: Callable[[bytes], None]) -> None:
        """Write all of data. What arrives meanwhile goes to on_data: a peer that waits for us to read reads nothing."""
        rest = memoryview(data)
        while rest:
            try:
                rest = rest[self._socket.send(rest) :]
            except (BlockingIOError, ssl.SSLWantWriteError, ssl.SSLWantReadError):
                self._both.poll()
                arrived = self._read_now()
                if arrived:
                    on_data(arrived)

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()

    def _read_now(self) -> bytes:
        try:
            size = self._socket.recv_into(self._buffer)
        except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return b""
        if not size:
            raise ConnectionResetError("")
        return bytes(self._view[:size])
