"""Positions: the position of each message that a link receives, and the journal's record of a link's progress."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leveret.broker.link_peer import CHANNEL, LinkPeer
from leveret.broker.messages.content import write_stamped
from leveret.broker.messages.contents import raw_headers
from leveret.broker.storage.definitions import VHOST
from leveret.session.lifecycle import OPEN
from leveret.session.output import Output
from leveret.wire import grammar
from leveret.wire.frames import FrameReader, content_frames
from leveret.wire.method import decode_method, method_frame
from leveret.wire.properties import Properties, decode_header, encode_header

from .support import Bench, Client, recovered

LINK = {"x-leveret-positions": True}


@pytest.fixture
def bench() -> Bench:
    return Bench()


def linked(bench: Bench, **values: object) -> Client:
    """Return a client that consumes queue "up" as links do."""
    client = bench.connect()
    client.send(1, grammar.BASIC_CONSUME, queue="up", arguments=LINK, **values)
    return client


def positions(client: Client) -> list[tuple[int, int, bytes]]:
    """Return (epoch, id, body) of each delivery since the last call."""
    found = []
    place = (0, 0)
    for frame in client.frames():
        if frame.kind == 2:
            # read as a link does: the first header is the broker's
            value = (raw_headers(frame.payload) or [(b"", b"")])[0][1][5:]
            place = int.from_bytes(value[:8], "big", signed=True), int.from_bytes(value[8:], "big", signed=True)
        elif frame.kind == 3:
            found.append((*place, frame.payload))
    return found


def test_each_message_has_a_position(bench: Bench) -> None:
    client = bench.connect()
    client.queue("up", durable=True, arguments=LINK)
    for body in (b"a", b"b", b"c"):
        client.publish("up", body, delivery_mode=None if body == b"b" else 2)
    found = positions(linked(bench))
    assert [body for *_, body in found] == [b"a", b"b", b"c"]
    assert len({epoch for epoch, *_ in found}) == 1
    ids = [id for _, id, _ in found]
    assert ids == sorted(set(ids))
    assert ids[0] > 0


def test_a_position_stays_over_a_crash_and_what_comes_then_is_of_another_life(bench: Bench) -> None:
    batches = [b"".join(bench.broker.snapshot())]
    client = bench.connect()
    client.queue("up", durable=True, arguments=LINK)
    link = linked(bench)
    client.publish("up", b"a")
    bench.sync()
    client.publish("up", b"lost")
    ((first, id, _),) = before = positions(link)
    batches += bench.batches
    for crash in (1, 2):
        bench = recovered(batches, 1000 * crash)
        bench.connect().publish("up", b"new")
        bench.sync()
        after = positions(linked(bench))
        assert after[0] == before[0]
        assert [body for *_, body in after] == [b"a"] + [b"new"] * crash
        assert after[1][0] != first
        assert after[1][1] == id + 1  # the id is used again, but in another epoch
        assert len({epoch for epoch, *_ in after}) == 1 + crash
        batches += bench.batches


def test_a_link_hears_of_a_message_when_it_is_on_disk(bench: Bench) -> None:
    """A link forwards for good: if this broker then lost the message, its own upstream would send a duplicate."""
    client = bench.connect()
    client.queue("up", durable=True, arguments=LINK)
    client.publish("up", b"a")
    bench.sync()
    link = linked(bench)
    plain = bench.connect()
    plain.call(1, grammar.QUEUE_DECLARE, queue="other", durable=True)
    plain.send(1, grammar.BASIC_CONSUME, queue="other")
    plain.frames()
    assert [body for *_, body in positions(link)] == [b"a"]
    for name in ("up", "other"):
        client.publish(name, b"b", delivery_mode=2)
    assert link.peer.take(bench.broker.log.synced) == []
    assert plain.bodies() == [b"b"]
    log = bench.broker.log
    assert log.is_awaited
    batch = log.batch
    log.close_batch()
    client.publish("up", b"c")
    assert positions(link) == []
    log.on_disk(batch)
    assert [body for *_, body in positions(link)] == [b"b"]
    bench.sync()
    assert [body for *_, body in positions(link)] == [b"c"]


def test_what_was_put_back_is_not_mistaken_for_what_came_after_the_backup(bench: Bench) -> None:
    client = bench.connect()
    client.queue("up", durable=True, arguments=LINK)
    client.publish("up", b"a")
    backup = b"".join(bench.broker.snapshot()) + bench.sync()
    client.publish("up", b"b")
    found = positions(linked(bench))
    again = recovered([backup], 1000)
    again.connect().publish("up", b"c")
    assert [place[:2] for place in positions(linked(again))] != [place[:2] for place in found]


def test_two_queues_have_no_position_in_common(bench: Bench) -> None:
    client = bench.connect()
    for name in ("up", "other"):
        client.queue(name, durable=True, arguments=LINK)
        client.call(1, grammar.QUEUE_BIND, queue=name, exchange="amq.fanout")
    client.publish("", exchange="amq.fanout")
    client.send(1, grammar.BASIC_CONSUME, queue="other", arguments=LINK)
    (epoch, id, _), (other, same, _) = positions(linked(bench)) + positions(client)
    assert id == same
    assert epoch != other


def test_who_does_not_ask_gets_none(bench: Bench) -> None:
    client = bench.connect()
    client.queue("up", durable=True, arguments=LINK)
    client.publish("up", headers={"x-leveret-position": b"forged"})
    for _ in range(2):
        client.publish("up")
    client.send(1, grammar.BASIC_CONSUME, queue="up", consumer_tag="no acks", no_ack=True, arguments=LINK)
    assert [position[1] for position in positions(client)] == [int.from_bytes(b"forged"[8:]), 0, 0]
    client.send(1, grammar.BASIC_CANCEL, consumer_tag="no acks")
    client.publish("up")
    client.send(1, grammar.BASIC_GET, queue="up", no_ack=True)
    assert [position[1] for position in positions(client)] == [0]


def test_what_is_not_in_the_journal_has_the_position_of_nothing(bench: Bench) -> None:
    """A position header of the publisher is ignored."""
    client = bench.connect()
    client.queue("up", durable=True)
    client.publish("up", b"a", headers={"x-leveret-position": bytes(8) + (1 << 40).to_bytes(8, "big")})
    client.publish("up", b"b", delivery_mode=2)
    (epoch, id, _), (_, kept, _) = positions(linked(bench))
    assert (epoch, id) == (0, 0)
    assert kept > 0


def test_the_queue_keeps_what_is_transient(bench: Bench) -> None:
    batches = [b"".join(bench.broker.snapshot())]
    client = bench.connect()
    client.queue("up", durable=True, arguments=LINK)
    client.publish("up", b"a")
    bench.sync()
    again = recovered(batches + bench.batches)
    assert again.broker.vhosts["/"].queues["up"].count() == 1
    again.connect().publish("up", b"b")
    again.sync()
    assert recovered(batches + bench.batches + again.batches).broker.vhosts["/"].queues["up"].count() == 2


def test_a_new_link_takes_over_with_all_that_the_old_one_had(bench: Bench) -> None:
    client = bench.connect()
    client.queue("up", durable=True, arguments=LINK)
    for number in range(4):
        client.publish("up", b"%d" % number)
    old = bench.connect()
    old.send(1, grammar.BASIC_QOS, prefetch_count=3)
    old.send(1, grammar.BASIC_CONSUME, queue="up", arguments=LINK)
    first = positions(old)
    old.send(1, grammar.BASIC_ACK, delivery_tag=1)
    old.frames()
    new = linked(bench)
    assert [body for *_, body in positions(new)] == [b"1", b"2", b"3"]
    closed = old.methods()[-1]
    assert closed.spec.name == "connection.close"
    assert closed.number("reply_code") == 320
    assert closed.text("reply_text") == "CONNECTION_FORCED - another connection has taken over queue 'up' in vhost '/'"
    assert bench.broker.vhosts["/"].queues["up"].consumers.count == 1
    assert len(first) == 3


def test_a_link_does_not_take_over_from_itself_nor_from_others(bench: Bench) -> None:
    client = bench.connect()
    client.queue("up", durable=True, arguments=LINK)
    client.call(1, grammar.BASIC_CONSUME, queue="up", consumer_tag="plain")
    other = linked(bench, consumer_tag="link")
    closed = other.call(1, grammar.BASIC_CONSUME, queue="up", arguments=LINK)
    assert closed.spec.name == "channel.close"
    assert closed.text("reply_text") == "ACCESS_REFUSED - queue 'up' in vhost '/' in exclusive use"
    assert [consumer.tag for consumer in bench.broker.vhosts["/"].queues["up"].consumers.all()] == ["plain"]


def test_taking_over_a_queue_that_goes_with_its_last_consumer(bench: Bench) -> None:
    client = bench.connect()
    client.queue("up", durable=True, auto_delete=True, arguments=LINK)
    client.call(1, grammar.BASIC_CONSUME, queue="up", arguments=LINK)
    assert bench.connect().call(1, grammar.BASIC_CONSUME, queue="up", arguments=LINK).number("reply_code") == 404


@pytest.mark.parametrize("crashes", [False, True])
def test_what_somebody_else_had_in_his_hands_has_no_position(bench: Bench, crashes: bool) -> None:
    """It may be requeued after links received the messages behind it, and would be taken for a duplicate."""
    batches = [b"".join(bench.broker.snapshot())]
    client = bench.connect()
    client.queue("up", durable=True, arguments=LINK)
    for body in (b"a", b"b", b"c"):
        client.publish("up", body)
    bench.sync()
    other = bench.connect()
    other.send(1, grammar.BASIC_GET, queue="up")
    other.send(1, grammar.BASIC_NACK, delivery_tag=1, requeue=True)
    link = bench.connect()
    link.send(1, grammar.BASIC_QOS, prefetch_count=1)
    link.send(1, grammar.BASIC_CONSUME, queue="up", arguments=LINK)
    ((_, id, body),) = positions(link)
    assert (body, id > 0) == (b"a", True)  # it has a position, since no consumer holds it any more
    other.send(1, grammar.BASIC_GET, queue="up")
    link.send(1, grammar.BASIC_ACK, delivery_tag=1, multiple=True)
    bench.sync()
    assert positions(link) == [(0, 0, b"c")]
    other.send(1, grammar.BASIC_NACK, delivery_tag=2, requeue=True)
    if crashes:
        bench = recovered(batches + bench.batches)
        assert recovered([b"".join(bench.broker.snapshot())]).broker.vhosts["/"].queues["up"].unplaced_below == id + 3
        client, link = bench.connect(), linked(bench)
        assert positions(link) == [(0, 0, b"b"), (0, 0, b"c")]
    else:
        link.send(1, grammar.BASIC_ACK, delivery_tag=2)
        assert positions(link) == [(0, 0, b"b")]
        link.send(1, grammar.BASIC_ACK, delivery_tag=3)
    client.publish("up", b"d")
    bench.sync()
    ((_, newer, body),) = positions(link)
    assert (body, newer) == (b"d", id + 3)


def test_a_link_of_a_queue_that_is_not_durable_waits_for_no_disk(bench: Bench) -> None:
    client = bench.connect()
    client.queue("up", arguments=LINK)
    link, other = linked(bench), bench.connect()
    client.publish("up", b"a", delivery_mode=2)
    assert positions(link) == [(0, 0, b"a")]
    link.send(1, grammar.BASIC_NACK, delivery_tag=1, requeue=True)
    assert positions(link) == [(0, 0, b"a")]
    other.peer.lost(bench.now_us)
    other = bench.connect()
    other.send(1, grammar.BASIC_CONSUME, queue="up")
    client.publish("up", b"b")
    client.publish("up", b"c")
    assert sorted(positions(link) + positions(other)) == [(0, 0, b"b"), (0, 0, b"c")]


def test_a_link_may_have_other_times_for_its_queue_and_nobody_else(bench: Bench) -> None:
    batches = [b"".join(bench.broker.snapshot())]
    client = bench.connect()
    client.queue("up", durable=True, arguments=LINK)
    client.publish("up", b"a")
    other = {**LINK, "x-message-ttl": 1000, "x-expires": 60_000}
    assert client.call(1, grammar.QUEUE_DECLARE, queue="up", durable=True, arguments=other).number("message_count") == 1
    client.publish("up", b"b")
    bench.sync()
    again = recovered(batches + bench.batches)
    for each in (bench, again, recovered([b"".join(again.broker.snapshot())])):
        queue = each.broker.vhosts["/"].queues["up"]
        assert (int(queue.ttl_us), int(queue.idle_us)) == (1_000_000, 60_000_000)
    epochs = [int(entry.expires_us) for entry in bench.broker.vhosts["/"].queues["up"].in_memory()]
    assert epochs == [0, bench.now_us + 1_000_000]
    refused = {"x-message-ttl": "many"}, {"x-max-length": 1}, {"x-leveret-positions": False}
    for values in refused:
        fresh = bench.connect()
        answer = fresh.call(1, grammar.QUEUE_DECLARE, queue="up", durable=True, arguments={**LINK, **values})
        assert answer.number("reply_code") == 406
    assert int(bench.broker.vhosts["/"].queues["up"].ttl_us) == 1_000_000


short = st.text("ab", max_size=20) | st.none()
tables = st.none() | st.dictionaries(st.text("xyz", min_size=1, max_size=5), st.integers(0, 9) | st.text(), max_size=4)


@given(short, short, tables, short, st.binary(max_size=9000), st.integers(-(1 << 63), (1 << 63) - 1))
def test_nothing_but_the_position_changes(
    kind: str | None, encoding: str | None, headers: dict[str, object] | None, reply: str | None, body: bytes, id: int
) -> None:
    properties = Properties(content_type=kind, content_encoding=encoding, headers=headers, reply_to=reply, priority=3)  # type: ignore[arg-type]
    content = content_frames(1, encode_header(properties, len(body)), body, 131072)
    output = Output()
    write_stamped(output, content, 7, 4096, 5, id)
    reader = FrameReader(4096)
    reader.feed(b"".join(output.take(0)))
    first = reader.next()
    assert first is not None
    found, size = decode_header(first.payload)
    assert size == len(body)
    assert found.headers is not None
    (name, value), *rest = found.headers.items()
    assert (name, value) == ("x-leveret-position", (5).to_bytes(8, "big") + id.to_bytes(8, "big", signed=True))
    found.headers = dict(rest) if rest or headers is not None else None
    assert found == properties
    parts = [b""]
    while (frame := reader.next()) is not None:
        assert (frame.kind, frame.channel) == (3, 7)
        parts.append(frame.payload)
    assert b"".join(parts) == body


def test_headers_without_room_go_without_and_without_a_forged_one(bench: Bench) -> None:
    client = bench.connect()
    client.queue("up", durable=True, arguments=LINK)
    forged = {"x-leveret-position": bytes(15) + b"\1", "long": "x" * 130990}
    client.publish("up", b"a", headers=forged)
    frames = linked(bench).frames()
    assert len(frames[-2].payload) <= 131072 - 8
    assert list(decode_header(frames[-2].payload)[0].headers or {}) == ["x-leveret_position", "long"]


# -- downstream --------------------------------------------------------------------------------------------------------


class DirectConnection:
    """The calls that a link's session makes on its peer."""

    def __init__(self, bench: Bench, key: str = "up") -> None:
        self.bench = bench
        self.peer = LinkPeer(bench.broker, bench.broker.vhosts["/"], "a link", True, key)
        self.published = 0

    def take(self, *ids: int, epoch: int = 9, queue: str = "q", size: int = 1) -> None:
        """Publish the upstream's messages with these ids in one turn, except those already known."""
        data = b""
        for id in ids:
            if not self.peer.position.has(epoch, id):
                self.published += 1
                self.peer.stand(self.published, epoch, id)
                body = b"%d" % id * size
                data += method_frame(1, grammar.BASIC_PUBLISH, routing_key=queue)
                data += content_frames(1, encode_header(Properties(delivery_mode=2), len(body)), body, 131072)
        self.peer.turn(data, self.bench.now_us)

    def knows(self, *ids: int, epoch: int = 9) -> list[bool]:
        return [self.peer.position.has(epoch, id) for id in ids]


