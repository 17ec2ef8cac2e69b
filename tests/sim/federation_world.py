"""Federations in the simulation: brokers, links, publishers, queues that keep every message, and faults.

`check` states what must hold at the end: no confirmed message is lost, none arrives twice on one path, and the
upstream's bindings are exactly those that the downstream wants.
"""

from __future__ import annotations

from collections import Counter
from random import Random

from leveret.broker.exchanges.binding import bindings_to
from leveret.broker.messages.entry import Entry
from leveret.broker.queues.queue import Queue
from leveret.federation.names import internal_exchange, upstream_queue
from leveret.store.format import DATA_START
from leveret.testing.simulation import BrokerDown, Consumer, Node, Publisher, Simulation, Sizes
from leveret.wire.properties import decode_header

from .federation_shapes import Link, Shape, matches

EXCHANGE = "x"
LEDGER = "ledger"  # a queue on each broker that nobody reads before the end
LIVE = "live"  # a queue with a consumer
CASUAL = "casual"  # a queue whose bindings come and go
KEYS = ("k.1", "k.2", "j.1")
PATTERNS = ("#", "k.*", "k.1", "k.2", "j.1", "j.*")
SIZES = (
    Sizes(),
    Sizes(file_octets=DATA_START + 3000),
    Sizes(file_octets=DATA_START + 9000, ready_octets=4000, page_octets=600),
)


def message_id(entry: Entry) -> str:
    """Return the message-id of an entry."""
    size = int.from_bytes(entry.content[3:7], "big")
    return decode_header(entry.content[7 : 7 + size])[0].message_id or ""


