"""A hypothetical message: how the broker would represent it, and why it would refuse it."""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from leveret.broker.access.users import WRITE
from leveret.broker.delayed.delay import delay_us_of
from leveret.broker.exchange_types.envelope import Envelope
from leveret.broker.exchanges.exchange import Exchange
from leveret.broker.messages import carbon_copies
from leveret.broker.messages.carbon_copies import CarbonCopies
from leveret.broker.messages.contents import HEADER_AT
from leveret.broker.messages.properties import check_said_user, expiration_us
from leveret.broker.names import DEFAULT_EXCHANGE
from leveret.broker.vhost import VHost
from leveret.control.node import BrokerNode
from leveret.control.refusal import bad_request
from leveret.control.validation.checks import user_named
from leveret.wire.errors import ProtocolError
from leveret.wire.frames import content_frames
from leveret.wire.properties import text_property
from leveret.wire.scan import HeaderScan
from leveret.wire.table import encode_short

CHANNEL: Final = 1


class ExplainedMessage:
    """A message as the broker has it; key, keys and content as those of an entry and its route."""

    def __init__(self, key: bytes, keys: list[str], content: bytes, ttl_us: int) -> None:
        self.key = key
        self.keys = keys
        self.content = content
        self.ttl_us = ttl_us  # its own time to live, -1 = none

    def envelope(self) -> Envelope:
        """Return the message as exchanges see it."""
        return Envelope(self.keys, self.key, self.content)


def message_of(exchange: str, routing_key: str, header: bytes) -> tuple[ExplainedMessage, list[str]]:
    """Return the message with this header, and why a broker would refuse it from any publisher.

    Raises Refused if a name is too long for AMQP.
    """
    try:
        key = encode_short(exchange) + encode_short(routing_key)
    except ValueError as error:
        raise bad_request(str(error)) from None
    content = content_frames(CHANNEL, header, b"", 0)
    message = ExplainedMessage(key, [routing_key], content, -1)
    troubles: list[str] = []
    try:
        scan = HeaderScan()
        scan.scan(content, HEADER_AT, HEADER_AT + i64(len(header)))
        if scan.expiration_at != 0:
            message.ttl_us = int(expiration_us(content, scan.expiration_at))
        if scan.headers_at != 0 and carbon_copies.may_have(content, scan.headers_at):
            found = CarbonCopies(content)
            message = ExplainedMessage(
                found.kept_key(key), [routing_key, *found.cc, *found.bcc], found.content, message.ttl_us
            )  # fmt: skip
        mode = int(scan.delivery_mode)
        if mode == 0 or mode > 2:
            troubles.append(f"406 PRECONDITION_FAILED - invalid message: {{delivery_mode_unknown,{mode}}}")
    except ProtocolError as error:
        troubles.append(str(error))
    return message, troubles


def refusals(
    node: BrokerNode, vhost: VHost, name: str, exchange: Exchange | None, message: ExplainedMessage, user: str | None
) -> list[str]:
    """Return why the broker would refuse it from this user; with None, permissions are not checked."""
    found: list[str] = []
    where = f"in vhost '{vhost.name}'"
    if node.broker.block_reason:
        found.append(f"the broker is not accepting messages: {node.broker.block_reason}")
    if name and exchange is None:
        found.append(f"404 NOT_FOUND - no exchange '{name}' {where}")
    if exchange is not None and exchange.internal:
        found.append(f"403 ACCESS_REFUSED - cannot publish to internal exchange '{name}' {where}")
    if exchange is not None and exchange.schedule is not None:
        try:
            delay_us_of(message.content)
        except ProtocolError as error:
            found.append(str(error))
    if user is not None:
        found += _denied(node, vhost, name, exchange, message, user)
    return found


def _denied(
    node: BrokerNode, vhost: VHost, name: str, exchange: Exchange | None, message: ExplainedMessage, user: str
) -> list[str]:
    user_named(node, user)
    access = node.broker.access(user, vhost.name)
    where = f"in vhost '{vhost.name}' refused for user '{user}'"
    found: list[str] = []
    if not access.may(WRITE, name or DEFAULT_EXCHANGE):
        found.append(
            f"403 ACCESS_REFUSED - access to exchange '{name or DEFAULT_EXCHANGE}' {where} (no write permission)"
        )
    for key in message.keys:
        if not access.may_use_topic(WRITE, exchange, key):
            text = f"access to topic '{key}' in exchange '{name}' {where} (topic permission)"
            found.append(f"403 ACCESS_REFUSED - {text}")
            break
    said = text_property(_header(message.content), "user_id")
    if said is not None:
        try:
            check_said_user(node.broker.users, user, said)
        except ProtocolError as error:
            found.append(str(error))
    return found


def _header(content: bytes) -> bytes:
    return content[HEADER_AT : HEADER_AT + int.from_bytes(content[3:7], "big")]
