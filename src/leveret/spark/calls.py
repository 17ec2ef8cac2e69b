"""Requests to a service over direct reply-to: many outstanding at a time, repeated when the connection is lost.

Requests are encoded by whole columns, and replies are taken as octets; no object is made for each.
"""

from __future__ import annotations

import itertools
import math
import secrets
from collections import deque
from time import monotonic, sleep
from types import TracebackType
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from leveret.client import (
    AuthenticationFailed,
    BlockingConnection,
    ClientError,
    ConnectionClosed,
    Properties,
    Unroutable,
)
from leveret.client.protocol.delivering import DeliveryReader, RawDeliveries
from leveret.client.protocol.requests import REPLY_TO
from leveret.spark.rows.frames import FrameEncoder, PublishFrames
from leveret.spark.rows.properties import HEAD_SIZE
from leveret.wire.properties import encode_properties, property_spans

RECONNECT_PAUSE_S: Final = 0.2
"""Pause between two attempts to reconnect."""

ENCODED_ROWS_MAX: Final = 4096
ENCODED_OCTETS_MAX: Final = 4 << 20
"""Approximate limits of the requests that are encoded at a time."""

REFILL: Final = 4
REFILL_S: Final = 0.001
"""A window is filled again when a fourth of it is free, or when nothing arrives for this time in seconds: a request
that is sent alone costs as much as many."""

_PREFIX_OCTETS: Final = 12
_HEAD_OCTETS: Final = 20
_ROW_OCTETS: Final = 10
"""A correlation id is a head, that is a random prefix and the number of the batch in hexadecimal, and the number of the
request in decimal."""


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


class RequestBatch:
    """The requests of a record batch, numbered from 0, and their outcomes.

    ``bodies`` has the body of each request, binary without nulls. With ``keeps_errors`` a failure is an outcome;
    otherwise it is raised by the call that learns of it.
    """

    def __init__(self, bodies: pa.BinaryArray, keeps_errors: bool) -> None:
        self.bodies = bodies
        self.missing = len(bodies)  # requests without an outcome, including those that are not sent yet
        self.waiting = bytearray(len(bodies))  # 1 for each request that was sent and has no outcome
        self.replies: list[bytes | None] = [None] * len(bodies)
        self.errors: dict[int, Exception] = {}
        self._keeps_errors = keeps_errors

    def settled(self, digits: bytes) -> int | None:
        """Return the number of the request in these digits, which no longer waits; None if it did not wait."""
        row = int(digits) if digits.isdigit() else len(self.waiting)
        if row >= len(self.waiting) or not self.waiting[row]:
            return None
        self.waiting[row] = 0
        self.missing -= 1
        return row

    def fail(self, row: int, error: Exception) -> None:
        """Store why a request has no reply, or raise it."""
        if not self._keeps_errors:
            raise error
        self.errors[row] = error


