#!/usr/bin/env python3
"""A simulated long-distance network: copies bytes between two TCP ports, each delayed by half a round trip.

    bench/delay_relay.py PORT TARGET_PORT ROUND_TRIP_MS

Listens on 127.0.0.1:PORT, connects to 127.0.0.1:TARGET_PORT for each connection, and prints "ready" when it listens.
The number of octets in flight is unlimited, as on a line with enough bandwidth; with 0 ms nothing is delayed. End it
with SIGTERM or SIGKILL to cut the line.
"""

import asyncio
import socket
import sys
from typing import cast


class End(asyncio.Protocol):
    """One of the two sockets of a relayed connection."""

    def __init__(self, delay_s: float) -> None:
        self.delay_s = delay_s
        self.transport: asyncio.Transport
        self.other: End | None = None  # None until it is connected
        self.early: list[bytes] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def data_received(self, data: bytes) -> None:
        if not self.delay_s:
            self.arrive(data)
        else:
            asyncio.get_running_loop().call_later(self.delay_s, self.arrive, data)

    def arrive(self, data: bytes) -> None:
        """Write octets, whose delay is over, to the other socket."""
        if self.other is None:
            self.early.append(data)
        elif not self.other.transport.is_closing():
            self.other.transport.write(data)

    def join(self, other: "End") -> None:
        """Pair this socket with the other one, which is connected now."""
        self.other = other
        other.other = self
        for data in self.early:
            self.arrive(data)

    def pause_writing(self) -> None:
        if self.other is not None:
            self.other.transport.pause_reading()

    def resume_writing(self) -> None:
        if self.other is not None:
            self.other.transport.resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        if self.other is not None:
            asyncio.get_running_loop().call_later(self.delay_s, self.other.transport.close)


class Near(End):
    """The socket of the client that has connected."""

    def __init__(self, delay_s: float, target_port: int) -> None:
        super().__init__(delay_s)
        self._target_port = target_port

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._dial = asyncio.get_running_loop().create_task(self._connect())

    async def _connect(self) -> None:
        try:
            _, far = await asyncio.get_running_loop().create_connection(
                lambda: End(self.delay_s), "127.0.0.1", self._target_port
            )
        except OSError:
            self.transport.abort()
        else:
            self.join(far)


async def main(port: int, target_port: int, round_trip_ms: float) -> None:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Near(round_trip_ms / 2000, target_port), "127.0.0.1", port)
    print("ready", flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    try:
        asyncio.run(main(int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])))
    except KeyboardInterrupt:
        pass
