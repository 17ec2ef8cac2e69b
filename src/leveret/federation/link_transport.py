"""The two connections of a link, and their traffic: one to the upstream, one into the own broker."""

from __future__ import annotations

from typing import Final, Protocol

from leveret.broker.vhost import VHost
from leveret.client.protocol.connection_core import ConnectionCore
from leveret.client.protocol.errors import ConnectionClosed
from leveret.federation.alarms import LinkTimers
from leveret.federation.environment import DirectConnection, Environment, Transport
from leveret.federation.transfer import Transfer
from leveret.federation.upstream import UpstreamAddress

HANDSHAKE_US: Final = 30_000_000
HEARTBEAT_S: Final = 10
REQUEUE_US: Final = 1_000_000
"""How long refused messages wait until they are tried again."""


class Delegate(Protocol):
    """Callbacks of a link transport."""

    def opened(self) -> None:
        """The upstream has accepted the connection."""

    def moved(self) -> None:
        """Something was received or sent; what is sent now leaves together with it."""

    def broken(self, reason: str) -> None:
        """The connections cannot be used any more. reason: for people."""

    def dead_reply(self, name: str) -> None:
        """A message came with this reply-to, which means nothing on this side."""


class _Nobody:
    """The delegate of a link transport that has ended."""

    def opened(self) -> None:
        pass

    def moved(self) -> None:
        pass

    def broken(self, reason: str) -> None:
        pass

    def dead_reply(self, name: str) -> None:
        pass


_NOBODY: Final = _Nobody()


class LinkTransport:
    """The two connections of a link. name: of both connections."""

    def __init__(self, place: UpstreamAddress, name: str, environment: Environment, user: Delegate) -> None:
        self.is_over = False
        self.direct: DirectConnection | None = None
        self.transfer: Transfer | None = None
        self.alarms = LinkTimers(environment)
        self._user: Delegate = user
        self._environment = environment
        self._is_connected = self._is_held = self._is_beating = False
        wish = place.address.options.get("heartbeat", "")
        # sends to the upstream; its output leaves with `pump`
        self.core = ConnectionCore(place.address, int(wish) if wish.isdecimal() else HEARTBEAT_S, name)
        self.core.opened.when_done(self._opened)
        self.alarms.set("handshake", HANDSHAKE_US, self._unanswered)
        self._upstream: Transport = environment.dial(place.address, self)

    def enter(self, vhost: VHost, name: str, has_confirms: bool) -> DirectConnection:
        """Open the direct connection into the own broker."""
        self.direct = self._environment.enter(vhost, name, has_confirms, self)
        return self.direct

    def leave(self) -> None:
        """Close the direct connection."""
        direct, self.direct = self.direct, None
        if direct is not None:
            direct.close()

    def close(self) -> None:
        """Close both connections; the delegate gets no more calls."""
        if not self.is_over:
            self.core.close()
            self._send()
            self.is_over = True
            self.alarms.clear()
            self.leave()
            self._upstream.close()
            # references in cycles are cut, as the collector is off
            self._user = _NOBODY
            self.core.fail(ConnectionClosed(200, "the link was closed"))

    def pump(self) -> None:
        """Pass on what was received: messages into the own broker, everything else to the upstream."""
        transfer, direct = self.transfer, self.direct
        if transfer is not None and direct is not None:
            publishes = transfer.take_publishes()
            if publishes:
                direct.write(publishes)
                if direct.peer.dead_reply:
                    self._user.dead_reply(direct.peer.dead_reply.decode("utf-8", "replace"))
            acks = transfer.take_acks()
            if acks:
                self.core.send(acks)
        self._user.moved()
        self._send()
        if self.core.error is not None:
            self._user.broken(str(self.core.error))

    def _send(self) -> None:
        data = self.core.take() if self._is_connected else b""
        if data and not self.is_over:
            self._upstream.write(data)

    # -- the transport -------------------------------------------------------------------------------------------------

    def connected(self) -> None:
        """The transport to the upstream is connected."""
        self._is_connected = True
        self.pump()

    def received(self, data: bytes) -> None:
        """Handle bytes from the upstream."""
        if not self.is_over:
            self.core.receive(data)
            self.pump()

    def lost(self, reason: str) -> None:
        """The transport is lost, or could not be made."""
        was_connected, self._is_connected = self._is_connected, False
        if not self.is_over:
            if was_connected:
                self.core.lost(reason)
                reason = str(self.core.error)
            self._user.broken(reason)

    def _opened(self) -> None:
        if self.core.opened.error is None:
            self.alarms.cancel("handshake")
            self._beat()
            self._user.opened()

    def _unanswered(self) -> None:
        self._user.broken(f"the upstream did not answer in {HANDSHAKE_US // 1_000_000} s")

    def _beat(self) -> None:
        """Send and check heartbeats every half interval. While this side does not read, silence proves nothing."""
        interval_s = self.core.tick_interval_s
        if self._is_beating:
            if self._is_held:
                self.core.receive(b"")
            self.core.tick()
            self.pump()
        self._is_beating = True
        if interval_s and not self.is_over:
            self.alarms.set("beat", int(interval_s * 1_000_000), self._beat)

    # -- the direct connection -----------------------------------------------------------------------------------------

    def answered(self, data: bytes) -> None:
        """Handle confirms of the own broker."""
        transfer = self.transfer
        if transfer is None or self.is_over:
            return
        transfer.answered(data)
        if transfer.failure:
            self._user.broken(f"publishing here: {transfer.failure}")
            return
        if transfer.has_refused and "requeue" not in self.alarms:
            self.alarms.set("requeue", REQUEUE_US, self._requeue)
        self.pump()

    def _requeue(self) -> None:
        assert self.transfer is not None
        self.transfer.requeue()
        self.pump()

    def held(self, is_held: bool) -> None:
        """Pause or resume the upstream: the own broker is behind, or has caught up."""
        self._is_held = is_held
        if self._is_connected and not self.is_over:
            self._upstream.pause(is_held)

    def shut(self, reason: str) -> None:
        """The own broker has closed the direct connection."""
        self.direct = None
        if not self.is_over:
            self._user.broken(f"the connection into this broker was closed: {reason}")
