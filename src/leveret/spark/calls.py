"""Requests to a service over direct reply-to: many outstanding at a time, asked again where the connection is lost."""

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
from leveret.client.requests import REPLY_TO
from leveret.wire.properties import text_property

RECONNECT_PAUSE_S: Final = 0.2
"""Between two attempts to connect again."""


class Asker(Protocol):
    """Who is told what came of a request; ``row`` is the number it was asked with."""

    def reply(self, row: int, body: bytes) -> None: ...

    def failure(self, row: int, error: Exception) -> None: ...


class NoReply(ClientError, TimeoutError):
    """No reply came in time."""

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


class Question:
    """A request that waits for its reply, until ``deadline_s`` on the monotonic clock."""

    __slots__ = ("asker", "body", "deadline_s", "row")

    def __init__(self, asker: Asker, row: int, body: bytes, deadline_s: float) -> None:
        self.asker = asker
        self.row = row
        self.body = body
        self.deadline_s = deadline_s


class Calls:
    """One connection to ask by, with at most ``window`` requests unanswered. A context manager that closes it.

    Replies are found by correlation ids. A connection that is lost is made anew until the oldest request has waited
    for ``timeout_s`` seconds; what has no reply yet is asked again there, so a service may get a request twice.
    Raises as :class:`leveret.client.BlockingConnection` does where the broker is not reached at first.
    """

    def __init__(self, url: str, exchange: str, routing_key: str, window: int, timeout_s: float) -> None:
        self._url = url
        self._exchange = exchange
        self._routing_key = routing_key
        self._window = window
        self._timeout_s = timeout_s
        self._pending: dict[str, Question] = {}
        self._returned: list[Unroutable] = []
        self._request = Properties(reply_to=REPLY_TO)
        self._connect()

    def ask(self, asker: Asker, row: int, body: bytes) -> None:
        """Send a request; waits for replies to others while the window is full. Errors as of :meth:`receive`."""
        while len(self._pending) >= self._window:
            self.receive()
        try:
            self._send(Question(asker, row, body, monotonic() + self._timeout_s))
        except ConnectionClosed as error:
            self._reconnect(error)

    def receive(self) -> None:
        """Wait until something comes of any request, and hand on all that came.

        Raises ``ChannelClosed`` where the broker refuses what is asked (no such exchange, no permission), and
        ``ConnectionClosed`` where it stays away for as long as a request may wait.
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
        """Close the connection; replies that come later are dropped by the broker."""
        self._connection.close()

    def __enter__(self) -> Calls:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _connect(self) -> None:
        self._connection = BlockingConnection(self._url, name="leveret spark rpc")
        self._channel: BlockingChannel = self._connection.channel()
        self._channel.on_return(self._on_return)
        # the broker refuses a request that wants its reply here before there is a consumer of replies
        self._channel.consume(REPLY_TO, no_ack=True)
        self._prefix = secrets.token_hex(6)
        self._numbers = itertools.count()

    def _send(self, question: Question) -> None:
        correlation_id = f"{self._prefix}{next(self._numbers):x}"
        self._pending[correlation_id] = question
        self._request.correlation_id = correlation_id
        self._channel.publish(question.body, self._exchange, self._routing_key, self._request, True)

    def _reconnect(self, lost: ConnectionClosed) -> None:
        """Connect anew and ask again, in the old order, until that holds or the oldest request has waited too long."""
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
        self._channel.interrupt(error)  # nothing else may come

    def _hand_back(self) -> None:
        returned, self._returned = self._returned, []
        self._channel.interrupt(None)
        for error in returned:
            question = self._pending.pop(error.properties.correlation_id or "", None)
            if question is not None:
                question.asker.failure(question.row, error)
