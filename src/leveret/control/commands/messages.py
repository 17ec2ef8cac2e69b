"""Publishes and fetches single messages as an AMQP client does, for inspection and tests, not for regular traffic."""

from __future__ import annotations

import binascii
from base64 import b64decode, b64encode
from collections.abc import Iterator
from typing import Any, ClassVar, Final, Literal

import msgspec

from leveret.control.command import Command
from leveret.control.direct import FRAME_OCTETS_MAX, DirectChannel, reply_refusal
from leveret.control.node import BrokerNode
from leveret.control.refusal import NOT_AUTHORISED, Refused, bad_request
from leveret.control.tables import encoded_table, plain_table, sayable
from leveret.wire import grammar
from leveret.wire.errors import ProtocolError
from leveret.wire.frames import FRAME_OVERHEAD, Frame
from leveret.wire.method import Method
from leveret.wire.properties import PROPERTIES, Properties, decode_header, encode_header, replace_property

# octets of bodies in one answer; when they are exceeded, a call returns no more messages, however many it asked for
ANSWER_OCTETS_MAX: Final = 16 << 20
_INTEGERS: Final = {"octet": 0xFF, "longlong": (1 << 64) - 1}


class Publish(Command):
    """Do basic.publish, mandatory; answers whether the message was routed."""

    vhost: str
    exchange: str  # "" or amq.default is the default exchange
    routing_key: str
    payload: str  # text, or octets in base64
    payload_encoding: str = "string"
    properties: dict[str, Any] = msgspec.field(default_factory=dict)
    user: str | None = None  # whose permissions count, None = no check
    secrets: ClassVar[tuple[str, ...]] = ("payload", "properties")

    def run(self, node: BrokerNode) -> object:
        _check_vhost(node, self.vhost)
        body = self._body()
        if len(body) > node.broker.settings.max_message_octets:
            most = node.broker.settings.max_message_octets
            raise bad_request(f"message size {len(body)} is larger than configured max size {most}")
        if node.broker.block_reason:
            raise bad_request(f"the broker is not accepting messages: {node.broker.block_reason}")
        exchange = "" if self.exchange == "amq.default" else self.exchange
        with DirectChannel(node, self.vhost, self.user) as channel:
            try:
                routed = channel.publish(exchange, self.routing_key, published_header(self.properties, len(body)), body)
            except ProtocolError as error:
                raise bad_request(f"{error.code} {error.reply_text}") from None
        return {"routed": routed}

    def _body(self) -> bytes:
        if self.payload_encoding == "string":
            return self.payload.encode()
        if self.payload_encoding != "base64":
            raise bad_request(f"unsupported_encoding: {self.payload_encoding}")
        try:
            return b64decode(self.payload, validate=True)
        except binascii.Error:
            raise bad_request(f"not_base64: {self.payload}") from None


def _check_vhost(node: BrokerNode, name: str) -> None:
    """Raise Refused as for a lack of permission, which is RabbitMQ's answer for a virtual host that does not exist."""
    if name not in node.broker.vhosts:
        raise Refused(NOT_AUTHORISED, "Access refused.")


def published_header(properties: dict[str, Any], size: int) -> bytes:
    """Return the payload of a header frame, without unknown properties, as in RabbitMQ. Refused for invalid ones."""
    known: dict[str, Any] = {}
    for name, kind in PROPERTIES:
        value = properties.get(name)
        if name not in properties or kind == "table":
            continue
        if kind in _INTEGERS:
            if not isinstance(value, int) or isinstance(value, bool):
                raise bad_request(f"not_int: {name}")
            if not 0 <= value <= _INTEGERS[kind]:
                raise bad_request(f"{name} must be from 0 to {_INTEGERS[kind]}, not {value}")
        elif not isinstance(value, str):
            raise bad_request(f"not_string: {name}")
        known[name] = value
    try:
        header = encode_header(Properties(**known), size)
    except ValueError as error:
        raise bad_request(str(error)) from None
    headers = properties.get("headers")
    if headers is not None:
        if headers and not isinstance(headers, dict):
            raise bad_request("headers must be a table")
        header = replace_property(header, "headers", encoded_table(headers or {}))
    if len(header) + FRAME_OVERHEAD > FRAME_OCTETS_MAX:
        raise bad_request(f"the properties have {len(header)} bytes; a frame holds at most {FRAME_OCTETS_MAX}")
    return header


class GetMessages(Command):
    """Do basic.get repeatedly. At the end, messages that were not acknowledged are requeued or rejected."""

    vhost: str
    queue: str
    ackmode: Literal["ack_requeue_true", "ack_requeue_false", "reject_requeue_true", "reject_requeue_false"]
    count: int  # negative = all
    encoding: str = "auto"  # "auto": bodies as text if they are UTF-8
    truncate: int | None = None  # most octets of each body
    user: str | None = None  # whose permissions count, None = no check

    def run(self, node: BrokerNode) -> object:
        if self.encoding not in ("auto", "base64"):
            raise bad_request("Unsupported encoding. Please use auto or base64.")
        if self.truncate is not None and self.truncate < 0:
            raise bad_request(f"truncate must not be negative, but is {self.truncate}")
        _check_vhost(node, self.vhost)
        return self._messages(node)

    def _messages(self, node: BrokerNode) -> Iterator[object]:
        octets = 0
        tags: list[int] = []
        no_ack = self.ackmode == "ack_requeue_false"
        with DirectChannel(node, self.vhost, self.user) as channel:
            try:
                while len(tags) != self.count and octets < ANSWER_OCTETS_MAX:
                    answer, content = channel.call(grammar.BASIC_GET, queue=self.queue, no_ack=no_ack)
                    if answer.spec is grammar.BASIC_GET_EMPTY:
                        break
                    body = b"".join([frame.payload for frame in content[1:]])
                    octets += len(body)
                    tags.append(answer.number("delivery_tag"))
                    yield self._message(answer, content[0], body)
                for tag in tags if self.ackmode.startswith("reject") else ():
                    requeue = self.ackmode == "reject_requeue_true"
                    channel.tell(grammar.BASIC_REJECT, delivery_tag=tag, requeue=requeue)
            except ProtocolError as error:
                raise reply_refusal(error) from None

    def _message(self, answer: Method, header: Frame, body: bytes) -> dict[str, object]:
        payload, encoding = shown_body(body if self.truncate is None else body[: self.truncate], self.encoding)
        return {
            "payload_bytes": len(body),
            "redelivered": answer.flag("redelivered"),
            "exchange": sayable(answer.text("exchange")),
            "routing_key": sayable(answer.text("routing_key")),
            "message_count": answer.number("message_count"),
            "properties": shown_properties(header.payload) or [],  # Erlang writes an empty table as an empty list
            "payload": payload,
            "payload_encoding": encoding,
        }


def shown_properties(header: bytes) -> dict[str, object]:
    """Return the properties of a content header as the HTTP API shows them. Raises ProtocolError if it is malformed."""
    properties, _ = decode_header(header)
    said = {name: getattr(properties, name) for name, _ in PROPERTIES}
    return plain_table({name: value for name, value in said.items() if value is not None})


def shown_body(octets: bytes, encoding: str) -> tuple[str, str]:
    """Return a body as text for JSON, and its encoding; "auto" is "string" if the body is UTF-8, else "base64"."""
    if encoding == "auto":
        try:
            return octets.decode(), "string"
        except UnicodeDecodeError:
            pass
    return b64encode(octets).decode(), "base64"
