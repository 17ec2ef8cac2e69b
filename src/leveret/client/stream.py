"""The blocking face's socket: it never waits longer than asked for, and reads while it writes.

What interrupts it (KeyboardInterrupt) while it waits does no harm: what is not written is written next time. In the few
instants in which bytes move nobody knows afterwards how far they came: then it is torn, and the connection is over.
"""

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
        self.is_torn = False
        self._unsent = memoryview(b"")
        self._buffer = bytearray(READ_SIZE)
        self._view = memoryview(self._buffer)
        self._reading = select.poll()
        self._reading.register(self._socket, select.POLLIN)
        self._both = select.poll()
        self._both.register(self._socket, select.POLLIN | select.POLLOUT)

    def read(self, timeout_s: float | None, on_data: Callable[[bytes], None]) -> bool:
        """Give on_data what is there, or what comes within timeout_s (None = whenever it comes): was there anything?

        ConnectionResetError when the peer has hung up.
        """
        if self._read_now(on_data):
            return True
        if timeout_s == 0:
            return False
        self._reading.poll(None if timeout_s is None else max(0.0, timeout_s) * 1000)
        return self._read_now(on_data)

    @property
    def has_unsent(self) -> bool:
        """Whether an interrupted write has left something."""
        return bool(self._unsent)

    def write(self, take: Callable[[], bytes], on_data: Callable[[bytes], None]) -> None:
        """Write all that take() gives. What arrives meanwhile goes to on_data: a peer that waits for us to read reads
        nothing."""
        try:
            data = take()
            self._unsent = memoryview(bytes(self._unsent) + data if self._unsent else data)
        except BaseException:
            self.is_torn = True
            raise
        while not self._write_now():
            self._both.poll()
            self._read_now(on_data)

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()

    def _write_now(self) -> bool:
        """Write what can be written: was it all?"""
        try:
            while self._unsent:
                self._unsent = self._unsent[self._socket.send(self._unsent) :]
        except (BlockingIOError, ssl.SSLWantWriteError, ssl.SSLWantReadError):
            return False
        except OSError:
            raise
        except BaseException:
            self.is_torn = True
            raise
        return True

    def _read_now(self, on_data: Callable[[bytes], None]) -> bool:
        try:
            size = self._socket.recv_into(self._buffer)
            if not size:
                raise ConnectionResetError("")
            on_data(bytes(self._view[:size]))
        except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return False
        except Exception:
            raise
        except BaseException:
            self.is_torn = True
            raise
        return True
