"""A client in the simulation: leveret's client core on a virtual connection; reconnects when that is lost."""

from __future__ import annotations

from typing import Any, Final

from leveret.client import requests
from leveret.client.channel_core import ChannelCore
from leveret.client.errors import ClientError
from leveret.client.protocol import ConnectionCore
from leveret.client.requests import Request
from leveret.client.url import parse_url
from leveret.testing.simulation.clock import ScheduledEvent
from leveret.testing.simulation.network import Network, SimulatedHost
from leveret.testing.simulation.stream import End
from leveret.wire.method import Method

HEARTBEAT_S: Final = 4
RECONNECT_US: Final = 300_000
HANDSHAKE_US: Final = 5_000_000


class Client:
    """A client of one broker. Subclasses implement `on_open`, `on_gone` and `on_settled`."""

    def __init__(self, network: Network, host: SimulatedHost, broker: str) -> None:
        self.name = host.name
        self.network = network
        self.clock = network.clock
        self.is_stopped = False
        self.channel: ChannelCore[int] | None = None
        self._host = host
        self._broker = broker  # the name of the host to connect to
        self._ticker: ScheduledEvent | None = None
        self._connect()

    def stop(self) -> None:
        """Disconnect for good."""
        if not self.is_stopped:
            self.is_stopped = True
            self._end.close()
            self._gone("stopped")

    def stop_reading(self, for_s: float) -> None:
        """Read nothing from the connection for `for_s` virtual seconds."""
        end = self._end
        end.pause(True)
        self.clock.later(int(for_s * 1e6), lambda: end.pause(False))

    # -- for subclasses ------------------------------------------------------------------------------------------------

    def on_open(self, channel: ChannelCore[int]) -> None:
        """Called when a channel is open."""
        raise NotImplementedError

    def on_gone(self) -> None:
        """Called when the channel is gone."""
        raise NotImplementedError

    def on_settled(self, number: int, error: Exception | None) -> None:
        """Called when a publish is confirmed (error None) or refused."""
        raise NotImplementedError

    def flush(self) -> None:
        """Send the buffered data, if connected."""
        if self._end.is_connected:
            self._end.write(self._core.take())

    # -- connections ---------------------------------------------------------------------------------------------------

    def _connect(self) -> None:
        if self.is_stopped:
            return
        core = self._core = ConnectionCore(parse_url(f"amqp://{self._broker}"), HEARTBEAT_S, self.name)
        core.opened.when_done(lambda: self._opened(core))
        self.clock.later(HANDSHAKE_US, lambda: self._hurry(core))
        self._end: End = self.network.dial(self._host, self._broker, self, self.flush)

    def _opened(self, core: ConnectionCore) -> None:
        if core.opened.error is not None:
            return
        channel: ChannelCore[Any] = core.open_channel(self.on_settled, self._failed)
        self.ask(channel, requests.open_channel())
        self.channel = channel
        self._ticker = self.clock.later(int(core.tick_interval_s * 1e6), self._tick)
        self.on_open(channel)

    def _hurry(self, core: ConnectionCore) -> None:
        """Give up a handshake that takes too long: the broker may have crashed without closing the connection."""
        if core is self._core and not core.opened.done:
            self._end.abort()
            self.lost("no answer")

    def ask(self, channel: ChannelCore[int], request: Request) -> None:
        """Send a request whose answer is not awaited."""
        waiter = channel.request(request)
        assert not isinstance(waiter, Method)

    def _failed(self, error: ClientError) -> None:
        self.network.trace.note(self.name, "channel gone:", str(error))

    def _tick(self) -> None:
        self._core.tick()
        if self._core.error is not None:
            self._end.abort()
            self.lost("missed heartbeats")
            return
        self.flush()
        self._ticker = self.clock.later(int(self._core.tick_interval_s * 1e6), self._tick)

    def received(self, data: bytes) -> None:
        self._core.receive(data)
        self.flush()
        if self._core.error is not None or (self.channel is not None and self.channel.error is not None):
            self._end.close()
            self.lost(str(self._core.error))

    def lost(self, reason: str) -> None:
        self._gone(reason)
        self.clock.later(RECONNECT_US, self._connect)

    def _gone(self, reason: str) -> None:
        if self._ticker is not None:
            self._ticker.cancel()
        self._core.lost(reason)
        if self.channel is not None:
            self.channel = None
            self.on_gone()
