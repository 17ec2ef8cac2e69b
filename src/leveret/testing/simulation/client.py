"""A client in the simulation: leveret's client core on virtual connections, which reconnects as applications do."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from leveret.client.protocol import requests
from leveret.client.protocol.channel_core import ChannelCore
from leveret.client.protocol.connection_core import ConnectionCore
from leveret.client.protocol.errors import ClientError, ConnectionClosed
from leveret.client.protocol.reconnect import Reconnect, ReconnectDelays
from leveret.client.protocol.requests import Request
from leveret.client.protocol.url import parse_url
from leveret.testing.simulation.clock import START_US, ScheduledEvent
from leveret.testing.simulation.network import Network, SimulatedHost
from leveret.testing.simulation.stream import End
from leveret.wire.method import Method

HEARTBEAT_S: Final = 4
HANDSHAKE_US: Final = 5_000_000
POLICY: Final = Reconnect(max_delay_s=1.0)


class Client:
    """A client of one broker, with a channel. Subclasses implement `on_open`.

    Attributes:
        core: The connection, which outlives its sockets.
        channel: None until the first socket is open, and without is_kept until another is.
        error: Why the channel or the connection has ended for good, other than by stop(); None before.
    """

    def __init__(self, network: Network, host: SimulatedHost, broker: str, is_kept: bool = True) -> None:
        """Begin to connect. is_kept: the channel outlives its sockets, too; otherwise each has a new one."""
        self.name = host.name
        self.network = network
        self.clock = network.clock
        self.is_stopped = False
        self.channel: ChannelCore[int] | None = None
        self.error: ClientError | None = None
        self._host = host
        self._is_kept = is_kept
        self._broker = broker  # the name of the host to connect to
        self._ticker: ScheduledEvent | None = None
        self._delays = ReconnectDelays(POLICY, network.random.random)
        self._attempts: Iterator[float] | None = None  # the delays before the next ones, while the connection is lost
        self.core = self._new_core()
        self._dial()

    def stop(self) -> None:
        """Disconnect for good."""
        if not self.is_stopped:
            self.is_stopped = True
            self._end.close()
            self.core.fail(ConnectionClosed(200, "the client was stopped"))

    def stop_reading(self, for_s: float) -> None:
        """Read nothing from the connection for `for_s` virtual seconds."""
        end = self._end
        end.pause(True)
        self.clock.later(int(for_s * 1e6), lambda: end.pause(False))

    def lose(self) -> None:
        """Lose the connection without the broker noticing it before it sends something: it is half-open."""
        if not self._end.is_over:
            self._end.fail("no route to host")

    # -- for subclasses ------------------------------------------------------------------------------------------------

    def on_open(self, channel: ChannelCore[int]) -> None:
        """Called when the channel is there. What it is asked waits while the connection is lost, if it is kept."""
        raise NotImplementedError

    def on_settled(self, number: int, error: Exception | None) -> None:
        """Called when a publish is confirmed (error None) or refused."""

    def on_interrupted(self) -> None:
        """Called when the connection is lost, also while it is restored."""

    def on_restored(self) -> None:
        """Called when the connection is as it was before it was lost."""

    def on_ended(self, error: ClientError) -> None:
        """Called when the channel has ended."""

    def ask(self, channel: ChannelCore[int], request: Request) -> None:
        """Send a request whose answer is not awaited."""
        waiter = channel.request(request)
        assert not isinstance(waiter, Method)

    def flush(self) -> None:
        """Send the buffered data, if connected."""
        if self._end.is_connected:
            self._end.write(self.core.take())

    # -- connections ---------------------------------------------------------------------------------------------------

    def _new_core(self) -> ConnectionCore:
        core = ConnectionCore(parse_url(f"amqp://{self._broker}"), HEARTBEAT_S, self.name, POLICY)
        core.on_interrupted = self._interrupted
        return core

    def _connect(self) -> None:
        """Connect again: the lost connection, or a new one if there has never been one."""
        if self.is_stopped or self.error is not None:
            return
        if self.core.interruption is not None:
            self.core.begin(self.core.address)
        else:
            self.core = self._new_core()
        self._dial()

    def _dial(self) -> None:
        core, number = self.core, self.core.sockets
        core.opened.when_succeeded(lambda _: self._opened())
        core.restored.when_succeeded(lambda _: self._restored())
        self.clock.later(HANDSHAKE_US, lambda: self._hurry(core, number))
        self._end: End = self.network.dial(self._host, self._broker, self, self.flush)

    def _opened(self) -> None:
        self._tick_later()
        if self.core.interruption is None:
            self._attempts = None
            self._open_channel()

    def _open_channel(self) -> None:
        channel = self.channel = self.core.open_channel(self.on_settled, self._failed, self._is_kept)
        self.ask(channel, requests.open_channel())
        self.on_open(channel)

    def _restored(self) -> None:
        self._attempts = None
        self._delays.succeeded(self._now_s())
        self.network.trace.note(self.name, "is restored")
        if not self._is_kept:
            self._open_channel()
        self.on_restored()

    def _hurry(self, core: ConnectionCore, number: int) -> None:
        """Give up a handshake that takes too long: the broker may have crashed without closing the connection."""
        if core is self.core and core.sockets == number and not core.opened.done:
            self._end.abort()
            self.lost("no answer")

    def _failed(self, error: ClientError) -> None:
        self.network.trace.note(self.name, "channel ended:", str(error))
        if self.core.interruption is not None:
            self.channel = None
        elif not self.is_stopped:
            self.error = error
        self.on_ended(error)

    def _tick_later(self) -> None:
        self._ticker = self.clock.later(int(self.core.tick_interval_s * 1e6), self._tick)

    def _tick(self) -> None:
        self.core.tick()
        if self.core.is_on_line:
            self.flush()
            self._tick_later()
        else:
            self._end.abort()
            self._again()

    def received(self, data: bytes) -> None:
        self.core.receive(data)
        self.flush()
        if not self.core.is_on_line:
            self._end.close()
            self._again()

    def lost(self, reason: str) -> None:
        self.core.lost(reason)
        self._again()

    def _interrupted(self, error: ConnectionClosed) -> None:
        self.network.trace.note(self.name, "is interrupted:", str(error))
        self.on_interrupted()

    def _again(self) -> None:
        """Connect again after a delay; the line has ended."""
        if self._ticker is not None:
            self._ticker.cancel()
            self._ticker = None
        if self._attempts is None:
            self._attempts = self._delays.before_attempts(self._now_s())
        self.clock.later(int(next(self._attempts) * 1e6), self._connect)

    def _now_s(self) -> float:
        return (self.clock.now_us - START_US) / 1e6
