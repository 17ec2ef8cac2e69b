"""Requests to a service over direct reply-to: many outstanding at a time, repeated when the connection is lost."""

from __future__ import annotations

import itertools
import secrets
from time import monotonic, sleep
from types import TracebackType
from typing import Final, Protocol

from leveret.client import (
    AuthenticationFailed,
    BlockingChannel,
    BlockingConnection,
    ClientError,
    ConnectionClosed,
    Properties,
    Unroutable,
)
from leveret.client.protocol.requests import REPLY_TO
from leveret.wire.properties import text_property

RECONNECT_PAUSE_S: Final = 0.2
"""Pause between two attempts to reconnect."""


class Asker(Protocol):
    """Receives the outcome of a request; ``row`` is the number that was passed with the request."""

    def reply(self, row: int, body: bytes) -> None: ...

    def failure(self, row: int, error: Exception) -> None: ...


class NoReply(ClientError, TimeoutError):
    """No reply arrived within ``timeout_s`` seconds."""

    def __init__(self, exchange: str, routing_key: str, timeout_s: float) -> None:
        super().__init__(exchange, routing_key, timeout_s)
        self.exchange = exchange
        self.routing_key = routing_key
        self.timeout_s = timeout_s

    def __str__(self) -> str:
        where = f"exchange {self.exchange!r}" if self.exchange else "the default exchange"
        return (
            f"no reply within {self.timeout_s:g} s from the service at {where} with routing key {self.routing_key!r};"
            " rpc(timeout=…) allows more"
        )


class PendingRequest:
    """A request that waits for its reply."""

    __slots__ = ("asker", "body", "deadline_s", "row")

    def __init__(self, asker: Asker, row: int, body: bytes, deadline_s: float) -> None:
        self.asker = asker
        self.row = row
        self.body = body
        self.deadline_s = deadline_s  # on the monotonic clock


class Calls:
    """A connection for requests, with at most ``window`` of them unanswered. A context manager that closes it.

    Replies are matched by correlation id. A lost connection is reopened until the oldest request has waited for
    ``timeout_s`` seconds; requests without a reply are sent again, so a service may receive a request twice. The
    constructor raises the same errors as :class:`leveret.client.BlockingConnection` if the broker cannot be reached.
    """

    def __init__(self, url: str, exchange: str, routing_key: str, window: int, timeout_s: float) -> None:
        self._url = url
        self._exchange = exchange
        self._routing_key = routing_key
        self._window = window
        self._timeout_s = timeout_s
        self._pending: dict[str, PendingRequest] = {}
        self._returned: list[Unroutable] = []
        self._request = Properties(reply_to=REPLY_TO)
        self._connect()

    def ask(self, asker: Asker, row: int, body: bytes) -> None:
        """Send a request; while the window is full, wait for other replies first. Raises the errors of
        :meth:`receive`."""
        while len(self._pending) >= self._window:
            self.receive()
        try:
            self._send(PendingRequest(asker, row, body, monotonic() + self._timeout_s))
        except ConnectionClosed as error:
            self._reconnect(error)

    def receive(self) -> None:
        """Wait until at least one request has an outcome, and pass all outcomes on to their askers.

        Raises:
            ChannelClosed: the broker refuses the request (no such exchange, no permission).
            ConnectionClosed: the broker was unreachable for as long as a request may wait.
        """
        oldest = next(iter(self._pending.values()))
        left_s = oldest.deadline_s - monotonic()
        try:
            arrived = self._channel.deliveries(self._window, max(0.0, left_s))
        except Unroutable:
            arrived = []
        except ConnectionClosed as error:
            self._reconnect(error)
            return
        for delivery in arrived:
            question = self._pending.pop(text_property(delivery.header, "correlation_id") or "", None)
            if question is not None:
                question.asker.reply(question.row, delivery.body)
        if self._returned:
            self._hand_back()
        elif not arrived and left_s <= 0:
            self._give_up()

    def close(self) -> None:
        """Close the connection; the broker drops replies that arrive later."""
        self._connection.close()

    def __enter__(self) -> Calls:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _connect(self) -> None:
        self._connection = BlockingConnection(self._url, name="leveret spark rpc", reconnect=False)
        self._channel: BlockingChannel = self._connection.channel()
        self._channel.on_return(self._on_return)
        # the broker refuses a request with this reply-to before the channel consumes replies
        self._channel.consume(REPLY_TO, no_ack=True)
        self._prefix = secrets.token_hex(6)
        self._numbers = itertools.count()

    def _send(self, question: PendingRequest) -> None:
        correlation_id = f"{self._prefix}{next(self._numbers):x}"
        self._pending[correlation_id] = question
        self._request.correlation_id = correlation_id
        self._channel.publish(question.body, self._exchange, self._routing_key, self._request, True)

    def _reconnect(self, lost: ConnectionClosed) -> None:
        """Reconnect and send the pending requests again, in order; raise ``lost`` when the oldest has reached its
        deadline."""
        waiting = list(self._pending.values())
        while True:
            self._connection.close()
            try:
                self._connect()
                self._pending = {}
                for question in waiting:
                    self._send(question)
                return
            except AuthenticationFailed:
                raise
            except ConnectionClosed:
                if monotonic() >= waiting[0].deadline_s:
                    raise lost from None
            sleep(RECONNECT_PAUSE_S)

    def _give_up(self) -> None:
        now_s = monotonic()
        late = [key for key, question in self._pending.items() if question.deadline_s <= now_s]
        for correlation_id in late:
            question = self._pending.pop(correlation_id)
            question.asker.failure(question.row, NoReply(self._exchange, self._routing_key, self._timeout_s))

    def _on_return(self, error: Unroutable) -> None:
        self._returned.append(error)
        self._channel.interrupt(error)  # wakes receive(): no reply may ever arrive

    def _hand_back(self) -> None:
        returned, self._returned = self._returned, []
        self._channel.interrupt(None)
        for error in returned:
            question = self._pending.pop(error.properties.correlation_id or "", None)
            if question is not None:
                question.asker.failure(question.row, error)
