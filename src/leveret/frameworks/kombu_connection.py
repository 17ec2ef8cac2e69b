"""A connection of kombu's: leveret's blocking connection, with events that drain_events() takes one by one."""

from __future__ import annotations

import math
import os
import socket
import ssl as tls
import threading
from collections import deque
from collections.abc import Callable, Mapping
from time import monotonic
from typing import Any, Final
from urllib.parse import quote, urlencode

from leveret.client.blocking import BlockingConnection
from leveret.client.protocol.errors import ClientError
from leveret.frameworks.kombu_channel import KombuChannel
from leveret.frameworks.kombu_errors import translated

EVENTS_PER_TURN: Final = 100
"""How many events a turn of an asynchronous loop handles, so that other sockets have their turn."""
READ_INTERVAL_S: Final = 0.001  # between two publishes or acknowledgements that also read
CONNECT_TIMEOUT_S: Final = 60.0  # if kombu is told that there is no limit
# key of kombu's ssl settings -> option of the client's URL
TLS_OPTIONS: Final = {
    "ca_certs": "cacertfile",
    "certfile": "certfile",
    "keyfile": "keyfile",
    "password": "password",
    "server_hostname": "server_name_indication",
}

Event = tuple[KombuChannel, Callable[[Any], None], Any]


class KombuConnection(BlockingConnection):
    """A connection as kombu wants it, open when the constructor returns.

    Args:
        host: Host and port, with a colon between them.
        userid: Name of the user.
        password: The user's password.
        login_method: PLAIN, or EXTERNAL to log in by the client's certificate.
        virtual_host: Name of the virtual host.
        ssl: False, True, or a dict, see tls_options().
        connect_timeout: Seconds until the connection must be open.
        heartbeat: Requested interval in seconds; 0 = none.
        confirm_publish: Each publish waits for the broker's confirm.
        on_blocked: Called with the reason when the broker blocks publishers.
        on_unblocked: Called when it unblocks them.
        client_properties: Only "connection_name" is used: the name that the broker's tools show.
        ignored: Other options of py-amqp, and those that kombu itself reads.

    Attributes:
        client (kombu.Connection): Who uses the connection; set by kombu.
        channels (dict[int, KombuChannel]): The open channels, by number.
        events (deque[Event]): What has arrived and is not handled: (channel, function, its argument).
    """

    def __init__(
        self,
        host: str,
        userid: str,
        password: str,
        login_method: str | None = None,
        virtual_host: str = "/",
        ssl: bool | Mapping[str, Any] = False,
        connect_timeout: float | None = None,
        heartbeat: float = 0,
        confirm_publish: bool = False,
        on_blocked: Callable[[str], object] | None = None,
        on_unblocked: Callable[[], object] | None = None,
        client_properties: Mapping[str, Any] | None = None,
        **ignored: Any,
    ) -> None:
        self.client: Any = None
        self.confirm_publish = confirm_publish
        self.channels: dict[int, KombuChannel] = {}
        self.events: deque[Event] = deque()
        self._waker: tuple[socket.socket, socket.socket] | None = None  # while a loop handles the events
        self._is_woken = False
        self._next_read = 0.0  # when send() reads again
        self._pid = os.getpid()
        options = tls_options(ssl)
        if login_method not in (None, "PLAIN", "AMQPLAIN", "EXTERNAL"):
            raise ValueError(f"login_method is PLAIN or EXTERNAL, not {login_method!r}")
        if login_method == "EXTERNAL":
            options["auth_mechanism"] = "external"
        scheme = "amqps" if ssl else "amqp"
        name, _, port = host.rpartition(":")
        where = f"[{name}]:{port}" if ":" in name and not name.startswith("[") else host
        login = f"{quote(userid, safe='')}:{quote(password, safe='')}"
        url = f"{scheme}://{login}@{where}/{quote(virtual_host, safe='')}?{urlencode(options)}"
        try:
            super().__init__(
                url,
                heartbeat_s=math.ceil(heartbeat or 0),
                name=(client_properties or {}).get("connection_name"),
                timeout_s=connect_timeout or CONNECT_TIMEOUT_S,
                reconnect=False,  # kombu does that
            )
        except ClientError as error:
            raise translated(error) from error
        if on_blocked is not None or on_unblocked is not None:
            self.on_blocked(lambda reason: _tell_blocked(reason, on_blocked, on_unblocked))

    def connect(self) -> None:
        """Do nothing: py-amqp's connections connect here, and these are open already."""

    def channel(self) -> KombuChannel:  # type: ignore[override]
        """Open a channel."""
        try:
            return KombuChannel(self)
        except ClientError as error:
            raise translated(error) from error

    @property
    def connected(self) -> bool:
        """Whether the connection is open."""
        return not self.is_closed

    @property
    def transport(self) -> KombuConnection:
        """The connection itself: py-amqp's has its socket at connection.transport.sock."""
        return self

    @property
    def sock(self) -> socket.socket:
        """The socket."""
        return self._stream.socket

    @property
    def heartbeat(self) -> int:
        """The negotiated interval of heartbeats in seconds; 0 = none."""
        return self.core.heartbeat_s

    def heartbeat_tick(self, rate: float = 2) -> None:
        """Send a heartbeat if one is due. Raises RecoverableConnectionError if the broker was silent for too long."""
        with self.lock:
            self.pump(0)
        self.check()

    def close(self, timeout_s: float = 5.0) -> None:
        """Close the connection, and wait at most timeout_s seconds for the broker's answer."""
        self._close_waker()
        self.events.clear()
        for channel in self.channels.values():
            channel.connection = None
        self.channels.clear()
        super().close(timeout_s)

    def collect(self) -> None:
        """Close the socket and tell the broker nothing: after a fork, the parent goes on with the connection."""
        if os.getpid() != self._pid:
            self.lock = threading.RLock()  # a thread of the parent may have held it during the fork
        self.close(0)

    def check(self) -> None:
        """Raise py-amqp's error if the connection is closed."""
        if self.core.error is not None:
            raise translated(self.core.error) from self.core.error

    def send(self) -> None:
        """Write what is buffered, and read from time to time, unless a loop does. The caller holds the lock."""
        now = monotonic()
        if self._stream.is_torn or (self._waker is None and now >= self._next_read):
            self._next_read = now + READ_INTERVAL_S
            self.pump(0)
            return
        try:
            self._write()
        except OSError as error:
            self.core.lost(str(error))

    def unblocked(self, timeout_s: float) -> bool:
        """Wait at most timeout_s seconds while the broker blocks publishers; return whether it has stopped that."""
        deadline = monotonic() + timeout_s
        with self.lock:
            while self.core.blocked is not None and (left := deadline - monotonic()) > 0:
                self.pump(left)
        return self.core.blocked is None

    # events

    def add_event(self, channel: KombuChannel, handle: Callable[[Any], None], value: Any) -> None:
        """Add what drain_events() shall handle."""
        self.events.append((channel, handle, value))
        if self._waker is not None:
            self._wake()

    def forget(self, is_meant: Callable[[Event], bool]) -> list[Event]:
        """Remove the events that are meant, and return them."""
        events = list(self.events)
        self.events.clear()
        self.events.extend(event for event in events if not is_meant(event))
        return [event for event in events if is_meant(event)]

    def drain_events(self, timeout: float | None = None) -> None:
        """Handle one event: a message, a return, the end of a consumer or of a channel.

        Raises:
            TimeoutError: There was none within `timeout` seconds (None = no limit).
        """
        if not self.events:
            self._await_event(timeout)
        self._handle_one()

    def _await_event(self, timeout_s: float | None) -> None:
        deadline = None if timeout_s is None else monotonic() + timeout_s
        left = timeout_s
        with self.lock:
            while not self.events:
                self.pump(left)
                if self.events:
                    return
                self.check()
                if deadline is not None:
                    left = deadline - monotonic()
                    if left <= 0:
                        raise TimeoutError("timed out")

    def _handle_one(self) -> None:
        self.check()  # what arrived before the end is requeued by the broker
        _, handle, value = self.events.popleft()
        handle(value)

    def register(self, loop: Any) -> None:
        """Handle events in kombu's asynchronous loop (kombu.asynchronous.Hub), also those that other calls have read.

        Such calls wake the loop by a pair of sockets: its call_soon() does not end a wait that begins afterwards.
        """
        self._close_waker()
        self._waker = socket.socketpair()
        for end in self._waker:
            end.setblocking(False)
        loop.add_reader(self.sock, self._turn)
        loop.add_reader(self._waker[0], self._woken, self._waker[0])
        self._is_woken = False
        if self.events:
            self._wake()

    def _woken(self, waker: socket.socket) -> None:
        waker.recv(64)
        self._turn()

    def _turn(self) -> None:
        """Handle what has arrived, a limited number of events."""
        self._is_woken = True  # the loop need not be woken meanwhile
        try:
            with self.lock:
                self.pump(0)
            self.check()
            for _ in range(min(len(self.events), EVENTS_PER_TURN)):
                if self.events:  # a callback may have removed some
                    self._handle_one()
        finally:
            self._is_woken = False
            if self.events:
                self._wake()

    def _wake(self) -> None:
        if self._waker is not None and not self._is_woken:
            self._is_woken = True
            self._waker[1].send(b"\0")

    def _close_waker(self) -> None:
        ends, self._waker = self._waker or (), None
        for end in ends:
            end.close()


