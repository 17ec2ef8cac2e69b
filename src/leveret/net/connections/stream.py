"""A TCP connection on the event loop that replaces asyncio's transport, which copies every byte two more times.

What is read becomes `bytes` at once and goes to the protocol unchanged. What is written goes to the socket in one call,
as the buffers it consists of; of what the socket does not accept, references are kept. Otherwise it behaves like
asyncio.Transport as far as needed here: whatever happens to the connection, `connection_lost` is called once, in a turn
of the loop of its own.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol

from leveret.session.output import Buffer

if TYPE_CHECKING:
    from leveret.net.connections.admission import Admitted

# enough for what most clients send at a time, and below the size for which malloc asks the system each time
READ_OCTETS: Final = 64 * 1024
# read size after a read that filled READ_OCTETS
READ_OCTETS_MAX: Final = 256 * 1024
# how many buffers one system call takes: IOV_MAX of Linux
BUFFERS_MAX: Final = 1024
WRITE_HIGH_OCTETS: Final = 1 << 20
WRITE_LOW_OCTETS: Final = 1 << 18
_NO_LINGER: Final = struct.pack("ii", 1, 0)


class StreamCallbacks(Protocol):
    """The callbacks of a `TcpStream`: the part of asyncio.Protocol that is used."""

    def connection_made(self, stream: TcpStream, /) -> None: ...
    def data_received(self, data: bytes, /) -> None: ...
    def eof_received(self) -> None: ...
    def pause_writing(self) -> None: ...
    def resume_writing(self) -> None: ...
    def connection_lost(self, error: Exception | None, /) -> None: ...


class TcpStream:
    """One connection, which was accepted, and sends what it is given at once (TCP_NODELAY). It is read from as soon as
    it is there.

    peername, sockname: both its ends, as the socket module writes them. place: what it has been admitted to
    (net/connections/admission.py), None = nobody counts it. taken: how often the socket has taken something that had
    to wait.
    """

    def __init__(
        self, loop: asyncio.AbstractEventLoop, connection: socket.socket, peername: tuple[Any, ...],
        user: StreamCallbacks, place: Admitted | None = None,
    ) -> None:  # fmt: skip
        self.peername = peername  # peername, sockname: both ends, as the socket module represents addresses
        self.sockname = connection.getsockname()
        self.place = place  # its admission (net/connections/admission.py), None = not counted
        if place is not None:
            place.socket = self
        self.taken = 0  # how often the socket has accepted output that had to wait
        self._loop = loop
        self._socket = connection
        self._number = connection.fileno()
        self._user = user
        self._read_octets = READ_OCTETS
        self._is_reading = False
        self._is_closing = False  # nothing is read any more
        self._is_lost = False
        self._is_crowded = False  # the user was told to pause writing
        self._unsent: deque[Buffer] = deque()
        self._unsent_octets = 0
        user.connection_made(self)
        self.resume_reading()

    # -- input ---------------------------------------------------------------------------------------------------------

    def pause_reading(self) -> None:
        """Stop reading; incoming data stays in the socket."""
        if self._is_reading:
            self._is_reading = False
            self._loop.remove_reader(self._number)

    def resume_reading(self) -> None:
        """Continue reading."""
        if not self._is_reading and not self._is_closing:
            self._is_reading = True
            self._loop.add_reader(self._number, self._readable)

    def _readable(self) -> None:
        try:
            data = self._socket.recv(self._read_octets)
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            self._lose(error)
            return
        if not data:
            self._user.eof_received()
            self.close()
            return
        self._read_octets = READ_OCTETS_MAX if len(data) >= READ_OCTETS else READ_OCTETS
        try:
            self._user.data_received(data)
        except BaseException:
            self.abort()  # nobody knows how far these bytes were processed
            raise

    # -- output --------------------------------------------------------------------------------------------------------

    def writelines(self, buffers: Sequence[Buffer]) -> None:
        """Send these buffers. None may be empty, and none may be changed afterwards."""
        if self._is_lost:
            return
        if self._unsent:
            self._keep(buffers)
            return
        try:
            if len(buffers) == 1:
                sent = self._socket.send(buffers[0])
            else:
                sent = self._socket.sendmsg(buffers[:BUFFERS_MAX])
        except (BlockingIOError, InterruptedError):
            sent = 0
        except OSError as error:
            self._lose(error)
            return
        if sent < len(buffers[0]) or len(buffers) > 1:
            self._keep(buffers, sent)

    def _keep(self, buffers: Sequence[Buffer], sent: int = 0) -> None:
        """Keep these buffers, without the first `sent` bytes, until the socket accepts them."""
        was_empty = not self._unsent
        for buffer in buffers:
            size = len(buffer)
            if sent >= size:
                sent -= size
                continue
            self._unsent.append(memoryview(buffer)[sent:] if sent else buffer)
            self._unsent_octets += size - sent
            sent = 0
        if was_empty and self._unsent:
            self._loop.add_writer(self._number, self._writable)
        if self._unsent_octets > WRITE_HIGH_OCTETS and not self._is_crowded:
            self._is_crowded = True
            self._user.pause_writing()

    def _writable(self) -> None:
        unsent = self._unsent
        try:
            sent = self._socket.sendmsg([unsent[index] for index in range(min(len(unsent), BUFFERS_MAX))])
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            self._lose(error)
            return
        self.taken += 1
        self._unsent_octets -= sent
        while unsent and sent >= len(unsent[0]):
            sent -= len(unsent.popleft())
        if sent:
            unsent[0] = memoryview(unsent[0])[sent:]
        if not unsent:
            self._loop.remove_writer(self._number)
            if self._is_closing:
                self._lose(None)
                return
        if self._is_crowded and self._unsent_octets <= WRITE_LOW_OCTETS:
            self._is_crowded = False
            self._user.resume_writing()

    def get_write_buffer_size(self) -> int:
        """The number of bytes that the socket has not accepted yet."""
        return self._unsent_octets

    # -- endings -------------------------------------------------------------------------------------------------------

    def is_closing(self) -> bool:
        """Whether the connection has ended, or ends as soon as all output is sent."""
        return self._is_closing

    def close(self) -> None:
        """Stop reading, and end when all output is sent."""
        if not self._is_closing:
            self._is_closing = True
            self.pause_reading()
            if not self._unsent:
                self._lose(None)

    def abort(self) -> None:
        """End now; unsent output is lost."""
        self._lose(None)

    def reset(self) -> None:
        """End now, and discard what the kernel had still to send; the other side sees a reset at once."""
        if not self._is_lost:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)
        self._lose(None)

    def _lose(self, error: OSError | None) -> None:
        if self._is_lost:
            return
        self._is_lost = self._is_closing = True
        self.pause_reading()
        if self._unsent:
            self._loop.remove_writer(self._number)
            self._unsent.clear()
            self._unsent_octets = 0
        # now and not in `_end`: by then somebody may have asked for its place or its descriptor
        self._socket.close()
        if self.place is not None:
            self.place.leave()
        self._loop.call_soon(self._end, error)

    def _end(self, error: OSError | None) -> None:
        user = self._user
        del self._user  # user and stream refer to each other, and the collector is off
        user.connection_lost(error)

    def fileno(self) -> int:
        """The socket's file descriptor, -1 if it is closed."""
        return self._socket.fileno()