def direct(bench: Bench, **arguments: object) -> DirectConnection:
    bench.batches.append(b"".join(bench.broker.snapshot()))
    client = bench.connect()
    client.queue("q", durable=True, arguments={name.replace("_", "-"): value for name, value in arguments.items()})
    return DirectConnection(bench)


def ids(bench: Bench) -> list[int]:
    client = bench.connect()
    client.send(1, grammar.BASIC_CONSUME, queue="q", no_ack=True)
    found = [int(body) for body in client.bodies()]
    client.peer.lost(bench.now_us)
    return found


def test_what_was_had_is_known(bench: Bench) -> None:
    link = direct(bench)
    link.take(3, 5, 9)
    assert link.knows(2, 3, 4, 5, 9, 10) == [True, True, True, True, True, False]
    assert link.knows(3, epoch=8) == [False]
    link.take(4, 9, 12)
    assert ids(bench) == [3, 5, 9, 12]


def test_each_turn_is_on_disk_with_its_position_or_not_at_all(bench: Bench) -> None:
    """Crash between any two batches: the upstream sends everything again, and each message is there once."""
    link = direct(bench)
    for first in range(1, 13, 3):
        link.take(*range(first, first + 3))
        bench.sync()
    for crash in range(2, len(bench.batches) + 1):
        again = recovered(bench.batches[:crash])
        if "q" in again.broker.vhosts["/"].queues:
            DirectConnection(again).take(*range(1, 16))
            assert ids(again) == list(range(1, 16))


