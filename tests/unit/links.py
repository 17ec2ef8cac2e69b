"""Brokers with links between them in memory: a virtual clock, transports with a delay, journals synced at once.

Calls run in order of their time; those of the same time, in the order in which they were scheduled.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable, Sequence
from itertools import count

from leveret.broker.broker import Settings
from leveret.broker.link_peer import LinkPeer
from leveret.broker.peer import Peer
from leveret.broker.storage.definitions import GLOBAL_PARAMETER, PARAMETER, POLICY, VHOST
from leveret.broker.storage.recovery import Recovery
from leveret.broker.vhost import VHost
from leveret.client.protocol.url import Address
from leveret.federation.environment import DirectConnectionUser, TransportUser
from leveret.federation.federator import Federator
from leveret.federation.status import RUNNING, LinkStatus
from leveret.session import lifecycle
from leveret.wire import grammar
from leveret.wire.frames import FrameReader
from leveret.wire.method import Method, decode_method
from leveret.wire.properties import Properties, decode_header
from leveret.wire.table import Value

from .support import Bench, Client

LATENCY_US = 1_000


class Ring:
    """A scheduled call."""

    def __init__(self, call: Callable[[], None]) -> None:
        self.call: Callable[[], None] | None = call

    def cancel(self) -> None:
        self.call = None


class World:
    """The brokers, and the virtual clock."""

    def __init__(self, latency_us: int = LATENCY_US, seed: int = 1) -> None:
        self.now_us = 1_700_000_000_000_000
        self.latency_us = latency_us  # from one broker to another
        self.random = random.Random(seed)
        self.epochs = 0
        self.nodes: dict[str, Node] = {}
        self._calls: list[tuple[int, int, Ring]] = []
        self._order = count()

    def node(self, name: str, own_version: str = "1") -> Node:
        """Create a broker with links at amqp://name. An empty `own_version`: it does not identify itself as leveret."""
        return Node(self, name, own_version)

    def later(self, delay_us: int, call: Callable[[], None]) -> Ring:
        ring = Ring(call)
        heapq.heappush(self._calls, (self.now_us + delay_us, next(self._order), ring))
        return ring

    def step(self) -> None:
        """Run the next scheduled call."""
        self.now_us, _, ring = heapq.heappop(self._calls)
        if ring.call is not None:
            ring.call()
            for node in self.nodes.values():
                node.settle()

    def until(self, is_so: Callable[[], bool], seconds: float = 600) -> None:
        """Let time pass until a condition holds; fail after `seconds`."""
        end_us = self.now_us + int(seconds * 1_000_000)
        for node in self.nodes.values():
            node.settle()
        while not is_so():
            assert self._calls, "nothing happens any more"
            assert self._calls[0][0] <= end_us, f"not within {seconds} s"
            self.step()

    def pass_time(self, seconds: float) -> None:
        end_us = self.now_us + int(seconds * 1_000_000)
        for node in self.nodes.values():
            node.settle()
        while self._calls and self._calls[0][0] <= end_us:
            self.step()
        self.now_us = end_us


class Wire:
    """The transport of a link, and the upstream's connection at its other end."""

    def __init__(self, world: World, address: Address, user: TransportUser) -> None:
        self.world = world
        self.user: TransportUser | None = user  # until the transport is closed or lost
        self.node = world.nodes.get(address.host)
        self.peer: Peer | None = None
        self.is_closed = self.is_paused = False
        self.kept: list[bytes] = []
        self.sent = b""  # all data from the link
        self.began_us = world.now_us
        world.later(world.latency_us, self._arrive)

    def _arrive(self) -> None:
        if self.is_closed:
            return
        node = self.node
        if node is None or node.is_cut:
            self.break_off("connection refused")
            return
        assert self.user is not None
        if node.greeting:
            self.user.connected()
            self.world.later(0, lambda: self._deliver(node.greeting))
            return
        self.peer = node.peer()
        if not node.is_mute:
            node.wires.append(self)
        self.user.connected()

    def write(self, data: bytes) -> None:
        assert not self.is_closed
        self.sent += data
        self.world.later(self.world.latency_us, lambda: self._turn(data))

    def _turn(self, data: bytes) -> None:
        if self.peer is not None and self.node is not None and self in self.node.wires:
            self.node.now_us = self.world.now_us
            while self.peer.turn(data, self.world.now_us) and self.peer.has_more:
                data = b""

    def flush(self) -> None:
        """Send the upstream's output to the link."""
        assert self.node is not None
        assert self.peer is not None
        data = b"".join(self.peer.take(self.node.broker.log.synced))
        if data:
            self.world.later(self.world.latency_us, lambda: self._deliver(data))
        if self.peer.state == lifecycle.CLOSED:
            self.node.wires.remove(self)
            self.peer.lost(self.world.now_us)
            self.world.later(self.world.latency_us, lambda: self.break_off("the server hung up"))

    def _deliver(self, data: bytes) -> None:
        if self.is_paused:
            self.kept.append(data)
        elif self.user is not None:
            self.user.received(data)

    def pause(self, is_paused: bool) -> None:
        self.is_paused = is_paused
        kept, self.kept = self.kept, []
        for data in kept:
            self.world.later(0, lambda data=data: self._deliver(data))

    def break_off(self, reason: str) -> None:
        """Break the connection, as a network failure does."""
        user, self.user = self.user, None
        if user is not None:
            self.is_closed = True
            user.lost(reason)

    def close(self) -> None:
        if not self.is_closed:
            self.is_closed = True
            self.user = None
            self.world.later(self.world.latency_us, self._gone)

    def _gone(self) -> None:
        if self.node is not None and self in self.node.wires:
            self.node.wires.remove(self)
            assert self.peer is not None
            self.peer.lost(self.world.now_us)


