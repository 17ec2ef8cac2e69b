"""A record of every message that a broker received, confirmed and delivered, and of its log."""

from __future__ import annotations

import json
import logging
import threading
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from leveret.wire.properties import Properties, decode_header
from leveret.wire.table import decode_table, join_table

if TYPE_CHECKING:
    from leveret.broker.broker import Broker
    from leveret.broker.vhost import VHost

logger = logging.getLogger("leveret")

KEPT_MAX: Final = 50_000
_REPLY: Final = "amq.rabbitmq.reply-to"


@dataclass(slots=True)
class Message:
    """A message as it was published, or as it is stored in a queue.

    Attributes:
        queues: the queues that it was routed to.
        confirmed: True after basic.ack, False after basic.nack, None if unconfirmed or not in confirm mode.
        redelivered: the flag of a message that is in a queue or was delivered.
        connection: the broker's name of the connection; "" for a message in a queue.
        keys: the routing keys with those of CC and BCC.
    """

    exchange: str
    routing_key: str
    body: bytes
    properties: Properties
    vhost: str = "/"
    queues: tuple[str, ...] = ()
    connection: str = ""
    channel: int = 0
    user: str = ""
    confirmed: bool | None = None
    redelivered: bool = False
    keys: tuple[str, ...] = field(default=(), repr=False)

    @property
    def headers(self) -> dict[str, Any]:
        """Return the headers; empty if there are none."""
        return dict(self.properties.headers or {})

    @property
    def text(self) -> str:
        """Decode the body as UTF-8. Raises UnicodeDecodeError."""
        return self.body.decode()

    def json(self) -> Any:
        """Parse the body as JSON. Raises ValueError."""
        return json.loads(self.body)


@dataclass(slots=True)
class _Event:
    vhost: str
    key: str
    entries: list[tuple[bytes, bytes]]
    content: bytes
    is_lost: bool


class Record:
    """A record of the firehoses of all virtual hosts, over all runs of the broker; the newest KEPT_MAX are kept.

    The broker's thread appends raw events; they are decoded when a test asks for them.
    """

    def __init__(self) -> None:
        self.log: deque[str] = deque(maxlen=1000)
        self._heard: deque[_Event] = deque(maxlen=KEPT_MAX)
        self._published: deque[Message] = deque(maxlen=KEPT_MAX)
        self._delivered: deque[tuple[str, Message]] = deque(maxlen=KEPT_MAX)
        self._numbered: dict[tuple[str, int], dict[int, Message]] = {}
        self._lock = threading.Lock()

    def listen(self, broker: Broker) -> None:
        """To another run of the broker."""
        from leveret.broker.exchanges import tracing
        from leveret.broker.storage.definitions import VHOST

        def defined(kind: str, key: tuple[str, ...], definition: object) -> None:
            if kind == VHOST and definition is not None:
                tracing.listen(broker.vhosts[key[0]], broker.cluster_name.value, self._hear)

        broker.on_event = self._log
        broker.definitions.listeners.append(defined)
        for vhost in broker.vhosts.values():
            tracing.listen(vhost, broker.cluster_name.value, self._hear)

    def published(self) -> list[Message]:
        """Return all messages that clients have published, oldest first."""
        with self._lock:
            self._look()
            return list(self._published)

    def delivered(self) -> list[tuple[str, Message]]:
        """Return all deliveries to clients, oldest first, as pairs of queue and message."""
        with self._lock:
            self._look()
            return list(self._delivered)

    def clear(self) -> None:
        """Forget all messages and the log."""
        with self._lock:
            self._look()
            self._published.clear()
            self._delivered.clear()
            self.log.clear()

    def _log(self, text: str) -> None:
        self.log.append(text)
        logger.info("%s", text)

    def _hear(self, vhost: VHost, key: str, entries: list[tuple[bytes, bytes]], content: bytes) -> None:
        """Append an event; called on the broker's loop, within a turn."""
        # the default exchange routes without checking that the queue exists, and later it may
        is_lost = key == "publish." and not any(name in vhost.queues for name in _names(entries, b"routed_queues"))
        self._heard.append(_Event(vhost.name, key, entries, content, is_lost))

    def _look(self) -> None:
        while self._heard:
            event = self._heard.popleft()
            what, _, name = event.key.partition(".")
            facts = decode_table(join_table(event.entries), 0)[0]
            if what == "confirm":
                self._answer(facts, name == "ack")
                continue
            message = _message(event, facts)
            if what == "deliver":
                self._delivered.append((name, message))
                continue
            self._published.append(message)
            number = facts.get("publish_seq_no")
            if isinstance(number, int):
                channel = self._numbered.setdefault((message.connection, message.channel), {})
                if number == 1:
                    channel.clear()  # a new channel with the same number
                channel[number] = message

    def _answer(self, facts: dict[str, Any], is_confirmed: bool) -> None:
        waiting = self._numbered.get((facts["connection"], facts["channel"]), {})
        for number in range(facts["first_seq_no"], facts["last_seq_no"] + 1):
            message = waiting.pop(number, None)
            if message is not None:
                message.confirmed = is_confirmed


def _names(entries: list[tuple[bytes, bytes]], wanted: bytes) -> list[Any]:
    found: list[Any] = []
    for name, value in entries:
        if name == wanted:
            found += decode_table(join_table([(name, value)]), 0)[0][name.decode()]  # type: ignore[arg-type]
    return found


def _message(event: _Event, facts: dict[str, Any]) -> Message:
    keys = tuple(facts["routing_keys"])
    queues = () if event.is_lost else tuple(facts.get("routed_queues", ()))
    if keys and keys[0].startswith(_REPLY):
        queues = (keys[0],)  # a direct reply, which goes to its requester
    return read_message(
        event.content, facts["exchange_name"], keys[0] if keys else "", vhost=event.vhost, queues=queues,
        connection=facts["connection"], channel=facts["channel"], user=facts["user"], keys=keys,
        redelivered=bool(facts.get("redelivered")),
    )  # fmt: skip


def read_message(content: bytes, exchange: str, routing_key: str, **others: Any) -> Message:
    """Decode a message from its frames as the broker stores them: a header frame, then body frames."""
    size = int.from_bytes(content[3:7], "big")
    properties = decode_header(content[7 : 7 + size])[0]
    at, parts = size + 8, []
    while at < len(content):
        size = int.from_bytes(content[at + 3 : at + 7], "big")
        parts.append(content[at + 7 : at + 7 + size])
        at += size + 8
    return Message(exchange, routing_key, b"".join(parts), properties, **others)