def test_what_was_refused_comes_again(bench: Bench) -> None:
    link = direct(bench, x_max_length=2, x_overflow="reject-publish")
    link.take(1, 2, 3, 4)
    assert link.knows(1, 2, 3, 4, 5) == [True, True, False, False, False]
    assert ids(bench) == [1, 2]
    link.take(5, 6, 3, 4)
    assert link.knows(3, 4, 5, 6) == [False, False, True, True]
    assert ids(bench) == [5, 6]
    link.take(3)
    assert link.knows(3, 4) == [True, False]
    bench.sync()
    again = recovered(bench.batches)
    assert DirectConnection(again).knows(1, 2, 3, 4, 5, 6, 7) == [True, True, True, False, True, True, False]
    snapshot = recovered([b"".join(bench.broker.snapshot())])
    assert DirectConnection(snapshot).knows(1, 2, 3, 4, 5, 6, 7) == [True, True, True, False, True, True, False]


def test_what_a_turn_leaves_for_the_next_has_no_position_yet(bench: Bench) -> None:
    link = direct(bench)
    link.take(1, 2, 3, 4, size=400_000)
    assert link.peer.has_more
    assert link.knows(1, 2, 3, 4) == [True, True, True, False]
    link.peer.turn(b"", bench.now_us)
    assert link.knows(4) == [True]