class FederationWorld:
    """Brokers in a shape, with the queues `ledger`, `live` and `casual` on each."""

    def __init__(
        self, seed: int, shape: Shape, bound: dict[str, list[str]], sizes: Sizes | None = None,
        gives_positions: bool = True,
    ) -> None:  # fmt: skip
        self.simulation = sim = Simulation(seed, sizes=sizes)
        self.gives_positions = gives_positions  # as in sim.broker()
        self.shape = shape
        self.bound = bound  # broker -> binding keys of its ledger and live queues
        self.hits: Counter[str] = Counter()  # fault -> how often it hit a link at that moment
        self.nodes: dict[str, Node] = {
            name: sim.broker(name, gives_positions=gives_positions) for name in shape.names
        }
        self.publishers: list[Publisher] = []
        self.consumers: dict[str, Consumer] = {}
        for name, node in self.nodes.items():
            node.declare_exchange(EXCHANGE)
            for queue in (LEDGER, LIVE):
                node.declare_queue(queue)
                for key in bound[name]:
                    node.bind(queue, EXCHANGE, key)
            node.declare_queue(CASUAL)
            self.consumers[name] = node.consumer(LIVE)
        self.settings: dict[Link, dict[str, str | int]] = {link: {"max_hops": shape.max_hops} for link in shape.links}
        for link in shape.links:
            self.federate(link)
        sim.on_fault.append(self._look)
        sim.settle()

    def federate(self, link: Link) -> None:
        """Create a link, or change its settings."""
        down, up = link
        self.nodes[down].federate(EXCHANGE, self.nodes[up], uri=f"amqp://{up}?heartbeat=4", **self.settings[link])

    def publisher(self, name: str) -> Publisher:
        """Return a new publisher at a broker."""
        found = self.nodes[name].publisher(EXCHANGE, repeats=False)
        self.publishers.append(found)
        return found

    def queue(self, link: Link) -> str:
        """Return the name of a link's upstream queue."""
        return upstream_queue(EXCHANGE, "/", link[0], "/", EXCHANGE)

    # -- faults and changes --------------------------------------------------------------------------------------------

    def _look(self, what: str) -> None:
        """Count what a crash or a cut is about to hit."""
        for link in self.shape.links:
            self.hits["swap in flight"] += self.swaps(link)
            self.hits["message on both sides"] += self.has_on_both(link)

    def swaps(self, link: Link) -> bool:
        """Whether both internal exchanges of a link exist, the old and the new one."""
        up = self.nodes[link[1]]
        if not up.is_up:
            return False
        exchanges, queue = up.core.vhosts["/"].exchanges, self.queue(link)
        return internal_exchange(queue, "A") in exchanges and internal_exchange(queue, "B") in exchanges

    def has_on_both(self, link: Link) -> bool:
        """Whether a message of a link is on its downstream's disk, and not acknowledged upstream."""
        down, up = (self.nodes[name] for name in link)
        name = self.queue(link)
        if not (up.is_up and down.is_up) or name not in up.core.vhosts["/"].queues:
            return False
        assert down.machine.life is not None
        is_quiet = not down.machine.life.is_writing
        if not (is_quiet and up.core.vhosts["/"].queues[name].unacked):
            return False
        unacked = {
            message_id(entry)
            for channel in up.core.vhosts["/"].channels
            for entry in channel.unacked.all()
            if isinstance(entry, Entry) and entry.queue.name == name
        }
        return bool(unacked & {message_id(entry) for entry in down.core.vhosts["/"].queues[LEDGER].in_memory()})

    def bind_casually(self, name: str, key: str) -> None:
        """Add a binding to the queue `casual`, or remove it if it exists."""
        node = self.nodes[name]
        try:
            if any(binding.key == key for binding in bindings_to(node.core.vhosts["/"].queues[CASUAL])):
                node.unbind(CASUAL, EXCHANGE, key)
            else:
                node.bind(CASUAL, EXCHANGE, key)
        except BrokerDown:
            pass

    def count(self) -> None:
        """Count, at the end, what happened during the run."""
        self.hits += self.simulation.counts
        for node in self.nodes.values():
            self.hits["dropped by position"] += node.machine.links_counted()["known"]
        self.hits["take-over"] += sum("has taken over queue" in line for line in self.simulation.trace.lines())

    # -- what must hold at the end -------------------------------------------------------------------------------------

    def check(self, has_faults: bool) -> None:
        """Check everything, once the world is at rest."""
        for link in self.shape.links:
            self._check_upstream(link)
        drains = {name: node.consumer(LEDGER, prefetch=100, work_ms=0) for name, node in self.nodes.items()}
        queues = [(node, queue) for node in self.nodes.values() for queue in (LEDGER, LIVE)]
        self.simulation.run(until=lambda: all(node.messages(queue) == 0 for node, queue in queues))
        for name, drain in drains.items():
            self._check_copies(name, Counter(each.id for each in drain.deliveries), has_faults)
            # deliveries that a broker made before they were on disk, and lost at a crash, come again over the link
            self._check_copies(name, self.consumers[name].copies(), has_faults, is_live=True)

    def _check_copies(self, name: str, came: Counter[str], has_faults: bool, is_live: bool = False) -> None:
        """Check that each confirmed message arrived on each path.

        A message whose publisher lost its connection before the confirm may have arrived: it is never published again
        under the same id, so never twice on one path either. A transient one may be lost with a broker, but not
        doubled.
        """
        for publisher in self.publishers:
            at = publisher.name.partition(" ")[0]
            ways = self.shape.copies(at, name)
            for message in publisher.messages.values():
                is_wanted = any(matches(pattern, message.key) for pattern in self.bound[name])
                most = ways if is_wanted else 0
                is_sure = message.id in publisher.confirmed and (
                    message.properties.delivery_mode == 2 or not has_faults
                )
                least = most if is_sure else 0
                got = came.pop(message.id, 0)
                if is_live and has_faults:  # a consumer can't tell which copies a crash repeated
                    least, most = min(least, 1), most and got
                assert got >= least, f"{name}: {message.id} was confirmed and is lost: {got} of {least} came"
                if has_faults and not self.gives_positions and most:
                    most = max(most, got)  # unacknowledged messages are delivered again after a cut
                assert got <= most, f"{name}: {message.id} is doubled: {got} came, {most} would be right"
        assert not came, f"{name}: nobody published {came}"

    def _check_upstream(self, link: Link) -> None:
        """Check that the upstream queue exists, is empty, and is fed by one internal exchange with the right
        bindings."""
        up = self.nodes[link[1]].core.vhosts["/"]
        name = self.queue(link)
        assert up.queues[name].count() == 0
        internals = [x for suffix in "AB" if (x := up.exchanges.get(internal_exchange(name, suffix))) is not None]
        assert len(internals) == 1, f"{link}: {len(internals)} internal exchanges"
        bindings = [each for each in up.exchanges[EXCHANGE].every() if each.destination is internals[0]]
        wanted = self.shape.wanted(link, {each: self._bound(each) for each in self.shape.names})
        found = {each.key for each in bindings}
        assert found == wanted, f"{link}: stale {found - wanted}, missing {wanted - found}"

    def _bound(self, name: str) -> set[str]:
        """Return the keys that bind queues at the broker: requests during a shutdown may have succeeded or not."""
        exchange = self.nodes[name].core.vhosts["/"].exchanges[EXCHANGE]
        return {each.key for each in exchange.every() if isinstance(each.destination, Queue)}


def random_bindings(random: Random, shape: Shape) -> dict[str, list[str]]:
    """Return random binding keys for each broker's ledger."""
    return {name: sorted(random.sample(PATTERNS, random.randrange(1, 3))) for name in shape.names}
