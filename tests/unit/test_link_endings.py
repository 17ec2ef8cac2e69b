"""Every way in which a link's connections can end frees all that they had at once.

The garbage collector is off in a broker, and a link whose upstream is away makes an attempt every few seconds for ever.
"""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Callable, Iterator

import pytest

from .links import World
from .support import Client

ROUNDS = 3
BODY = b"z" * 10_000
# what one attempt has, except what its owner keeps
KINDS = {
    "Attempt", "LinkTransport", "ConnectionCore", "ChannelCore", "Waiter", "Alarms", "Swap", "Binder", "Bounds",
    "Transfer", "Window", "Rewriter", "LinkPeer", "Peer", "Confirms", "BrokerChannel", "Unacked", "Entry",
    "DeliveryReader",
}  # fmt: skip


class Pair:
    """A running link, and a client of its upstream."""

    def __init__(self) -> None:
        self.world = World()
        self.up, self.down = self.world.node("up"), self.world.node("down")
        self.up.exchange("x")
        self.down.exchange("x")
        self.down.bind("x", "#")
        self.down.federate("x", "up", reconnect_delay=1, ack_mode="on-confirm")
        self.publisher: Client = self.up.client()
        self.runs()

    def runs(self) -> None:
        self.world.until(self.down.is_running)

    def publish(self) -> None:
        self.publisher.publish("a", BODY, exchange="x", delivery_mode=2)

    def alive(self) -> Counter[str]:
        for node in (self.up, self.down):
            node.broker.dirty.clear()
            node.dialled.clear()
            node.batches.clear()
        return Counter(name for each in gc.get_objects() if (name := type(each).__name__) in KINDS)


def is_cut(pair: Pair) -> None:
    pair.up.cut()
    pair.up.mend()


def is_cut_with_messages_under_way(pair: Pair) -> None:
    pair.publish()
    pair.world.step()
    is_cut(pair)


def is_cut_while_held(pair: Pair) -> None:
    (gate,) = pair.down.gates
    gate.user.held(True)
    pair.publish()
    pair.world.pass_time(1)
    is_cut(pair)


def is_cut_in_the_handshake(pair: Pair) -> None:
    is_cut(pair)
    while not pair.up.wires:
        pair.world.step()
    is_cut(pair)


def finds_nobody(pair: Pair) -> None:
    pair.up.cut()
    pair.world.pass_time(20)
    pair.up.mend()


def finds_somebody_who_says_nothing(pair: Pair) -> None:
    pair.up.is_mute = True
    is_cut(pair)
    pair.world.pass_time(100)
    pair.up.is_mute = False


def is_broken_by_nonsense(pair: Pair) -> None:
    pair.up.wires[0]._deliver(b"\x09" * 8)


def is_closed_by_the_upstream(pair: Pair) -> None:
    (wire,) = pair.up.wires
    assert wire.peer is not None
    wire.peer.close(320, "enough")


def is_shut_by_an_operator(pair: Pair) -> None:
    (gate,) = pair.down.gates
    gate.close()
    gate.user.shut("CONNECTION_FORCED - enough")


def loses_its_queue(pair: Pair) -> None:
    (name,) = [name for name in pair.up.names() if name in pair.up.broker.vhosts["/"].queues]
    pair.publisher.peer.vhost.delete_queue(pair.up.broker.vhosts["/"].queues[name])
    is_cut(pair)


def loses_its_policy(pair: Pair) -> None:
    pair.down.no_policy()
    pair.world.until(lambda: not pair.down.federator.statuses())
    pair.down.policy("^x$", {"federation-upstream": "up"})


ENDINGS = [
    is_cut, is_cut_with_messages_under_way, is_cut_while_held, is_cut_in_the_handshake, finds_nobody,
    finds_somebody_who_says_nothing, is_broken_by_nonsense, is_closed_by_the_upstream, is_shut_by_an_operator,
    loses_its_queue, loses_its_policy,
]  # fmt: skip


@pytest.fixture
def pair() -> Iterator[Pair]:
    pair = Pair()
    gc.collect()
    gc.disable()
    yield pair
    gc.enable()


def one_life(pair: Pair, ending: Callable[[Pair], None]) -> None:
    pair.publish()
    pair.world.pass_time(1)
    ending(pair)
    pair.world.pass_time(10)
    pair.runs()
    pair.world.pass_time(60)
    vhost = pair.down.broker.vhosts["/"]
    vhost.purge(vhost.queues["q"])
    while pair.down.broker.is_busy:
        pair.down.broker.requeue_step(pair.world.now_us)


@pytest.mark.parametrize("ending", ENDINGS, ids=lambda each: each.__name__)
def test_nothing_is_left_of_a_links_connections_however_they_end(pair: Pair, ending: Callable[[Pair], None]) -> None:
    one_life(pair, ending)
    before = pair.alive()
    for _ in range(ROUNDS):
        one_life(pair, ending)
    left = pair.alive()
    left.subtract(before)
    assert {kind: count for kind, count in left.items() if count >= ROUNDS} == {}