def test_lives_in_one_turn(bench: Bench) -> None:
    link = direct(bench)
    link.peer.stand(1, 7, 30)
    link.published = 1
    data = method_frame(1, grammar.BASIC_PUBLISH, routing_key="q")
    link.peer.turn(data + content_frames(1, encode_header(Properties(), 1), b"0", 131072)[:9], bench.now_us)
    link.peer.turn(content_frames(1, encode_header(Properties(), 1), b"0", 131072)[9:], bench.now_us)
    link.take(4, 5, epoch=8)
    assert link.knows(30, 31, epoch=7) == [True, False]
    assert link.knows(5, 6, epoch=8) == [True, False]


def test_holes_before_a_new_session_are_gone(bench: Bench) -> None:
    link = direct(bench, x_max_length=1, x_overflow="reject-publish")
    link.take(1, 2, 3, 4)
    again = DirectConnection(bench)
    again.take(3)
    assert not again.peer.position.is_missing(9, 2)
    assert again.peer.position.is_missing(9, 3)


def test_a_link_that_is_no_more_is_forgotten(bench: Bench) -> None:
    link = direct(bench)
    link.take(1)
    bench.broker.positions.forget("up")
    bench.broker.positions.forget("never heard of")
    bench.sync()
    for again in (recovered(bench.batches), recovered([b"".join(bench.broker.snapshot())]), bench):
        assert DirectConnection(again).knows(1) == [False]


