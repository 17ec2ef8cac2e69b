"""Single objects of those that can be listed, with all details."""

from __future__ import annotations

from typing import Final

from leveret.broker.peer import Peer
from leveret.broker.streams.stream import Stream
from leveret.broker.vhost import VHost
from leveret.control.command import Query
from leveret.control.listing import only
from leveret.control.node import BrokerNode
from leveret.control.refusal import not_found
from leveret.control.sliced import Sliced, Steps
from leveret.control.views.channel import channel_details
from leveret.control.views.connection import connection_details, is_open
from leveret.control.views.exchange import exchange_details
from leveret.control.views.queue import queue_details
from leveret.control.views.stream import stream_details
from leveret.control.views.vhost import vhost_view
from leveret.control.views.view import View, encode

DEFAULT: Final = "amq.default"


class Single(Query):
    """A query for one object."""

    columns: tuple[str, ...] = ()  # the wanted columns, none = all; each is a dotted path

    def run(self, node: BrokerNode) -> object:
        return Sliced(self._steps(node))

    def _steps(self, node: BrokerNode) -> Steps[object]:
        view = yield from self.look(node)
        return encode(only(view, [column.split(".") for column in self.columns]) if self.columns else view)

    def look(self, node: BrokerNode) -> Steps[View]:
        """Return the view of the object, in steps if it takes long."""
        yield
        return self.view(node)

    def view(self, node: BrokerNode) -> View:
        """Return the view of the object. Raises Refused if it does not exist."""
        raise NotImplementedError


def vhost_of(node: BrokerNode, name: str) -> VHost:
    """Return the virtual host of this name. Raises Refused if it does not exist."""
    vhost = node.broker.vhosts.get(name)
    if vhost is None:
        raise not_found(f"no virtual host '{name}'")
    return vhost


class GetQueue(Single, kw_only=True):
    """Return a queue with its consumers."""

    vhost: str
    name: str

    def view(self, node: BrokerNode) -> View:
        queue = vhost_of(node, self.vhost).queues.get(self.name)
        if queue is None:
            raise not_found(f"no queue '{self.name}' in vhost '{self.vhost}'")
        return queue_details(node, queue)


class GetStream(Single, kw_only=True):
    """Return a stream with its consumers and their positions."""

    vhost: str
    name: str

    def view(self, node: BrokerNode) -> View:
        return stream_details(node, stream_of(node, self.vhost, self.name))


def stream_of(node: BrokerNode, vhost: str, name: str) -> Stream:
    """Return the stream of this name. Raises Refused if it does not exist, or is a queue of another type."""
    queue = vhost_of(node, vhost).queues.get(name)
    if queue is None:
        raise not_found(f"no stream '{name}' in vhost '{vhost}'")
    if not isinstance(queue, Stream):
        raise not_found(f"queue '{name}' in vhost '{vhost}' is not a stream")
    return queue


class GetExchange(Single, kw_only=True):
    """Return an exchange; the name of the default exchange is empty, or amq.default as in RabbitMQ's HTTP API."""

    vhost: str
    name: str

    def view(self, node: BrokerNode) -> View:
        vhost = vhost_of(node, self.vhost)
        exchange = vhost.exchanges.get(self.name)
        if exchange is None and self.name not in ("", DEFAULT):
            raise not_found(f"no exchange '{self.name}' in vhost '{self.vhost}'")
        return exchange_details(node, vhost, exchange)


class GetConnection(Single, kw_only=True):
    """Return a connection by its name."""

    name: str

    def view(self, node: BrokerNode) -> View:
        return connection_details(node, peer_of(node, self.name))


class GetChannel(Single, kw_only=True):
    """Return a channel by its name: CONNECTION (NUMBER)."""

    name: str

    def view(self, node: BrokerNode) -> View:
        connection, _, number = self.name.removesuffix(")").rpartition(" (")
        peer = peer_of(node, connection)
        channel = peer.channels.get(int(number)) if number.isdecimal() else None
        if channel is None or channel.is_closed:
            raise not_found(f"no channel '{self.name}'")
        return channel_details(node, peer, channel)


class GetVhost(Single, kw_only=True):
    """Return a virtual host."""

    name: str

    def look(self, node: BrokerNode) -> Steps[View]:
        return (yield from vhost_view(node, vhost_of(node, self.name)))


def peer_of(node: BrokerNode, name: str) -> Peer:
    """Return the open connection of this name. Raises Refused if it does not exist."""
    for peer in node.host.peers():
        if peer.name == name and is_open(peer):
            return peer
    raise not_found(f"no connection '{name}'")
