"""The requests by which a link declares its objects upstream; names, flags and arguments as in RabbitMQ's links."""

from __future__ import annotations

import struct
from typing import Final

from leveret.broker.exchanges.exchange import Exchange
from leveret.client.protocol import requests
from leveret.client.protocol.requests import Request
from leveret.federation.names import PURPOSE, QUEUE_PURPOSE, UPSTREAM_KIND
from leveret.federation.plan import LinkPlan
from leveret.wire.method import method_frame
from leveret.wire.table import Value, encode_value, join_table

POSITIONS: Final = "x-leveret-positions"
"""Argument of a queue that keeps its messages' positions over restarts, and of a consumer that wants them."""
PLAIN_KIND: Final = "fanout"
"""Used instead of x-federation-upstream if the upstream lacks that type: hops are then checked on this side only."""



def exists(exchange: str) -> Request:
    """Check whether an exchange of this name exists."""
    return requests.declare_exchange(exchange, "direct", False, False, False, True, None)


def upstream_exchange(plan: LinkPlan, exchange: Exchange) -> Request:
    """Declare the upstream exchange, with the properties of the federated one."""
    return requests.declare_exchange(
        plan.upstream.exchange, exchange.kind, exchange.durable, exchange.auto_delete, exchange.internal, False,
        exchange.arguments,
    )  # fmt: skip


def upstream_queue(plan: LinkPlan, name: str, has_positions: bool) -> Request:
    """Declare the upstream queue. has_positions: the upstream can send the positions of its messages."""
    upstream = plan.upstream
    arguments: dict[str, Value] = {QUEUE_PURPOSE: PURPOSE}
    if upstream.expires_ms is not None:
        arguments["x-expires"] = upstream.expires_ms
    if upstream.message_ttl_ms is not None:
        arguments["x-message-ttl"] = upstream.message_ttl_ms
    if upstream.queue_type != "classic":  # classic is the default, also of brokers that do not know the argument
        arguments["x-queue-type"] = upstream.queue_type
    if has_positions:
        arguments[POSITIONS] = True
    return requests.declare_queue(name, True, False, False, False, arguments)


def internal_exchange(plan: LinkPlan, name: str, kind: str) -> Request:
    """Declare the exchange between upstream exchange and upstream queue; it is deleted together with its queue."""
    request = requests.declare_exchange(name, kind, True, True, True, False, None)
    fields: list[tuple[bytes, bytes]] = []
    if kind == UPSTREAM_KIND:
        fields = [
            (b"x-max-hops", b"l" + struct.pack(">q", plan.upstream.max_hops)),  # other integers are refused
            (b"x-downstream-name", encode_value(plan.cluster)),
            (b"x-downstream-vhost", encode_value(plan.vhost)),
        ]
    request.values["arguments"] = join_table([*fields, (QUEUE_PURPOSE.encode(), encode_value(PURPOSE))])
    return request


def frame(channel: int, request: Request, no_wait: bool = False) -> bytes:
    """Encode a request as a frame; with no_wait it asks for no answer."""
    values = {**request.values, "no_wait": True} if no_wait else request.values
    return method_frame(channel, request.spec, **values)