def said(link: DirectConnection, properties: Properties, epoch: int, id: int, body: bytes = b"0") -> list[str]:
    """Publish a message and return the names of the broker's answers."""
    link.published += 1
    link.peer.stand(link.published, epoch, id)
    data = method_frame(1, grammar.BASIC_PUBLISH, routing_key="q")
    link.peer.turn(data + content_frames(1, encode_header(properties, len(body)), body, 131072), link.bench.now_us)
    reader = FrameReader(0)
    link.bench.sync()
    reader.feed(b"".join(link.peer.take(link.bench.broker.log.synced)))
    found = []
    while (frame := reader.next()) is not None:
        found.append(decode_method(frame.payload).spec.name)
    return found


def test_a_message_at_fault_is_refused_alone(bench: Bench) -> None:
    """The refusal is final: the message has a position, and those behind it continue."""
    told: list[str] = []
    bench.broker.on_event = told.append
    link = direct(bench)
    assert said(link, Properties(), 9, 1) == ["basic.ack"]
    assert said(link, Properties(delivery_mode=3), 9, 2) == ["basic.nack"]
    assert said(link, Properties(headers={"CC": "no array"}), 9, 3) == ["basic.nack"]
    assert said(link, Properties(), 9, 4) == ["basic.ack"]
    assert link.peer.hopeless == {2, 3}
    assert link.knows(1, 2, 3, 4, 5) == [True, True, True, True, False]
    assert [text for text in told if "refused" in text] == [
        f"'a link {link.peer.number}': a message was refused: 406 PRECONDITION_FAILED - {why}"
        for why in (
            "invalid message: {delivery_mode_unknown,3}",
            'invalid message: {unacceptable_type_in_header,"CC",longstr}',
        )
    ]


