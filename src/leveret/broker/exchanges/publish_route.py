"""The route of a basic.publish, found by the octets of its frame; its errors are reported in RabbitMQ's order."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mypy_extensions import i64

from leveret.broker.access.access import EXCHANGE, check_publish, refused
from leveret.broker.access.users import WRITE
from leveret.broker.exchanges import routing
from leveret.broker.exchanges.route import Route
from leveret.broker.names import DEFAULT_EXCHANGE, PUBLISHER, STAGE
from leveret.broker.vhost import ROUTES_MAX
from leveret.wire import dump
from leveret.wire.errors import ACCESS_REFUSED, FRAME_ERROR, NOT_FOUND, NOT_IMPLEMENTED, ProtocolError

if TYPE_CHECKING:
    from leveret.broker.peer import Peer


def published_route(peer: Peer, method: bytes) -> Route:
    """Return the route of a raw basic.publish frame: 7 octets of frame head, 4 of ids, 2 of ticket, then the fields."""
    fields = method[13:-1] if len(method) > 13 else b""  # in compiled code a slice must not end before it begins
    vhost = peer.vhost
    routes = vhost.routes
    found = routes.get(fields)
    access = peer.access()
    if found is not None:
        if not access.may_all:
            check_publish(peer, access, found)
        return found
    size: i64 = len(fields)
    middle: i64 = 1 + fields[0] if size else 0
    if middle >= size or middle + 2 + fields[middle] != size:
        raise ProtocolError(FRAME_ERROR, f"cannot decode {dump.numbers(method[11:-1])}", 60, 40)
    flags = fields[size - 1]
    if flags & 2:
        raise ProtocolError(NOT_IMPLEMENTED, "immediate=true", 60, 40)
    name = fields[1:middle].decode("utf-8", "surrogateescape")
    if not access.may(WRITE, name or DEFAULT_EXCHANGE):
        raise refused(peer, f"{EXCHANGE} '{name or DEFAULT_EXCHANGE}'", 60, 40)
    exchange = vhost.exchanges.get(name)
    if name and exchange is None:
        raise ProtocolError(NOT_FOUND, f"no exchange '{name}' in vhost '{vhost.name}'", 60, 40)
    if exchange is not None and exchange.internal:
        text = f"cannot publish to internal exchange '{name}' in vhost '{vhost.name}'"
        raise ProtocolError(ACCESS_REFUSED, text, 60, 40)
    key = fields[middle + 1 : size - 1].decode("utf-8", "surrogateescape")
    route = routing.find(vhost, exchange, fields[: size - 1], [key], peer.seeker)
    route.demand(flags & 1 != 0)
    if exchange is None and key in (STAGE, PUBLISHER):
        route.is_order = route.is_per_message = True
    check_publish(peer, access, route)
    if route.generation != routing.STALE:
        if len(routes) >= ROUTES_MAX:
            routes.clear()
        routes[fields] = route
    return route
