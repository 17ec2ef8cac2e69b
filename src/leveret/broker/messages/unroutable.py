"""Messages that reach no queue: returned to their publishers, or counted and dropped."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leveret.wire import grammar
from leveret.wire.errors import NO_ROUTE

if TYPE_CHECKING:
    from leveret.broker.channel import BrokerChannel
    from leveret.broker.exchanges.route import Route
    from leveret.broker.peer import Peer


def return_message(peer: Peer, channel: BrokerChannel, route: Route, content: bytes) -> None:
    """Send basic.return if the message is mandatory, even if a direct reply's requester got it."""
    counters = peer.vhost.tally.counters
    if not route.is_mandatory:
        if not route.replies:
            channel.counters.drop_unroutable += 1
            counters.drop_unroutable += 1
        return
    if channel.publisher is not None:
        channel.publisher.refuse(1)
    channel.counters.return_unroutable += 1
    counters.return_unroutable += 1
    peer.send(
        channel.number,
        grammar.BASIC_RETURN,
        reply_code=NO_ROUTE,
        reply_text="NO_ROUTE",
        exchange=route.exchange.name if route.exchange is not None else "",
        routing_key=route.keys[0],
    )
    peer.output.writer.write(content)
