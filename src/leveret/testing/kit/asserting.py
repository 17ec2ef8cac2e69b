"""Assertions on the messages that were published, with failure messages that say what was published instead."""

from __future__ import annotations

import json as json_module
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from leveret.testing.kit.looking import NAMES_MAX, listed
from leveret.testing.kit.record import Message

BODY_SHOWN_MAX: Final = 60
_ABSENT: Final = object()
_STATES: Final[dict[bool | None, str]] = {
    True: "confirmed",
    False: "refused by basic.nack",
    None: "not confirmed yet, or its channel is not in confirm mode",
}


@dataclass(frozen=True, slots=True)
class MessageFilter:
    """A filter for messages. A message matches if it meets all criteria that are given; None (for json: ...) means any.

    Attributes:
        body: bytes, or text that is encoded as UTF-8.
        json: the value of the body, parsed as JSON.
        headers: the message must have these headers, and may have others.
        properties: values by name, e.g. {"correlation_id": "7"}.
        where: a predicate on the message.
    """

    exchange: str | None = None
    routing_key: str | None = None
    body: bytes | str | None = None
    json: Any = ...
    headers: Mapping[str, Any] | None = None
    properties: Mapping[str, Any] | None = None
    vhost: str | None = None
    where: Callable[[Message], bool] | None = None

    def differs(self, message: Message) -> str:
        """Return the first criterion that the message does not meet; "" if it matches."""
        for name in ("vhost", "exchange", "routing_key"):
            wanted = getattr(self, name)
            if wanted is not None and wanted != getattr(message, name):
                return name
        body = self.body.encode() if isinstance(self.body, str) else self.body
        if body is not None and body != message.body:
            return "body"
        if self.json is not ... and not _says(message, self.json):
            return "JSON body"
        for key, value in (self.headers or {}).items():
            if message.headers.get(key, _ABSENT) != value:
                return f"header {key!r}"
        for key, value in (self.properties or {}).items():
            if getattr(message.properties, key) != value:
                return key
        return "" if self.where is None or self.where(message) else "where"

    def __str__(self) -> str:
        words = [
            f"{name.replace('_', ' ')} {getattr(self, name)!r}"
            for name in ("exchange", "routing_key", "body", "json", "headers", "properties", "vhost")
            if getattr(self, name) is not None and getattr(self, name) is not ...
        ]
        return " and ".join([*words, *(["such properties"] if self.where is not None else [])])


def check(wanted: MessageFilter, messages: list[Message], count: int | None, what: str = "published") -> list[Message]:
    """Return the matching messages. Raises AssertionError unless there are `count` (by default, at least one)."""
    found = [message for message in messages if not wanted.differs(message)]
    if (found and count is None) or len(found) == count:
        return found
    meant = f" with {wanted}" if str(wanted) else ""
    if count is None or (count and not found):
        text = f"no message{meant} was {what}"
    else:
        text = f"{len(found)} messages{meant} were {what}, not {count}"
    raise AssertionError(f"{text}; {_instead(wanted, messages, found)}")


def check_confirmed(messages: Iterable[Message]) -> None:
    """Raise AssertionError, with the messages concerned, unless all messages were confirmed."""
    found = list(messages)
    missing = [message for message in found if not message.confirmed]
    if missing:
        lines = [f"{shown(message)}: {_STATES[message.confirmed]}" for message in missing[:NAMES_MAX]]
        raise AssertionError(f"{len(missing)} of {len(found)} messages were not confirmed: " + "; ".join(lines))


def shown(message: Message) -> str:
    """Describe a message on one line."""
    body = repr(message.body[:BODY_SHOWN_MAX]) + ("…" if len(message.body) > BODY_SHOWN_MAX else "")
    return f"exchange {message.exchange!r}, key {message.routing_key!r}, body {body}"


def _says(message: Message, wanted: Any) -> bool:
    try:
        return bool(json_module.loads(message.body) == wanted)
    except ValueError:
        return False


def _instead(wanted: MessageFilter, messages: list[Message], found: list[Message]) -> str:
    if not messages:
        return "there were no messages at all"
    if found:
        return "they are: " + "; ".join(map(shown, found[:NAMES_MAX]))
    near = [message for message in messages if not _addressed(wanted).differs(message)]
    if near:
        others = Counter(f"{shown(message)} (another {wanted.differs(message)})" for message in near)
        return "there were: " + "; ".join(f"{count} × {text}" for text, count in others.most_common(NAMES_MAX))
    if wanted.routing_key is not None:
        same = [message for message in messages if wanted.exchange in (None, message.exchange)]
        if same:
            return f"the routing keys were: {listed((message.routing_key for message in same), wanted.routing_key)}"
    places = Counter((message.exchange, message.routing_key) for message in messages).most_common(NAMES_MAX)
    return "there were: " + "; ".join(f"{count} × exchange {name!r}, key {key!r}" for (name, key), count in places)


def _addressed(wanted: MessageFilter) -> MessageFilter:
    """Return the filter reduced to virtual host, exchange and routing key."""
    return MessageFilter(wanted.exchange, wanted.routing_key, vhost=wanted.vhost)
