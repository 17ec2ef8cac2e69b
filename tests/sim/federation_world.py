"""Federations in the simulation: brokers, links, publishers, queues that keep all they get, and what befalls them.

What must hold at the end is said in `check`: nothing confirmed is lost, nothing comes twice on one way, and upstream
stands exactly what downstream wants.
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
LIVE = "live"  # one with a consumer
CASUAL = "casual"  # one whose bindings come and go
KEYS = ("k.1", "k.2", "j.1")
PATTERNS = ("#", "k.*", "k.1", "k.2", "j.1", "j.*")
SIZES = (
    Sizes(),
    Sizes(file_octets=DATA_START + 3000),
    Sizes(file_octets=DATA_START + 9000, ready_octets=4000, page_octets=600),
)


def message_id(entry: Entry) -> str:
    """Which message this is."""
    size = int.from_bytes(entry.content[3:7], "big")
    return decode_header(entry.content[7 : 7 + size])[0].message_id or ""


class FederationWorld:
    """bound: by broker, the keys of its ledger. gives_positions: as sim.broker() has it. hits: how often the things
    happened that this is about."""

    def __init__(
        self, seed: int, shape: Shape, bound: dict[str, list[str]], sizes: Sizes | None = None,
        gives_positions: bool = True,
    ) -> None:  # fmt: skip
        self.simulation = sim = Simulation(seed, sizes=sizes)
        self.gives_positions = gives_positions
        self.shape = shape
        self.bound = bound
        self.hits: Counter[str] = Counter()
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
        """Make a link, or change its settings."""
        down, up = link
        self.nodes[down].federate(EXCHANGE, self.nodes[up], uri=f"amqp://{up}?heartbeat=4", **self.settings[link])

    def publisher(self, name: str) -> Publisher:
        """A publisher at a broker."""
        found = self.nodes[name].publisher(EXCHANGE)
        self.publishers.append(found)
        return found

    def queue(self, link: Link) -> str:
        """The name of a link's upstream queue."""
        return upstream_queue(EXCHANGE, "/", link[0], "/", EXCHANGE)

    # -- what happens --------------------------------------------------------------------------------------------------

    def _look(self, what: str) -> None:
        """A crash or a cut is about to come: what does it hit?"""
        for link in self.shape.links:
            self.hits["swap in flight"] += self.swaps(link)
            self.hits["message on both sides"] += self.has_on_both(link)

    def swaps(self, link: Link) -> bool:
        """Whether both internal exchanges of a link are there."""
        up = self.nodes[link[1]]
        if not up.is_up:
            return False
        exchanges, queue = up.core.vhosts["/"].exchanges, self.queue(link)
        return internal_exchange(queue, "A") in exchanges and internal_exchange(queue, "B") in exchanges

    def has_on_both(self, link: Link) -> bool:
        """Whether a message of a link is on the disk of its downstream, and not acknowledged upstream."""
        down, up = (self.nodes[name] for name in link)
        name = self.queue(link)
        if not (up.is_up and down.is_up) or name not in up.core.vhosts["/"].queues:
            return False
        assert down.machine.life is not None
        is_quiet = not (down.core.log.size() or down.machine.life.committer.is_syncing)
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
        """A binding comes, or goes if it is there."""
        node = self.nodes[name]
        try:
            if any(binding.key == key for binding in bindings_to(node.core.vhosts["/"].queues[CASUAL])):
                node.unbind(CASUAL, EXCHANGE, key)
            else:
                node.bind(CASUAL, EXCHANGE, key)
        except BrokerDown:
            pass

    def count(self) -> None:
        """It is over: what has happened in it?"""
        self.hits += self.simulation.counts
        for node in self.nodes.values():
            self.hits["dropped by position"] += node.machine.links_counted()["known"]
        self.hits["take-over"] += sum("has taken over queue" in line for line in self.simulation.trace.lines())

    # -- what must be --------------------------------------------------------------------------------------------------

    def check(self, has_faults: bool) -> None:
        """All is at rest: now it must be as it should."""
        for link in self.shape.links:
            self._check_upstream(link)
        drains = {name: node.consumer(LEDGER, prefetch=100, work_ms=0) for name, node in self.nodes.items()}
        queues = [(node, queue) for node in self.nodes.values() for queue in (LEDGER, LIVE)]
        self.simulation.run(until=lambda: all(node.messages(queue) == 0 for node, queue in queues))
        for name, drain in drains.items():
            self._check_copies(name, Counter(each.id for each in drain.deliveries), has_faults)
            # what a broker delivers before it is on its disk, and loses at a crash, comes again over its link
            self._check_copies(name, self.consumers[name].copies(), has_faults, is_live=True)

    def _check_copies(self, name: str, came: Counter[str], has_faults: bool, is_live: bool = False) -> None:
        """A message that was confirmed has come on each way. One whose publisher lost its connection before the confirm
        may have come: it is never published again under the same id, so never twice on one way either. A transient one
        may be lost with a broker, but not doubled."""
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
                if is_live and has_faults:  # which of its copies were crossed by a crash, a consumer can't tell
                    least, most = min(least, 1), most and got
                assert got >= least, f"{name}: {message.id} was confirmed and is lost: {got} of {least} came"
                if has_faults and not self.gives_positions and most:
                    most = max(most, got)  # what was unacknowledged at a cut comes again
                assert got <= most, f"{name}: {message.id} is doubled: {got} came, {most} would be right"
        assert not came, f"{name}: nobody published {came}"

    def _check_upstream(self, link: Link) -> None:
        """The upstream queue is there and empty, one internal exchange feeds it, bound as downstream wants."""
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
        """By which keys queues here are bound, as the broker has it: what was asked of it while it went down may have
        come about or not."""
        exchange = self.nodes[name].core.vhosts["/"].exchanges[EXCHANGE]
        return {each.key for each in exchange.every() if isinstance(each.destination, Queue)}


def random_bindings(random: Random, shape: Shape) -> dict[str, list[str]]:
    """What each ledger is bound by."""
    return {name: sorted(random.sample(PATTERNS, random.randrange(1, 3))) for name in shape.names}
