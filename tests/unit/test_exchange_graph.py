"""Exchanges bound to exchanges, with alternates and auto-delete: random operations against a naive model.

After each run, every message must reach the queues that it reaches in the model, and the journal must restore what is
durable, both from its records and from the snapshot at the start of its next file. Stale bindings are removed in the
smallest steps, at any time, without visible effects.
"""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st

from leveret.broker.exchange_types.envelope import Envelope
from leveret.broker.exchanges import routing
from leveret.broker.exchanges.binding import bindings_to
from leveret.broker.exchanges.exchange import Exchange
from leveret.broker.exchanges.stale_bindings import StaleBindings
from leveret.broker.storage.recovery import Recovery
from leveret.broker.vhost import VHost
from leveret.wire import grammar
from leveret.wire.table import Value

from .support import Bench, Client

EXCHANGES = ("a", "b", "c", "d", "e")
QUEUES = ("p", "q", "r")
KEYS = ("x", "y")


class Edge(NamedTuple):
    """A binding; destinations are told apart by their names."""

    source: str
    destination: str
    key: str


class Node(NamedTuple):
    """A declared exchange."""

    kind: str
    is_durable: bool
    is_auto_delete: bool
    alternate: str


class Model:
    """A plain model of what is declared, and what follows from it."""

    def __init__(self) -> None:
        self.exchanges: dict[str, Node] = {}
        self.queues: dict[str, bool] = {}  # whether durable
        self.edges: set[Edge] = set()

    def drop(self, gone: set[Edge]) -> None:
        """Remove bindings, and the auto-delete exchanges that have none left."""
        self.edges -= gone
        for name in {edge.source for edge in gone}:
            node = self.exchanges.get(name)
            if node is not None and node.is_auto_delete and not any(edge.source == name for edge in self.edges):
                self.delete(name)

    def delete(self, name: str) -> None:
        self.exchanges.pop(name, None)
        self.queues.pop(name, None)
        self.drop({edge for edge in self.edges if name in (edge.source, edge.destination)})

    def reached(self, name: str, key: str, seen: set[str]) -> set[str]:
        """Return the queues that a message reaches from an exchange or queue."""
        if name in self.queues:
            return {name}
        if name in seen or name not in self.exchanges:
            return set()
        seen.add(name)
        node = self.exchanges[name]
        is_keyed = node.kind in ("direct", "topic")
        takes = [e for e in self.edges if e.source == name and (not is_keyed or e.key == key)]
        onward = [edge.destination for edge in takes] or [node.alternate]
        return set().union(*(self.reached(each, key, seen) for each in onward))

    def durable(self) -> tuple[set[str], set[Edge]]:
        """Return the names and bindings that survive a restart."""
        names = {name for name, node in self.exchanges.items() if node.is_durable}
        names |= {name for name, is_durable in self.queues.items() if is_durable}
        return names, {edge for edge in self.edges if edge.source in names and edge.destination in names}


def state(vhost: VHost) -> tuple[set[str], set[Edge]]:
    """Return a broker's names and bindings, and check its indexes."""
    exchanges = [exchange for exchange in vhost.exchanges.values() if not exchange.name.startswith("amq.")]
    edges = {
        Edge(exchange.name, binding.destination.name, binding.key)
        for exchange in exchanges
        for binding in exchange.every()
    }
    for each in [*exchanges, *vhost.queues.values()]:
        assert all(binding.destination is each for binding in bindings_to(each))
        assert {Edge(*pair) for pair in ((b.source.name, each.name, b.key) for b in bindings_to(each))} == {
            edge for edge in edges if edge.destination == each.name
        }
    for exchange in exchanges:
        onward = {b.destination for b in exchange.every() if isinstance(b.destination, Exchange)}
        assert set(exchange.onward) == onward
        assert exchange.binding_count == sum(1 for _ in exchange.every())
    assert vhost.binding_count == len(edges)
    return {exchange.name for exchange in exchanges} | set(vhost.queues), edges


