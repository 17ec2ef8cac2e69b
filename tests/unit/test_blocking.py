"""While the broker accepts no messages: what is still read, what waits, what the client is told, who is not read."""

from __future__ import annotations

from typing import cast

import pytest

from leveret.broker.peer import Peer
from leveret.net.connections.protocol import PeerProtocol
from leveret.net.pressure import SLOW_US_MAX, Pressure
from leveret.session.holdback import Holdback
from leveret.wire import grammar
from leveret.wire.frames import HEARTBEAT, PROTOCOL_HEADER, content_frames
from leveret.wire.method import method_frame
from leveret.wire.properties import Properties, encode_header

from .support import SECOND_US, Bench, Client

QOS = method_frame(1, grammar.BASIC_QOS, prefetch_count=1)
CAPABLE = {"capabilities": {"connection.blocked": True}}


def message(key: str = "q", body: bytes = b"x", delivery_mode: int = 1) -> bytes:
    method = method_frame(1, grammar.BASIC_PUBLISH, exchange="", routing_key=key)
    header = encode_header(Properties(delivery_mode=delivery_mode), len(body))
    return method + content_frames(1, header, body, 131072)


def capable(bench: Bench, heartbeat: int = 0) -> Client:
    """Return a client that understands connection.blocked, with channel 1 open."""
    client = Client(bench, Peer(bench.broker, "test:2", True))
    client.raw(PROTOCOL_HEADER)
    login = b"\0guest\0guest"
    client.send(0, grammar.CONNECTION_START_OK, client_properties=CAPABLE, mechanism="PLAIN", response=login)
    client.send(0, grammar.CONNECTION_TUNE_OK, channel_max=2047, frame_max=131072, heartbeat=heartbeat)
    client.send(0, grammar.CONNECTION_OPEN, virtual_host="/")
    client.call(1, grammar.CHANNEL_OPEN)
    client.frames()
    return client


def names(client: Client) -> list[str]:
    return [method.name for method in client.methods()]


@pytest.mark.parametrize("size", [1, 7, 11, 30, 1000])
def test_everything_from_the_first_content_on_waits_however_it_arrives(size: int) -> None:
    """However the data is split, what precedes the content is handled, and the rest is kept in order."""
    bench = Bench()
    client = capable(bench)
    client.call(1, grammar.QUEUE_DECLARE, queue="q")
    bench.broker.block_reason = "low on disk"
    said = QOS + message(body=b"1") + QOS + message(body=b"2")
    seen = []
    for at in range(0, len(said), size):
        client.raw(said[at : at + size])
        seen += names(client)
    assert seen == ["basic.qos-ok", "connection.blocked"]
    assert client.peer.is_blocked
    queue = bench.broker.vhosts["/"].queues["q"]
    assert len(list(queue.in_memory())) == 0
    bench.broker.block_reason = ""
    client.raw(client.peer.release())
    assert names(client) == ["connection.unblocked", "basic.qos-ok"]
    assert len(list(queue.in_memory())) == 2
    assert not client.peer.is_blocked


def test_a_message_begun_before_the_alarm_waits_for_its_end() -> None:
    bench = Bench()
    client = capable(bench)
    client.call(1, grammar.QUEUE_DECLARE, queue="q")
    said = message(body=bytes(100_000))  # more than the read buffer holds: assembled frame by frame
    client.raw(said[:80_000])
    bench.broker.block_reason = "low on memory"
    client.raw(said[80_000:])
    queue = bench.broker.vhosts["/"].queues["q"]
    assert len(list(queue.in_memory())) == 0
    bench.broker.block_reason = ""
    client.raw(client.peer.release())
    assert len(list(queue.in_memory())) == 1


def test_the_protocol_header_is_no_frame() -> None:
    assert Holdback().pass_on(PROTOCOL_HEADER + QOS, 8) == PROTOCOL_HEADER + QOS
    held = Holdback()
    assert held.pass_on(PROTOCOL_HEADER + QOS + message(), 8) + held.data == PROTOCOL_HEADER + QOS + message()
    assert held.data.startswith(b"\x02")


def test_the_news_do_not_wait_for_the_disk_but_answers_do() -> None:
    """On a full disk a durable declaration gets no answer for long; the alarm and heartbeats must still go out."""
    bench = Bench()
    client = capable(bench, heartbeat=1)
    client.send(1, grammar.QUEUE_DECLARE, queue="durable", durable=True)
    bench.broker.block_reason = "low on disk"
    client.raw(message())
    assert names(client) == ["connection.blocked"]
    client.peer.now_us += SECOND_US
    assert client.peer.tick()
    assert client.peer.take(bench.broker.log.synced) == [HEARTBEAT]
    bench.broker.block_reason = ""
    client.raw(client.peer.release())
    assert names(client) == ["connection.unblocked"]
    bench.sync()
    assert names(client) == ["queue.declare-ok"]


def test_what_stands_before_the_content_is_done_though_it_takes_several_turns() -> None:
    """For example, very many acknowledgements and a publish behind them in one read."""
    bench = Bench()
    client = capable(bench)
    client.call(1, grammar.QUEUE_DECLARE, queue="q")
    bench.broker.block_reason = "low on disk"
    peer = client.peer
    client.raw(QOS + message())
    assert peer.is_blocked
    peer._data, peer._position, peer.has_more = QOS, 0, True  # left over from a turn that was too short
    client.frames()
    client.raw(b"")
    assert names(client) == ["basic.qos-ok"]
    assert not peer.has_more


