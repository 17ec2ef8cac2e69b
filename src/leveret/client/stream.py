"""The socket of the blocking API: it never waits longer than the timeout, and reads while it writes.

An interrupt (KeyboardInterrupt) during a wait does no harm: unsent bytes are written by the next call. After an
interrupt during the transfer itself it is unknown how many bytes were transferred: then the stream is torn, and the
connection ends.
"""

from __future__ import annotations

import contextlib
import select
import socket
import ssl
from collections.abc import Callable
from typing import Final

from leveret import tcp_settings
from leveret.client.protocol.url import Address

READ_SIZE: Final = 256 * 1024


class ClientSocket:
    """A connected TCP or TLS socket. timeout_s: seconds for connecting. Raises OSError if connecting fails."""

    def __init__(self, address: Address, timeout_s: float) -> None:
        plain = socket.create_connection((address.host, address.port), timeout_s)
        try:
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            tcp_settings.quicken(plain, plain.getpeername()[0])
            context = address.tls_context()
            self._socket = plain if context is None else context.wrap_socket(plain, server_hostname=address.server_name)
        except BaseException:
            plain.close()
            raise
        self._socket.setblocking(False)
        self.is_torn: bool = False  # an interrupt came while bytes were transferred
        self._unsent = memoryview(b"")
        self._buffer = bytearray(READ_SIZE)
        self._view = memoryview(self._buffer)
        self._reading = select.poll()
        self._reading.register(self._socket, select.POLLIN)
        self._both = select.poll()
        self._both.register(self._socket, select.POLLIN | select.POLLOUT)

    def read(self, timeout_s: float | None, on_data: Callable[[bytes], None]) -> bool:
        """Read once, waiting at most timeout_s seconds for data (None = no limit), and pass the data to on_data.

        Returns whether anything was read. Raises ConnectionResetError if the peer has hung up.
        """
        if self._read_now(on_data):
            return True
        if timeout_s == 0:
            return False
        self._reading.poll(None if timeout_s is None else max(0.0, timeout_s) * 1000)
        return self._read_now(on_data)

    @property
    def has_unsent(self) -> bool:
        """Whether an interrupted write has left unsent bytes."""
        return bool(self._unsent)

    def write(self, take: Callable[[], bytes], on_data: Callable[[bytes], None]) -> None:
        """Write all that take() returns, and pass data that arrives meanwhile to on_data: a peer that is blocked until
        its data is read would read nothing."""
        try:
            data = take()
            self._unsent = memoryview(bytes(self._unsent) + data if self._unsent else data)
        except BaseException:
            self.is_torn = True
            raise
        while not self._write_now():
            self._both.poll()
            self._read_now(on_data)

    @property
    def socket(self) -> socket.socket:
        """The socket, for loops that wait for several."""
        return self._socket

    def wait(self, timeout_s: float) -> None:
        """Wait until there is something to read, at most timeout_s seconds."""
        self._reading.poll(timeout_s * 1000)

    def close(self, last: bytes = b"") -> None:
        """Close the socket, after it was offered some last bytes, which it may not take."""
        if last and not self._unsent:
            self._unsent = memoryview(last)
            with contextlib.suppress(OSError):
                self._write_now()
        self._socket.close()

    def _write_now(self) -> bool:
        """Write as much as the socket accepts; return whether that was all."""
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
