"""Collects exchanges, queues and bindings for a drawing, up to a limit, and counts what is left out.

The work is done in slices. Objects that are deleted meanwhile are left out.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from leveret.broker.exchanges.binding import Binding, Destination, bindings_to, count_to
from leveret.broker.exchanges.exchange import Exchange
from leveret.broker.queues.queue import Queue
from leveret.broker.queues.queue_types import queue_type
from leveret.broker.vhost import VHost
from leveret.control.sliced import CHUNK, Steps
from leveret.control.tables import plain_table, sayable, table_of
from leveret.control.views.view import View

EXCHANGE: Final = "exchange"
QUEUE: Final = "queue"
BINDING: Final = "binding"
ALTERNATE: Final = "alternate"
DEAD_LETTER: Final = "dead_letter"
KEYS_MAX: Final = 5
"""Routing keys, and tables of arguments, shown at one edge."""

# type and name of a node
Id = tuple[str, str]


@dataclass
class Edge:
    """An arrow of the drawing."""

    kind: str
    source: Id
    destination: Id
    count: int = 0  # of bindings
    keys: list[str] = field(default_factory=list)
    arguments: list[View] = field(default_factory=list)

    def add(self, binding: Binding) -> None:
        """Add a binding between the two nodes."""
        self.count += 1
        if len(self.keys) < KEYS_MAX:
            self.keys.append(binding.key)
            arguments = plain_table(table_of(binding.arguments))
            if arguments:
                self.arguments.append(arguments)

    def view(self) -> View:
        return {
            "kind": self.kind,
            "source": _named(self.source),
            "destination": _named(self.destination),
            "bindings": self.count,
            "routing_keys": [sayable(key) for key in self.keys],
            "arguments": self.arguments,
        }


class TopologyPart:
    """A part of a virtual host's topology.

    `limit` applies to the destinations of an exchange, to the sources of an exchange, and to exchanges.
    """

    def __init__(self, vhost: VHost, limit: int) -> None:
        self._vhost = vhost
        self._limit = limit
        self._nodes: dict[Id, None] = {}
        self._edges: dict[tuple[str, Id, Id], Edge] = {}
        self._left_out: list[View] = []
        self._exchanges_left_out = 0
        self._is_whole = False

    def take_all(self) -> Steps[None]:
        """Take the exchanges that have bindings or an alternate exchange, those with most bindings first."""
        self._is_whole = True
        some: list[tuple[int, str]] = []
        for index, exchange in enumerate(list(self._vhost.exchanges.values())):
            weight = int(exchange.binding_count) + count_to(exchange) + (exchange.alternate is not None)
            if weight:
                some.append((-weight, exchange.name))
            if index % CHUNK == CHUNK - 1:
                yield
        some.sort()
        self._exchanges_left_out = max(0, len(some) - self._limit)
        for _, name in some[: self._limit]:
            self._nodes[EXCHANGE, name] = None
        for _, name in some[: self._limit]:
            if (found := self._vhost.exchanges.get(name)) is not None:
                yield from self._take_bindings(found, False)
                self._take_alternate(found)
        yield from self._take_dead_letters(None)

    def take_around(self, name: str) -> Steps[None]:
        """Take one exchange and its neighbours."""
        exchange = self._vhost.exchanges[name]
        self._nodes[EXCHANGE, name] = None
        yield from self._take_bindings(exchange, False)
        yield from self._take_bindings(exchange, True)
        self._take_alternate(exchange)
        for index, other in enumerate(list(self._vhost.exchanges.values())):
            if other.alternate == name:
                self._take_alternate(other)
            if index % CHUNK == CHUNK - 1:
                yield
        yield from self._take_dead_letters(name)

    # -- bindings ------------------------------------------------------------------------------------------------------

    def _take_bindings(self, exchange: Exchange, are_incoming: bool) -> Steps[None]:
        here = (EXCHANGE, exchange.name)
        left: set[Id] = set()
        bindings, taken = 0, 0
        for index, binding in enumerate(bindings_to(exchange) if are_incoming else exchange.every()):
            there = (EXCHANGE, binding.source.name) if are_incoming else _id(binding.destination)
            if are_incoming and there == here:
                continue  # already among the outgoing ones
            source, destination = (there, here) if are_incoming else (here, there)
            edge = self._edges.get((BINDING, source, destination))
            if edge is None and taken >= self._limit:
                left.add(there)
                bindings += 1
            else:
                taken += edge is None
                self._edge(BINDING, source, destination).add(binding)
            if index % CHUNK == CHUNK - 1:
                yield
        self._leave_out(here, "source" if are_incoming else "destination", len(left), bindings)

    def _leave_out(self, at: Id, what: str, count: int, bindings: int) -> None:
        if count:
            self._left_out.append({**_named(at), "what": what, "count": count, "bindings": bindings})

    def _take_alternate(self, exchange: Exchange) -> None:
        if exchange.alternate:
            self._edge(ALTERNATE, (EXCHANGE, exchange.name), (EXCHANGE, exchange.alternate))

    # -- dead letters --------------------------------------------------------------------------------------------------

    def _take_dead_letters(self, only: str | None) -> Steps[None]:
        """Add dead-letter edges of queues in the drawing, and of queues whose dead letter exchange is `only`."""
        for kind, name in list(self._nodes):
            queue = self._vhost.queues.get(name) if kind == QUEUE else None
            if queue is not None:
                self._take_dead_letter(queue)
        if only is None:
            return
        left, taken = 0, 0
        for index, queue in enumerate(list(self._vhost.queues.values())):
            if queue.dead_letter_exchange == only and (QUEUE, queue.name) not in self._nodes:
                if taken < self._limit:
                    taken += 1
                    self._take_dead_letter(queue)
                else:
                    left += 1
            if index % CHUNK == CHUNK - 1:
                yield
        self._leave_out((EXCHANGE, only), "dead_letter_source", left, 0)

    def _take_dead_letter(self, queue: Queue) -> None:
        exchange, key = queue.dead_letter_exchange, queue.dead_letter_key
        if exchange is None:
            return
        there = (EXCHANGE, exchange)
        if exchange == "" and key in self._vhost.queues:
            there = (QUEUE, key)
        edge = self._edge(DEAD_LETTER, (QUEUE, queue.name), there)
        if key is not None and not edge.keys:
            edge.keys.append(key)

    # -- the answer ----------------------------------------------------------------------------------------------------

    def _edge(self, kind: str, source: Id, destination: Id) -> Edge:
        self._nodes.setdefault(source)
        self._nodes.setdefault(destination)
        return self._edges.setdefault((kind, source, destination), Edge(kind, source, destination))

    def view(self) -> View:
        """Return nodes, edges, and counts of what was left out."""
        vhost = self._vhost
        view: View = {
            "vhost": sayable(vhost.name),
            "nodes": list(self._node_views(self._nodes)),
            "edges": [edge.view() for edge in self._edges.values()],
            "left_out": self._left_out,
        }
        if self._is_whole:
            queues = sum(1 for kind, name in self._nodes if kind == QUEUE and name in vhost.queues)
            view["exchanges_left_out"] = self._exchanges_left_out
            view["queues_left_out"] = len(vhost.queues) - queues
        return view

    def _node_views(self, ids: Iterable[Id]) -> Iterable[View]:
        for kind, name in ids:
            exchange = self._vhost.exchanges.get(name) if kind == EXCHANGE else None
            queue = self._vhost.queues.get(name) if kind == QUEUE else None
            view = _named((kind, name))
            if exchange is not None:
                count = int(exchange.binding_count)
                view |= {"kind": exchange.kind, "is_internal": exchange.internal, "bindings": count}
            elif queue is not None:
                messages = int(queue.count() + queue.outstanding())
                consumers = int(queue.consumers.count)
                view |= {"kind": queue_type(queue.arguments), "messages": messages, "consumers": consumers}
            elif kind == EXCHANGE and name == "":
                view |= {"kind": "direct", "is_internal": False, "bindings": len(self._vhost.queues)}
            else:
                view["is_missing"] = True
            yield view


def _id(destination: Destination) -> Id:
    return (QUEUE if isinstance(destination, Queue) else EXCHANGE), destination.name


def _named(id: Id) -> View:
    return {"type": id[0], "name": sayable(id[1])}
