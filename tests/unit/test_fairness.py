"""Who waits for the consumers of a crowded queue, and for how long."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import pytest

from leveret.broker.peer import Peer
from leveret.broker.queues.queue import CROWD, Queue
from leveret.net.connections.protocol import PeerProtocol
from leveret.net.fairness import (
    HOLD_US_MAX,
    LOOK_US,
    QUICK,
    RESPITE_US_MAX,
    RESPITE_US_MIN,
    SHORT,
    SLOW_LOOKS,
    Fairness,
)
from leveret.net.pressure import Pressure
from leveret.wire import grammar

from .support import Bench, Client
from .test_runs import alike


class Socket:
    """The server's end of a connection, as far as Pressure and Fairness see it."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.peer = client.peer
        self.is_paused = False
        self.transport = self

    def pause(self, is_paused: bool) -> None:
        self.is_paused = is_paused


class Floor:
    """A publisher, a client that publishes elsewhere, and a consumer with a prefetch of 1000, on one broker."""

    def __init__(self) -> None:
        self.bench = Bench()
        self.sockets = [Socket(self.bench.connect()) for _ in range(3)]
        self.publisher, self.bystander, self.consumer = self.sockets
        protocols = {socket.peer: cast(PeerProtocol, socket) for socket in self.sockets}
        self.looks: list[int] = []
        self.fairness = Fairness(Pressure(protocols), self.looks.append)
        client = self.consumer.client
        for name in ("q", "other"):
            client.queue(name)
            client.call(1, grammar.QUEUE_BIND, queue=name, exchange="amq.topic", routing_key=name)
        client.call(1, grammar.BASIC_QOS, prefetch_count=1000)
        client.call(1, grammar.BASIC_CONSUME, queue="q", consumer_tag="c")

    @property
    def queue(self) -> Queue:
        return self.bench.broker.vhosts["/"].queues["q"]

    def turn(self, socket: Socket, act: Callable[[Client], object]) -> None:
        act(socket.client)
        while socket.client.frames():
            socket.peer.drained(self.bench.now_us)  # its socket takes all
        self.fairness.turn(cast(PeerProtocol, socket), self.bench.now_us)

    def publish(self, count: int) -> None:
        self.turn(self.publisher, lambda client: client.raw(b"".join(alike("q", count))))

    def acknowledge(self, count: int) -> None:
        """Let the consumer acknowledge `count` messages, and get as many new ones."""
        unacked = self.consumer.peer.channels[1].unacked
        first = next(tag for tag in range(1, 1 << 30) if unacked.has(tag))
        tag = first + count - 1
        act = lambda client: client.send(1, grammar.BASIC_ACK, delivery_tag=tag, multiple=True)  # noqa: E731
        self.turn(self.consumer, act)

    def look(self) -> None:
        """Let time pass until the scheduled check, and do it."""
        self.bench.now_us += self.looks.pop()
        self.fairness.look(self.bench.now_us)

    def give_up(self) -> int:
        """Let the consumer take nothing; return for how long publishers then do not wait for it."""
        for _ in range(SLOW_LOOKS):
            assert self.publisher.is_paused
            self.look()
        assert not self.publisher.is_paused
        return int(self.queue.respite_until_us) - self.bench.now_us


@pytest.fixture
def floor() -> Floor:
    return Floor()


def test_a_publisher_waits_until_its_queue_is_short(floor: Floor) -> None:
    floor.publish(1000 + CROWD)
    assert not floor.publisher.is_paused
    floor.publish(1)
    assert floor.publisher.is_paused
    while floor.queue.count() > SHORT:
        assert floor.publisher.is_paused
        floor.acknowledge(QUICK)
    assert not floor.publisher.is_paused


def test_who_publishes_elsewhere_does_not_wait_though_it_consumes_from_a_crowded_queue(floor: Floor) -> None:
    floor.turn(floor.bystander, lambda client: client.publish("other"))
    floor.turn(floor.bystander, lambda client: client.send(1, grammar.BASIC_QOS, prefetch_count=2))
    floor.turn(floor.bystander, lambda client: client.send(1, grammar.BASIC_CONSUME, queue="q"))
    floor.publish(2000 + CROWD)
    floor.turn(floor.bystander, lambda client: client.send(1, grammar.BASIC_ACK, delivery_tag=1))
    assert floor.bench.broker.vhosts["/"].crowded == [floor.queue]
    assert [socket.is_paused for socket in floor.sockets] == [True, False, False]


def test_a_queue_without_consumers_may_grow(floor: Floor) -> None:
    floor.turn(floor.publisher, lambda client: client.raw(b"".join(alike("other", 2000 + CROWD))))
    assert not floor.publisher.is_paused


def test_nobody_waits_for_slow_consumers(floor: Floor) -> None:
    floor.publish(2000 + CROWD)
    assert floor.looks == [LOOK_US]
    assert floor.give_up() == RESPITE_US_MIN
    assert floor.looks == []
    floor.publish(1)
    assert not floor.publisher.is_paused
    floor.bench.now_us += RESPITE_US_MIN
    floor.publish(1)
    assert floor.give_up() == 2 * RESPITE_US_MIN
    for _ in range(20):
        floor.bench.now_us += RESPITE_US_MAX
        floor.publish(1)
        respite_us = floor.give_up()
    assert respite_us == RESPITE_US_MAX


def test_consumers_that_caught_up_once_are_waited_for_again_soon(floor: Floor) -> None:
    for _ in range(2):
        floor.bench.now_us += RESPITE_US_MAX
        floor.publish(2000 + CROWD)
        assert floor.give_up() == RESPITE_US_MIN
        floor.bench.now_us += RESPITE_US_MAX
        floor.publish(1)
        while floor.queue.count() > SHORT:
            floor.acknowledge(QUICK)


def test_one_slow_look_is_forgiven(floor: Floor) -> None:
    floor.publish(20_000 + CROWD)
    for _ in range(3):
        floor.look()
        floor.acknowledge(QUICK)
        floor.look()
    assert floor.publisher.is_paused


def test_nobody_waits_for_long_even_for_quick_consumers(floor: Floor) -> None:
    floor.publish(20_000 + CROWD)
    held_us = 0
    while floor.publisher.is_paused:
        floor.acknowledge(QUICK)
        floor.look()
        held_us += LOOK_US
    assert held_us == HOLD_US_MAX
    floor.publish(1)
    assert floor.publisher.is_paused


def test_a_deleted_queue_holds_nobody(floor: Floor) -> None:
    floor.publish(2000 + CROWD)
    floor.turn(floor.consumer, lambda client: client.send(1, grammar.QUEUE_DELETE, queue="q"))
    assert not floor.publisher.is_paused


def test_a_connection_that_is_gone_is_forgotten(floor: Floor) -> None:
    floor.publish(2000 + CROWD)
    floor.fairness.forget(cast(PeerProtocol, floor.publisher))
    floor.publisher.peer.lost(floor.bench.now_us)
    floor.look()
    assert floor.looks == []


def test_where_a_connection_published_last(floor: Floor) -> None:
    peer: Peer = floor.publisher.peer
    assert peer.last_routes() == []
    floor.publish(1)
    assert [route.queues for route in peer.last_routes()] == [[floor.queue]]
