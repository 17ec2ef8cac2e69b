"""Lists of queues, exchanges, bindings, connections, channels, consumers and virtual hosts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from leveret.broker.channel import BrokerChannel
from leveret.broker.exchanges.binding import Binding
from leveret.broker.peer import Peer
from leveret.broker.queues.consumer import Consumer
from leveret.broker.queues.queue import Queue
from leveret.broker.streams.stream import Stream
from leveret.broker.vhost import VHost
from leveret.control.directory import Place
from leveret.control.listing import Listing
from leveret.control.node import BrokerNode
from leveret.control.sliced import CHUNK, Steps, choose, sort
from leveret.control.views.binding import binding_view, default_view
from leveret.control.views.channel import channel_view
from leveret.control.views.connection import connection_view, is_open
from leveret.control.views.consumer import consumer_view
from leveret.control.views.exchange import exchange_view
from leveret.control.views.queue import queue_view
from leveret.control.views.stream import stream_view
from leveret.control.views.vhost import vhost_view
from leveret.control.views.view import View

QUEUE_KEYS: Final[dict[str, Callable[[Queue], Any]]] = {
    "name": lambda queue: queue.name,
    "vhost": lambda queue: queue.vhost.name,
    "messages": lambda queue: queue.count() + queue.outstanding(),
    "messages_ready": lambda queue: queue.count(),
    "messages_unacknowledged": lambda queue: queue.outstanding(),
    "consumers": lambda queue: queue.consumers.count,
    "durable": lambda queue: queue.durable,
    "auto_delete": lambda queue: queue.auto_delete,
    "exclusive": lambda queue: queue.owner is not None,
}


class ListQueues(Listing):
    """List queues by virtual host and name."""

    def found(self, node: BrokerNode) -> Steps[list[Any]]:
        places: list[Place] = []
        for vhost in self.hosts(node):
            places += yield from node.queues.places(vhost, vhost.queues)
        return places

    def name_of(self, item: Place) -> str:
        return item[1]

    def view(self, node: BrokerNode, item: Place) -> View | None:
        queue = item[0].queues.get(item[1])
        return queue_view(node, queue) if queue is not None else None

    def quick_key(self, column: str) -> Callable[[Any], Any] | None:
        key = QUEUE_KEYS.get(column)
        if key is None:
            return None

        def of(item: Place) -> Any:
            queue = item[0].queues.get(item[1])
            return key(queue) if queue is not None else None

        return of


class ListStreams(Listing):
    """List streams by virtual host and name."""

    def found(self, node: BrokerNode) -> Steps[list[Any]]:
        places: list[Place] = []
        for vhost in self.hosts(node):
            places += yield from node.queues.places(vhost, vhost.queues)
        return (yield from choose(places, lambda place: isinstance(place[0].queues.get(place[1]), Stream)))

    def name_of(self, item: Place) -> str:
        return item[1]

    def view(self, node: BrokerNode, item: Place) -> View | None:
        stream = item[0].queues.get(item[1])
        return stream_view(node, stream) if isinstance(stream, Stream) else None


class ListExchanges(Listing):
    """List exchanges by virtual host and name; the name of the default exchange is empty."""

    def found(self, node: BrokerNode) -> Steps[list[Any]]:
        places: list[Place] = []
        for vhost in self.hosts(node):
            places.append((vhost, ""))
            places += yield from node.exchanges.places(vhost, vhost.exchanges)
        return places

    def name_of(self, item: Place) -> str:
        return item[1]

    def view(self, node: BrokerNode, item: Place) -> View | None:
        vhost, name = item
        exchange = vhost.exchanges.get(name)
        return exchange_view(node, vhost, exchange) if exchange is not None or name == "" else None


class ListBindings(Listing):
    """List bindings by virtual host and source."""

    source: str | None = None  # only bindings from this exchange; "" is the default exchange
    destination: str | None = None  # only bindings to this queue or exchange
    destination_type: str | None = None  # "queue" or "exchange"

    def found(self, node: BrokerNode) -> Steps[list[Any]]:
        found: list[tuple[VHost, Binding | str]] = []
        for vhost in self.hosts(node):
            found += yield from self._default(node, vhost)
            found += yield from self._of(vhost)
        return found

    def _default(self, node: BrokerNode, vhost: VHost) -> Steps[list[Any]]:
        if self.source or self.destination_type == "exchange":
            return []
        if self.destination is not None:
            return [(vhost, self.destination)] if self.destination in vhost.queues else []
        return (yield from node.queues.places(vhost, vhost.queues))

    def _of(self, vhost: VHost) -> Steps[list[Any]]:
        bindings: list[Binding] = []
        sources = [self.source] if self.source is not None else sorted(vhost.exchanges)
        for name in sources:
            source = vhost.exchanges.get(name)
            if source is not None:
                some = yield from choose(source.every(), self._is_wanted)
                bindings += yield from sort(some, lambda each: (each.destination.name, each.key, each.arguments))
        return [(vhost, binding) for binding in bindings]

    def _is_wanted(self, binding: Binding) -> bool:
        if self.destination is not None and binding.destination.name != self.destination:
            return False
        return self.destination_type in (None, "queue" if isinstance(binding.destination, Queue) else "exchange")

    def name_of(self, item: tuple[VHost, Binding | str]) -> str:
        return item[1] if isinstance(item[1], str) else item[1].destination.name

    def view(self, node: BrokerNode, item: tuple[VHost, Binding | str]) -> View | None:
        vhost, binding = item
        return default_view(vhost.name, binding) if isinstance(binding, str) else binding_view(vhost.name, binding)


class ListConnections(Listing):
    """List connections by virtual host and name."""

    user: str | None = None  # only connections of this user

    def found(self, node: BrokerNode) -> Steps[list[Any]]:
        return (yield from _peers(self, node, self.user))

    def name_of(self, item: Peer) -> str:
        return item.name

    def view(self, node: BrokerNode, item: Peer) -> View | None:
        return connection_view(node, item) if is_open(item) else None


def _peers(listing: Listing, node: BrokerNode, user: str | None) -> Steps[list[Peer]]:
    """Return the requested connections by virtual host and name."""

    def is_wanted(peer: Peer) -> bool:
        return is_open(peer) and listing.is_asked_for(peer.vhost) and user in (None, peer.user)

    some = yield from choose(node.host.peers(), is_wanted)
    return (yield from sort(some, lambda peer: (peer.vhost.name, peer.name)))


class ListChannels(Listing):
    """List channels by virtual host, connection and number."""

    user: str | None = None  # only channels of this user
    connection: str | None = None  # only channels of the connection of this name
    replies: bool = False  # only channels that consume, received or failed to deliver direct replies

    def found(self, node: BrokerNode) -> Steps[list[Any]]:
        peers = yield from _peers(self, node, self.user)
        found: list[tuple[Peer, BrokerChannel]] = []
        for peer in peers:
            if self.connection in (None, peer.name):
                channels = [peer.channels[number] for number in sorted(peer.channels)]
                found += [
                    (peer, channel)
                    for channel in channels
                    if not self.replies or channel.has_replies()
                ]
            yield
        return found

    def name_of(self, item: tuple[Peer, BrokerChannel]) -> str:
        return f"{item[0].name} ({int(item[1].number)})"

    def view(self, node: BrokerNode, item: tuple[Peer, BrokerChannel]) -> View | None:
        return None if item[1].is_closed else channel_view(node, *item)


class ListConsumers(Listing):
    """List consumers by virtual host and queue."""

    user: str | None = None  # only consumers of this user

    def found(self, node: BrokerNode) -> Steps[list[Any]]:
        found: list[Consumer] = []
        for vhost in self.hosts(node):
            places = yield from node.queues.places(vhost, vhost.queues)
            for index, (_, name) in enumerate(places):
                if index % CHUNK == CHUNK - 1:
                    yield
                queue = vhost.queues.get(name)
                if queue is not None and queue.consumers.count:
                    found += queue.consumers.all()
        return (yield from choose(found, self._is_wanted))

    def _is_wanted(self, consumer: Consumer) -> bool:
        return self.user in (None, consumer.connection.user)

    def name_of(self, item: Consumer) -> str:
        return item.tag

    def view(self, node: BrokerNode, item: Consumer) -> View | None:
        return consumer_view(node, item) if item.level is not None else None


class ListVhosts(Listing):
    """List virtual hosts by name."""

    def found(self, node: BrokerNode) -> Steps[list[Any]]:
        yield
        return self.hosts(node)

    def name_of(self, item: VHost) -> str:
        return item.name

    def look(self, node: BrokerNode, item: VHost) -> Steps[View | None]:
        return (yield from vhost_view(node, item))