def tls_options(ssl: bool | Mapping[str, Any]) -> dict[str, str]:
    """Return the options of the client's URL for kombu's `ssl` (Celery's broker_use_ssl).

    Args:
        ssl: False, True, or a dict of ca_certs, certfile, keyfile, password, server_hostname, cert_reqs and
            check_hostname.

    Raises:
        ValueError: It has another key.
    """
    options: dict[str, str] = {}
    if not isinstance(ssl, Mapping):
        return options
    for key, value in ssl.items():
        if key in TLS_OPTIONS:
            if value is not None:
                options[TLS_OPTIONS[key]] = str(value)
        elif key == "cert_reqs":
            if value == tls.CERT_NONE:
                options["verify"] = "verify_none"
        elif key == "check_hostname":
            if not value:
                options["server_name_indication"] = "disable"
        else:
            known = ", ".join([*TLS_OPTIONS, "cert_reqs", "check_hostname"])
            raise ValueError(f"leveret's transport has no TLS setting {key!r}; it has {known}")
    return options


def _tell_blocked(
    reason: str | None, on_blocked: Callable[[str], object] | None, on_unblocked: Callable[[], object] | None
) -> None:
    if reason is None:
        if on_unblocked is not None:
            on_unblocked()
    elif on_blocked is not None:
        on_blocked(reason)