def test_a_connection_that_closes_is_told_nothing_more() -> None:
    bench = Bench()
    client = capable(bench)
    bench.broker.block_reason = "low on disk"
    client.raw(message())
    assert names(client) == ["connection.blocked"]
    client.peer.close(320, "shutdown")
    client.raw(client.peer.release())
    client.raw(message() + method_frame(0, grammar.CONNECTION_CLOSE_OK))
    assert names(client) == ["connection.close"]


class Socket:
    """The server's end of a connection, as far as Pressure sees it."""

    def __init__(self, peer: Peer) -> None:
        self.peer = peer
        self.is_paused = False

    def pause(self, is_paused: bool) -> None:
        self.is_paused = is_paused


class Floor:
    """Connections under one Pressure that consume from one queue; the first two publish to it."""

    def __init__(self) -> None:
        bench = Bench()
        clients = [bench.connect() for _ in range(3)]
        clients[0].queue("q")
        for client in clients:
            client.call(1, grammar.BASIC_CONSUME, queue="q", consumer_tag="c")
        for client in clients[:2]:
            client.publish("q")
        self.clients = clients
        self.sockets = [Socket(client.peer) for client in clients]
        self.protocols = {socket.peer: cast(PeerProtocol, socket) for socket in self.sockets}
        self.pressure = Pressure(self.protocols)

    def slow(self, number: int, is_slow: bool) -> None:
        self.pressure.slow(cast(PeerProtocol, self.sockets[number]), is_slow)

    def review(self, number: int) -> None:
        self.pressure.review(cast(PeerProtocol, self.sockets[number]))

    def paused(self) -> list[int]:
        return [number for number, socket in enumerate(self.sockets) if socket.is_paused]


def test_publishers_go_on_when_the_last_reason_has_gone() -> None:
    floor = Floor()
    floor.pressure.journal(True)
    assert floor.paused() == [0, 1]
    floor.pressure.pages(True)
    floor.slow(2, True)
    floor.pressure.journal(False)
    assert floor.paused() == [0, 1]
    floor.slow(2, False)
    assert floor.paused() == [0, 1]
    floor.pressure.pages(False)
    assert floor.paused() == []


def test_a_publisher_is_not_paused_for_its_own_slowness_alone() -> None:
    """It may write before it reads again, and would wait for itself."""
    floor = Floor()
    floor.slow(0, True)
    assert floor.paused() == [1]
    floor.slow(2, True)
    assert floor.paused() == [0, 1]
    floor.slow(2, False)
    assert floor.paused() == [1]
    floor.slow(0, False)
    assert floor.paused() == []


def test_consumers_that_are_slow_in_turns_do_not_hold_a_publisher_up_for_long() -> None:
    """One of them is slow at any time, but each for less than the limit for a stuck consumer."""
    floor = Floor()
    now_us = 0
    floor.pressure._clock_us = lambda: now_us
    floor.slow(2, True)
    for _ in range(3):
        floor.pressure.look(0)
        assert floor.paused() == [0, 1]
        now_us += SLOW_US_MAX
        floor.pressure.look(0)
        assert floor.paused() == []


def test_who_publishes_to_the_queues_of_others_does_not_wait_for_a_slow_consumer() -> None:
    floor = Floor()
    floor.clients[1].queue("other")
    floor.clients[1].publish("other")
    floor.slow(2, True)
    assert floor.paused() == [0]
    floor.clients[1].publish("q")
    floor.review(1)
    assert floor.paused() == [0, 1]
    floor.slow(2, False)
    assert floor.paused() == []


def test_who_answers_a_slow_requester_waits_for_it() -> None:
    floor = Floor()
    requester, server = floor.clients[2], floor.clients[1]
    requester.call(1, grammar.BASIC_CONSUME, queue="amq.rabbitmq.reply-to", consumer_tag="r", no_ack=True)
    requester.publish("q", reply_to="amq.rabbitmq.reply-to")
    (name,) = requester.peer.vhost.replies
    server.publish(name)
    floor.slow(2, True)
    assert 1 in floor.paused()


def test_who_begins_to_publish_is_paused_after_that_turn() -> None:
    floor = Floor()
    floor.pressure.journal(True)
    floor.sockets[2].peer.is_publisher = True
    floor.review(2)
    assert floor.paused() == [0, 1, 2]


def test_an_alarm_pauses_only_who_is_blocked_and_no_other_reason_lets_it_go() -> None:
    floor = Floor()
    floor.sockets[0].peer.is_blocked = True
    floor.review(0)
    assert floor.paused() == [0]
    floor.pressure.journal(True)
    floor.pressure.journal(False)
    assert floor.paused() == [0]
    floor.sockets[0].peer.is_blocked = False
    floor.review(0)
    assert floor.paused() == []


def test_a_closing_connection_is_read_to_its_end() -> None:
    floor = Floor()
    floor.pressure.journal(True)
    floor.sockets[0].peer.close(320, "shutdown")
    floor.review(0)
    assert floor.paused() == [1]