class Gate:
    """A direct connection."""

    def __init__(self, node: Node, peer: LinkPeer, user: DirectConnectionUser) -> None:
        self.node = node
        self.peer = peer
        self.user = user

    def write(self, data: bytes) -> None:
        self.node.now_us = self.node.world.now_us
        while self.peer.turn(data, self.node.now_us) and self.peer.has_more:
            data = b""

    def flush(self) -> None:
        data = b"".join(self.peer.take(self.node.broker.log.synced))
        if data:
            self.node.world.later(0, lambda: self._answer(data))

    def _answer(self, data: bytes) -> None:
        if self in self.node.gates:
            self.user.answered(data)

    def close(self) -> None:
        if self in self.node.gates:
            self.node.gates.remove(self)
            self.peer.lost(self.node.world.now_us)


class Around:
    """The environment of a broker's links."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self.random = node.world.random

    def now_us(self) -> int:
        return self.node.world.now_us

    def later(self, delay_us: int, call: Callable[[], None]) -> Ring:
        return self.node.world.later(delay_us, call)

    def dial(self, address: Address, user: TransportUser) -> Wire:
        wire = Wire(self.node.world, address, user)
        self.node.dialled.append(wire)
        return wire

    def enter(self, vhost: VHost, name: str, has_confirms: bool, user: DirectConnectionUser) -> Gate:
        gate = Gate(self.node, LinkPeer(self.node.broker, vhost, name, has_confirms, ""), user)
        self.node.gates.append(gate)
        return gate


class Node(Bench):
    """A broker with its links."""

    def __init__(self, world: World, name: str, own_version: str, batches: Sequence[bytes] = ()) -> None:
        world.epochs += 1
        super().__init__(Settings(own_version=own_version, cluster_name=name), world.epochs)
        recovery = Recovery(self.broker, self.now_us)
        for batch in batches:
            recovery.batch(batch)
        recovery.finish()
        self.batches = list(batches)
        self.world = world
        self.name = name
        self.is_cut = False  # nobody can connect
        self.is_mute = False  # it accepts connections, and never answers
        self.greeting = b""  # first data from a server that is no broker
        self.wires: list[Wire] = []
        self.gates: list[Gate] = []
        self.dialled: list[Wire] = []
        world.nodes[name] = self
        self.federator = Federator(self.broker, Around(self))
        self.federator.start()

    # turns

    def peer(self) -> Peer:
        return Peer(self.broker, f"{self.name}:1", True)

    def settle(self) -> None:
        """End the turn: apply policies, sync the journal, send the answers."""
        while self.broker.enforce_policies(self.world.now_us):
            pass
        if self.broker.log.size():
            self.sync()
        for wire in list(self.wires):
            wire.flush()
        for gate in list(self.gates):
            gate.flush()

    def cut(self) -> None:
        """Break all transports, and refuse new ones."""
        self.is_cut = True
        for wire in list(self.wires):
            self.wires.remove(wire)
            assert wire.peer is not None
            wire.peer.lost(self.world.now_us)
            wire.break_off("connection reset")

    def mend(self) -> None:
        self.is_cut = False

    def revive(self) -> Node:
        """Crash the broker, and return a new one with what the journal has."""
        self.cut()
        for gate in list(self.gates):
            gate.close()
        return Node(self.world, self.name, self.broker.settings.own_version, self.batches)

    # its operator

    def upstream(self, name: str, uri: str | list[str], vhost: str = "/", **value: Value) -> None:
        said: dict[str, Value] = {key.replace("_", "-"): each for key, each in value.items()}
        parameter: dict[str, Value] = {"uri": list(uri) if isinstance(uri, list) else uri, **said}
        self.parameter("federation-upstream", name, parameter, vhost)

    def parameter(self, component: str, name: str, value: Value, vhost: str = "/") -> None:
        definition: dict[str, Value] = {"vhost": vhost, "component": component, "name": name, "value": value}
        self.broker.definitions.put(PARAMETER, definition)

    def clear(self, name: str, component: str = "federation-upstream", vhost: str = "/") -> None:
        assert self.broker.definitions.remove(PARAMETER, vhost, component, name)

    def policy(self, pattern: str, settings: dict[str, Value], vhost: str = "/", name: str = "fed") -> None:
        rule: dict[str, Value] = {"pattern": pattern, "definition": settings, "priority": 0, "apply-to": "exchanges"}
        self.broker.definitions.put(POLICY, {"vhost": vhost, "name": name, **rule})

    def no_policy(self, vhost: str = "/", name: str = "fed") -> None:
        assert self.broker.definitions.remove(POLICY, vhost, name)

    def vhost(self, name: str) -> VHost:
        self.broker.definitions.put(VHOST, {"name": name, "description": "", "tags": []})
        permission: dict[str, Value] = {"configure": ".*", "write": ".*", "read": ".*"}
        self.broker.definitions.put("permission", {"user": "guest", "vhost": name, **permission})
        return self.broker.vhosts[name]

    def rename(self, cluster: str) -> None:
        self.broker.definitions.put(GLOBAL_PARAMETER, {"name": "cluster_name", "value": cluster})

    def federate(self, exchange: str, upstreams: str, **settings: Value) -> None:
        """Declare the upstream amqp://<upstreams>, and a policy that federates the exchange with it."""
        self.upstream(upstreams, f"amqp://{upstreams}", **settings)
        self.policy(f"^{exchange}$", {"federation-upstream": upstreams})

    # its clients

    def client(self, vhost: str = "/") -> Client:
        self.now_us = self.world.now_us
        return self.connect(vhost)

    def exchange(self, name: str, kind: str = "topic", vhost: str = "/", **values: object) -> None:
        self.client(vhost).call(1, grammar.EXCHANGE_DECLARE, exchange=name, type=kind, durable=True, **values)

    def bind(self, exchange: str, key: str, queue: str = "q", vhost: str = "/", **arguments: Value) -> Reader:
        """Declare and bind a queue."""
        client = self.client(vhost)
        client.queue(queue, durable=True)
        client.call(1, grammar.QUEUE_BIND, queue=queue, exchange=exchange, routing_key=key, arguments=arguments)
        return Reader(self, queue, vhost)

    def unbind(self, exchange: str, key: str, queue: str = "q", vhost: str = "/") -> None:
        self.client(vhost).call(1, grammar.QUEUE_UNBIND, queue=queue, exchange=exchange, routing_key=key)

    def publish(self, exchange: str, key: str, body: bytes = b"x", vhost: str = "/", **values: object) -> None:
        self.client(vhost).publish(key, body, exchange=exchange, delivery_mode=2, **values)

    def status(self) -> LinkStatus:
        """Return the status of the only link."""
        (status,) = self.federator.statuses()
        return status

    def is_running(self) -> bool:
        statuses = self.federator.statuses()
        return bool(statuses) and all(each.status == RUNNING for each in statuses)

    def keys(self, exchange: str, vhost: str = "/") -> list[str]:
        """Return the binding keys of an exchange."""
        found = self.broker.vhosts[vhost].exchanges.get(exchange)
        return [] if found is None else sorted(binding.key for binding in found.every())

    def names(self, vhost: str = "/") -> list[str]:
        """Return the names of the queues and exchanges that links have made."""
        host = self.broker.vhosts[vhost]
        return sorted(name for name in [*host.queues, *host.exchanges] if name.startswith("federation: "))