def play(client: Client, model: Model, step: tuple[str, str, str, str, Node]) -> None:
    """Do one step in the broker and in the model; skip what is not possible."""
    action, name, other, key, node = step
    if action == "clear":
        client.bench.broker.log.stale_bindings.clear(1)
    elif action == "declare" and name in EXCHANGES and name not in model.exchanges:
        arguments: dict[str, Value] = {"alternate-exchange": node.alternate} if node.alternate else {}
        client.call(1, grammar.EXCHANGE_DECLARE, exchange=name, type=node.kind, durable=node.is_durable,
                    auto_delete=node.is_auto_delete, arguments=arguments)
        model.exchanges[name] = node
    elif action == "declare" and name in QUEUES and name not in model.queues:
        client.call(1, grammar.QUEUE_DECLARE, queue=name, durable=node.is_durable)
        model.queues[name] = node.is_durable
    elif action == "delete" and name in EXCHANGES:
        client.call(1, grammar.EXCHANGE_DELETE, exchange=name)
        model.delete(name)
    elif action == "delete":
        client.call(1, grammar.QUEUE_DELETE, queue=name)
        model.delete(name)
    elif action in ("bind", "unbind") and other in model.exchanges:
        edge = Edge(other, name, key)
        if name in model.exchanges:
            spec = grammar.EXCHANGE_BIND if action == "bind" else grammar.EXCHANGE_UNBIND
            client.call(1, spec, source=other, destination=name, routing_key=key)
        elif name in model.queues:
            spec = grammar.QUEUE_BIND if action == "bind" else grammar.QUEUE_UNBIND
            client.call(1, spec, exchange=other, queue=name, routing_key=key)
        else:
            return
        if action == "bind":
            model.edges.add(edge)
        elif edge in model.edges:
            model.drop({edge})


nodes = st.builds(
    Node, st.sampled_from(["fanout", "direct", "topic", "headers"]), st.booleans(), st.booleans(),
    st.sampled_from(["", *EXCHANGES]),
)  # fmt: skip
steps = st.tuples(
    st.sampled_from(["declare", "declare", "bind", "bind", "bind", "unbind", "delete", "clear"]),
    st.sampled_from([*EXCHANGES, *QUEUES]), st.sampled_from(EXCHANGES), st.sampled_from(KEYS), nodes,
)  # fmt: skip
declared = st.lists(nodes, min_size=len(EXCHANGES), max_size=len(EXCHANGES))


@given(declared, st.lists(steps, max_size=40))
@settings(deadline=None, max_examples=150)
def test_a_life_of_exchanges(first: list[Node], life: list[tuple[str, str, str, str, Node]]) -> None:
    bench, model = Bench(), Model()
    bench.broker.log.stale_bindings = StaleBindings(at_once_max=0, pace=0)
    client = bench.connect()
    for name, node in zip([*EXCHANGES, *QUEUES], [*first, *first[:3]], strict=True):
        play(client, model, ("declare", name, "", "", node))
    # begin with a chain, so that many bindings depend on each of them
    for name, destination in pairwise([*EXCHANGES, *QUEUES[:1]]):
        play(client, model, ("bind", destination, name, KEYS[0], first[0]))
    for step in life:
        play(client, model, step)
    vhost = bench.broker.vhosts["/"]
    check(vhost, model)
    while bench.broker.log.stale_bindings.is_left:
        bench.broker.log.stale_bindings.clear(1)
        check(vhost, model)
    check_indexes(vhost)
    for batches in (bench.batches, [b"".join(bench.broker.snapshot())]):
        again = Bench()
        recovery = Recovery(again.broker, again.now_us)
        for batch in batches:
            recovery.batch(batch)
        recovery.finish()
        assert state(again.broker.vhosts["/"]) == model.durable()


def check(vhost: VHost, model: Model) -> None:
    """Check that every message reaches the right queues."""
    assert state(vhost) == (set(model.exchanges) | set(model.queues), model.edges)
    for name in model.exchanges:
        for key in KEYS:
            exchange = vhost.exchanges[name]
            found = routing.find(vhost, exchange, b"", [key])
            assert found.is_per_message == meets_headers(model, name, set())
            envelope = Envelope([key], b"", CONTENT)
            queues = routing.targets(vhost, exchange, envelope) if found.is_per_message else found.queues
            assert all(vhost.queues[queue.name] is queue for queue in queues)
            assert {queue.name for queue in queues} == model.reached(name, key, set())
            assert len(queues) == len({queue.name for queue in queues})


def check_indexes(vhost: VHost) -> None:
    """Check that nothing is left of deleted bindings."""
    for exchange in vhost.exchanges.values():
        assert exchange.matcher.stale_batches == 0  # match() skips nothing
        for key in KEYS:
            found = exchange.matcher.match(Envelope([key], b"", CONTENT))
            assert not any(binding.destination.is_deleted for binding in found)
    for each in [*vhost.exchanges.values(), *vhost.queues.values()]:
        assert not any(source.is_deleted for source in each.incoming)


def meets_headers(model: Model, name: str, seen: set[str]) -> bool:
    """Return whether a headers exchange can be reached."""
    if name in seen or name not in model.exchanges:
        return False
    seen.add(name)
    node = model.exchanges[name]
    onward = [*(edge.destination for edge in model.edges if edge.source == name), node.alternate]
    return node.kind == "headers" or any(meets_headers(model, each, seen) for each in onward)


# no headers: matches bindings without arguments
CONTENT = b"\2\0\1\0\0\0\x0e\0\x3c\0\0\0\0\0\0\0\0\0\0\0\0\xce"
