"""A TCP proxy before a broker that records AMQP methods, and can be cut."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from dataclasses import dataclass
from typing import Any, Final, Self

from ...conformance.raw import HEADER, METHOD, PROTOCOL_HEADER, Reader, decode_header, decode_method

HEAD: Final = struct.Struct(">BHI")


@dataclass(frozen=True)
class Said:
    """A method, or a content header (name "header", fields: its properties).

    Attributes:
        connection: Number of the connection, from 0.
        is_up: Whether the client sent it.
        fields: As decoded, but values in tables are (octet of the type, value).
    """

    connection: int
    is_up: bool
    channel: int
    name: str
    fields: dict[str, Any]


class Tap:
    """Listens on `port` of 127.0.0.1 and forwards everything to the port `target`; a context manager."""

    def __init__(self, target: int) -> None:
        self.target = target
        self.said: list[Said] = []  # everything recorded so far, of all connections
        self.connections = 0
        self._sockets: set[socket.socket] = set()
        self._lock = threading.Lock()
        self._is_cut = False
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])

    def __enter__(self) -> Self:
        threading.Thread(target=self._listen, daemon=True, name="tap").start()
        return self

    def __exit__(self, *_: object) -> None:
        # A close alone does not wake the thread in accept().
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.cut()

    def cut(self) -> None:
        """Drop all connections, and accept none until `mend`."""
        with self._lock:
            self._is_cut = True
            for each in self._sockets:
                with contextlib.suppress(OSError):
                    each.shutdown(socket.SHUT_RDWR)
            self._sockets.clear()

    def mend(self) -> None:
        """Accept connections again."""
        with self._lock:
            self._is_cut = False

    def methods(self, *names: str, is_up: bool = True) -> list[Said]:
        """Return the recorded methods of these names."""
        return [each for each in tuple(self.said) if each.name in names and each.is_up == is_up]

    def _listen(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                self._take(self._listener.accept()[0])

    def _take(self, client: socket.socket) -> None:
        with self._lock:
            if self._is_cut:
                client.close()
                return
            try:
                broker = socket.create_connection(("127.0.0.1", self.target))
            except OSError:
                client.close()
                return
            self._sockets |= {client, broker}
            number, self.connections = self.connections, self.connections + 1
        for ends in ((client, broker, True), (broker, client, False)):
            threading.Thread(target=self._pass, args=(number, *ends), daemon=True, name=f"tap-{number}").start()

    def _pass(self, number: int, source: socket.socket, target: socket.socket, is_up: bool) -> None:
        unread = b""
        with contextlib.suppress(OSError), source:
            while data := source.recv(65536):
                target.sendall(data)
                unread = self._note(number, is_up, unread + data)
        with contextlib.suppress(OSError):
            target.shutdown(socket.SHUT_WR)

    def _note(self, number: int, is_up: bool, data: bytes) -> bytes:
        """Record complete frames; return the remaining bytes."""
        data = data.removeprefix(PROTOCOL_HEADER)
        at = 0
        while len(data) - at >= HEAD.size:
            kind, channel, size = HEAD.unpack_from(data, at)
            end = at + HEAD.size + size + 1
            if end > len(data):
                break
            payload = data[at + HEAD.size : end - 1]
            if kind == METHOD:
                self.said.append(Said(number, is_up, channel, *decode_method(payload, TypedReader)))
            elif kind == HEADER:
                self.said.append(Said(number, is_up, channel, "header", decode_header(payload, TypedReader)[1]))
            at = end
        return data[at:]


class TypedReader(Reader):
    """Keeps the octets of types in tables."""

    def value(self) -> Any:
        octet = chr(self.data[self.at])
        return octet, super().value()


