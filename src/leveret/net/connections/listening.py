"""The addresses that the broker listens on; it can stop accepting for a while."""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
from collections.abc import Callable
from typing import Any, Final

from leveret import tcp_settings
from leveret.net.connections.admission import Admitted
from leveret.net.connections.listener import Listener
from leveret.net.connections.stream import StreamCallbacks, TcpStream

logger = logging.getLogger("leveret.net")

Accept = Callable[[], StreamCallbacks]
Admit = Callable[[str], Admitted | None]
BACKLOG: Final = 1024
# how many connections are accepted before others get a turn, so that a burst does not delay those already open
ACCEPTED_PER_TURN: Final = 32
# errors that mean that machine or process has no room for another socket; accepting is retried after NO_ROOM_S
NO_ROOM: Final = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
NO_ROOM_S: Final = 1.0


class Listening:
    """The listening sockets of all AMQP addresses.

    admit: returns a place for a socket from an address, or None (`Admission.admit`).
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, admit: Admit) -> None:
        self._loop = loop
        self._admit = admit
        self._places: list[tuple[Listener, Accept]] = []
        self._sockets: list[socket.socket] = []

    async def add(self, protocol: str, accept: Accept, host: str, port: int) -> Listener:
        """Listen on one more address; port 0 = a free port. OSError if it is not available."""
        address = await self._listen(accept, host, port)
        listener = Listener(protocol, address[0], address[1])
        self._places.append((listener, accept))
        return listener

    def suspend(self) -> None:
        """Refuse new connections; existing ones stay."""
        for listening in self._sockets:
            self._loop.remove_reader(listening)
            listening.close()
        self._sockets.clear()

    async def resume(self) -> None:
        """Accept connections again. OSError if an address is in use by another process now."""
        if self._sockets:
            return
        for listener, accept in self._places:
            await self._listen(accept, listener.address, listener.port)

    async def _listen(self, accept: Accept, host: str, port: int) -> tuple[Any, ...]:
        """Listen on all addresses of this host name; returns the first one."""
        flags = socket.AI_PASSIVE
        found = await self._loop.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=flags)
        opened: list[socket.socket] = []
        try:
            for family, address in dict.fromkeys((info[0], info[4]) for info in found):
                opened.append(_bound(family, address))
        except OSError:
            for listening in opened:
                listening.close()
            raise
        for listening in opened:
            self._sockets.append(listening)
            self._loop.add_reader(listening, self._knocked, listening, accept)
        first: tuple[Any, ...] = opened[0].getsockname()
        return first

    def _knocked(self, listening: socket.socket, accept: Accept) -> None:
        """Accept the connections that wait, ACCEPTED_PER_TURN at most."""
        for _ in range(ACCEPTED_PER_TURN):
            try:
                connection, address = listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                if error.errno not in NO_ROOM:
                    raise
                logger.warning("can't accept connections for %g s: %s", NO_ROOM_S, error.strerror)
                self._loop.remove_reader(listening)
                self._loop.call_later(NO_ROOM_S, self._look_again, listening, accept)
                return
            place = self._admit(address[0])
            if place is None:
                connection.close()
                continue
            connection.setblocking(False)
            TcpStream(self._loop, connection, address, accept(), place)

    def _look_again(self, listening: socket.socket, accept: Accept) -> None:
        if listening in self._sockets:
            self._loop.add_reader(listening, self._knocked, listening, accept)


def _bound(family: int, address: tuple[Any, ...]) -> socket.socket:
    """A socket that listens on this address. OSError if that fails."""
    listening = socket.socket(family, socket.SOCK_STREAM)
    try:
        listening.setblocking(False)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # those that it accepts inherit it
        if family == socket.AF_INET6:
            listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        tcp_settings.quicken(listening, address[0])
        listening.bind(address)
        listening.listen(BACKLOG)
    except OSError:
        listening.close()
        raise
    return listening