def test_a_link_speaks_for_the_users_of_its_upstream(bench: Bench) -> None:
    assert said(direct(bench), Properties(user_id="somebody"), 9, 1) == ["basic.ack"]


def test_a_reply_name_that_came_over_the_link_is_noticed(bench: Bench) -> None:
    link = direct(bench)
    said(link, Properties(reply_to="q"), 9, 1)
    said(link, Properties(reply_to="amq.rabbitmq.reply-to.x"), 9, 2)
    said(link, Properties(reply_to="amq.rabbitmq.reply-to.y"), 9, 3)
    assert link.peer.dead_reply == b"amq.rabbitmq.reply-to.x"


def test_an_exchange_that_is_gone_closes_the_channel(bench: Bench) -> None:
    link = direct(bench)
    data = method_frame(1, grammar.BASIC_PUBLISH, exchange="gone", routing_key="q")
    link.peer.stand(1, 9, 1)
    link.peer.turn(data + content_frames(1, encode_header(Properties(), 1), b"0", 131072), bench.now_us)
    assert link.knows(1) == [False]
    assert CHANNEL in link.peer.channels
    assert link.peer.channels[CHANNEL].state != OPEN


def test_the_peer_of_a_link_counts_as_a_connection(bench: Bench) -> None:
    vhost = bench.broker.vhosts["/"]
    first, second = (DirectConnection(bench, key).peer for key in ("a", "b"))
    assert (bench.broker.connection_count, vhost.connection_count) == (2, 2)
    assert first.name != second.name
    assert first.client_properties == {"connection_name": "a link"}
    first.lost(bench.now_us)
    second.close(320, "an operator wants it")
    assert (bench.broker.connection_count, vhost.connection_count) == (0, 0)
    assert not vhost.channels


def test_while_the_broker_takes_no_messages_nothing_is_had(bench: Bench) -> None:
    link = direct(bench)
    link.take(1)
    bench.broker.block_reason = "low on disk"
    link.take(2, 3)
    assert link.peer.is_blocked
    assert link.knows(1, 2, 3) == [True, False, False]
    bench.broker.block_reason = ""
    link.peer.turn(link.peer.release(), bench.now_us)
    assert link.knows(2, 3, 4) == [True, True, False]
    assert ids(bench) == [1, 2, 3]


def test_a_link_whose_virtual_host_goes(bench: Bench) -> None:
    bench.broker.definitions.put(VHOST, {"name": "v"})
    vhost = bench.broker.vhosts["v"]
    peer = LinkPeer(bench.broker, vhost, "a link", True, "up")
    peer.close(320, "vhost 'v' is deleted")
    bench.broker.delete_vhost("v")
    assert bench.broker.connection_count == 0
    peer.stand(1, 9, 1)
    data = method_frame(1, grammar.BASIC_PUBLISH, routing_key="q")
    peer.turn(data + content_frames(1, encode_header(Properties(), 1), b"0", 131072), bench.now_us)
    assert not bench.broker.positions.of("up").has(9, 1)
    peer.lost(bench.now_us)
