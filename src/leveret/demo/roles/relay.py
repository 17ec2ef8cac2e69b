"""The line between an airport's broker and hq: a TCP relay that can be cut. A process of its own.

``cut`` on its standard input resets every connection, with the data in transit, and refuses new ones; ``restore``
accepts connections on the same port again.
"""

from __future__ import annotations

import asyncio
import os
import socket
import struct
import sys
from contextlib import suppress

from leveret.demo.plan import DemoPlan
from leveret.demo.roles.role import ProgressReporter

READ_OCTETS = 1 << 16
HOST = "127.0.0.1"

_RESET = struct.pack("ii", 1, 0)
"""SO_LINGER with timeout 0: closing drops the kernel's buffers, and the other side gets a reset (tcp(7))."""


class Relay:
    """A relay of connections to a port of this machine.

    Attributes:
        port: where it listens; the same after every ``restore``.
        reset: how many connections were reset by cuts.
    """

    def __init__(self, target_port: int) -> None:
        self.port = 0
        self.reset = 0
        self._target_port = target_port
        self._server: asyncio.Server | None = None
        self._carrying: set[asyncio.StreamWriter] = set()

    async def restore(self) -> None:
        """Listen, always on the port of the first time.

        Raises:
            OSError: the port has been taken meanwhile.
        """
        if self._server is None:
            self._server = await asyncio.start_server(self._carry, HOST, self.port)
            self.port = self._server.sockets[0].getsockname()[1]

    def cut(self) -> None:
        """Reset all connections and stop listening."""
        if self._server is not None:
            self._server.close()
            self._server = None
        self.reset += len(self._carrying)
        for writer in self._carrying:
            writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            writer.transport.abort()

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            other_reader, other_writer = await asyncio.open_connection(HOST, self._target_port)
        except OSError:
            writer.transport.abort()
            return
        if self._server is None:  # cut meanwhile
            writer.transport.abort()
            other_writer.transport.abort()
            return
        await asyncio.gather(self._pump(reader, other_writer), self._pump(other_reader, writer))

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Copy one direction. Its end closes the connection: AMQP peers send nothing after a half-close."""
        self._carrying.add(writer)
        with suppress(OSError):
            while data := await reader.read(READ_OCTETS):
                writer.write(data)
                await writer.drain()
        self._carrying.discard(writer)
        writer.close()


async def serve(target_port: int, reporter: ProgressReporter) -> None:
    """Relay, and follow the commands on standard input until it ends."""
    relay = Relay(target_port)
    await relay.restore()
    orders = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(orders), os.fdopen(0, "rb"))
    reporter.state(ready=1, port=relay.port)
    while order := await orders.readline():
        if order == b"cut\n":
            relay.cut()
        elif order == b"restore\n":
            await relay.restore()
        reporter.state(reset=relay.reset)
    relay.cut()


def main(_plan: DemoPlan, _origin: str, target_port: str) -> None:
    """Relay until told to stop."""
    asyncio.run(serve(int(target_port), ProgressReporter()))


if __name__ == "__main__":
    main(DemoPlan.from_json(sys.argv[1]), *sys.argv[2:])