class Reader:
    """A queue, and what was consumed from it."""

    def __init__(self, node: Node, queue: str, vhost: str) -> None:
        self._node = node
        self._queue = queue
        self._vhost = vhost
        self.bodies: list[bytes] = []
        self.properties: list[Properties] = []

    def take(self) -> list[bytes]:
        """Consume what the queue holds; return all bodies so far."""
        client = self._node.client(self._vhost)
        reader = FrameReader(0)
        client.send(1, grammar.BASIC_CONSUME, queue=self._queue, consumer_tag="t", no_ack=True)
        client.send(1, grammar.BASIC_CANCEL, consumer_tag="t")
        reader.feed(b"".join(client.peer.take(self._node.broker.log.synced)))
        while (frame := reader.next()) is not None:
            if frame.kind == 2:
                self.properties.append(decode_header(frame.payload)[0])
            elif frame.kind == 3:
                self.bodies.append(frame.payload)
        client.peer.lost(self._node.world.now_us)
        return self.bodies


def methods_of(data: bytes) -> list[Method]:
    """Decode the methods in a stream of frames, without the protocol header."""
    reader = FrameReader(0)
    reader.feed(data.removeprefix(b"AMQP\0\0\x09\x01"))
    found: list[Method] = []
    while (frame := reader.next()) is not None:
        if frame.kind == 1:
            found.append(decode_method(frame.payload))
    return found