class _Sent(NamedTuple):
    """Requests of a batch that were sent together: those from ``first`` on and below ``end``."""

    batch: RequestBatch
    id_head: bytes  # their correlation ids without the number of the request
    first: int
    end: int
    deadline_s: float  # on the monotonic clock

    @property
    def is_settled(self) -> bool:
        """Whether each of the requests has an outcome."""
        return self.batch.waiting.find(1, self.first, self.end) < 0

    def waiting(self) -> list[int]:
        """Return the numbers of the requests without an outcome."""
        return [self.first + place for place, flag in enumerate(self.batch.waiting[self.first : self.end]) if flag]


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
        self._prefix = secrets.token_hex(_PREFIX_OCTETS // 2).encode()
        self._numbers = itertools.count()
        self._batches: dict[bytes, RequestBatch] = {}  # with requests without an outcome, by the head of their ids
        self._sent: deque[_Sent] = deque()  # the oldest first
        self._unanswered = 0
        self._returned: list[Unroutable] = []
        self._before_row = _NONE  # the last reply's properties up to the number of its request
        self._connect()

    def ask(self, batch: RequestBatch) -> None:
        """Send the requests of a batch; while the window is full, wait for other replies first. Raises the errors of
        :meth:`receive`."""
        count = len(batch.bodies)
        if not count:
            return
        id_head = self._prefix + b"%0*x" % (_HEAD_OCTETS - _PREFIX_OCTETS, next(self._numbers))
        self._batches[id_head] = batch
        longest = pc.max(pc.binary_length(batch.bodies)).as_py()
        step = max(1, min(ENCODED_ROWS_MAX, ENCODED_OCTETS_MAX // (longest + 1)))
        for first in range(0, count, step):
            self._ask(batch, id_head, first, min(count, first + step))
        try:
            self._channel.flush()
        except ConnectionClosed as error:
            self._reconnect(error)

    def receive(self, patience_s: float = math.inf) -> bool:
        """Wait until there is news of a request, at most for ``patience_s`` seconds, and store all outcomes that have
        arrived. Returns whether there was news.

        Raises:
            ChannelClosed: the broker refuses the request (no such exchange, no permission).
            ConnectionClosed: the broker was unreachable for as long as a request may wait.
        """
        while self._sent[0].is_settled:
            sent = self._sent.popleft()
            if not sent.batch.missing:
                self._batches.pop(sent.id_head, None)
        left_s = self._sent[0].deadline_s - monotonic()
        lost: ConnectionClosed | None = None
        with self._connection.lock:  # the thread that sends heartbeats reads, too
            is_read = bool(self._raw.headers or self._returned)
            if not is_read:
                try:
                    is_read = self._channel.receive(max(0.0, min(left_s, patience_s)))
                except ConnectionClosed as error:
                    lost = error
            arrived = self._raw.take(len(self._raw))
            returned = self._returned.copy()
            self._returned.clear()
        self._store(arrived)
        for refused in returned:
            self._hand_back(refused)
        if lost is not None and self._unanswered:
            self._reconnect(lost)
        elif not is_read and left_s <= 0:
            self._give_up()
        else:
            return is_read
        return True

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
        self._channel = self._connection.channel()
        self._channel.on_return(self._returned.append)
        self._raw = RawDeliveries(self._channel.number)
        self._connection.core.deliveries = DeliveryReader(self._raw)
        # the broker refuses a request with this reply-to before the channel consumes replies
        self._channel.consume(REPLY_TO, no_ack=True, deliver=self._raw.add)
        self._encoder = FrameEncoder(self._channel.number, self._channel.frame_max, mandatory=True)

    def _ask(self, batch: RequestBatch, id_head: bytes, first: int, end: int) -> None:
        """Send the requests from ``first`` on and below ``end``, as the window allows."""
        encoder, begin, frames = None, 0, None
        while first < end:
            free = self._window - self._unanswered
            if free <= 0:
                self.receive()
                continue
            if free < min(end - first, self._window // REFILL) and self.receive(REFILL_S):
                continue
            if frames is None or encoder is not self._encoder:  # a new connection may have another frame size
                encoder, begin, frames = self._encoder, first, self._frames(batch, id_head, range(first, end))
            stop = min(end, first + free)
            batch.waiting[first:stop] = b"\1" * (stop - first)
            self._unanswered += stop - first
            self._sent.append(_Sent(batch, id_head, first, stop, monotonic() + self._timeout_s))
            try:
                self._channel.publish_frames(frames.octets(first - begin, stop - begin), stop - first)
            except ConnectionClosed as error:
                self._reconnect(error)
            first = stop

    def _frames(self, batch: RequestBatch, id_head: bytes, rows: range | list[int]) -> PublishFrames:
        """Encode requests of a batch."""
        numbers = pc.utf8_lpad(pa.array(rows, pa.int64()).cast(pa.string()), _ROW_OCTETS, "0")
        ids = pc.binary_join_element_wise(id_head.decode(), numbers, "")
        bodies = batch.bodies.take(pa.array(rows, pa.int64()))
        if pc.max(pc.binary_length(bodies)).as_py() <= self._encoder.body_max:
            columns = {
                "exchange": self._exchange,
                "routing_key": self._routing_key,
                "correlation_id": ids,
                "reply_to": REPLY_TO,
            }
            return PublishFrames(self._encoder.encode(bodies, columns))
        encoded = []
        for body, correlation_id in zip(bodies.to_pylist(), ids.to_pylist(), strict=True):
            properties = encode_properties(Properties(reply_to=REPLY_TO, correlation_id=correlation_id))
            encoded.append(self._encoder.encode_one(body, self._exchange, self._routing_key, properties))
        return PublishFrames(pa.array(encoded, pa.binary()))

    def _store(self, arrived: RawDeliveries) -> None:
        """Store replies; one that no request waits for is ignored.

        The replies of a service mostly have the same properties, except for the number of the request.
        """
        before = self._before_row
        batch = self._batches.get(before[-_HEAD_OCTETS:])
        begin = HEAD_SIZE + len(before)
        end = begin + _ROW_OCTETS
        for header, body in zip(arrived.headers, arrived.bodies, strict=True):
            if not header.startswith(before, HEAD_SIZE):
                found = _before_row(header)
                if found is None:
                    continue
                before = self._before_row = found
                batch = self._batches.get(before[-_HEAD_OCTETS:])
                begin = HEAD_SIZE + len(before)
                end = begin + _ROW_OCTETS
            if batch is not None and (row := batch.settled(header[begin:end])) is not None:
                batch.replies[row] = body
                self._unanswered -= 1

    def _hand_back(self, error: Unroutable) -> None:
        correlation_id = (error.properties.correlation_id or "").encode()
        batch = self._batches.get(correlation_id[:_HEAD_OCTETS])
        if batch is not None and (row := batch.settled(correlation_id[_HEAD_OCTETS:])) is not None:
            self._unanswered -= 1
            batch.fail(row, error)

    def _give_up(self) -> None:
        """Fail the requests that have waited for too long."""
        now_s = monotonic()
        for sent in self._sent:
            if sent.deadline_s > now_s:
                break
            for row in sent.waiting():
                sent.batch.settled(b"%d" % row)
                self._unanswered -= 1
                sent.batch.fail(row, NoReply(self._exchange, self._routing_key, self._timeout_s))

    def _reconnect(self, lost: ConnectionClosed) -> None:
        """Reconnect and send the pending requests again, in order; raise ``lost`` when the oldest has reached its
        deadline."""
        while True:
            self._connection.close()
            try:
                self._connect()
                for sent in self._sent:
                    if rows := sent.waiting():
                        frames = self._frames(sent.batch, sent.id_head, rows)
                        self._channel.publish_frames(frames.octets(0, len(rows)), len(rows))
                return
            except AuthenticationFailed:
                raise
            except ConnectionClosed:
                if monotonic() >= self._sent[0].deadline_s:
                    raise lost from None
            sleep(RECONNECT_PAUSE_S)


_NONE: Final = b"\xff\xff"
"""Property flags that no content header has."""


def _before_row(header: bytes) -> bytes | None:
    """Return the properties of a reply up to the number of its request; None if its correlation id cannot be one of
    :class:`Calls`."""
    for name, start, stop in property_spans(header):
        if name == "correlation_id" and stop - start == 1 + _HEAD_OCTETS + _ROW_OCTETS:
            return header[HEAD_SIZE : stop - _ROW_OCTETS]
    return None
