"""Messages that expire on their way through queues look the same as with ordinary dead lettering."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leveret.broker.dead_letters import dead_lettering
from leveret.broker.dead_letters.detached_history import DeadEntry
from leveret.broker.messages.contents import body_of, header_of
from leveret.broker.messages.entry import Entry
from leveret.broker.storage.log import HOP, MOVED
from leveret.broker.storage.records import Moved, records
from leveret.broker.vhost import VHost
from leveret.cli import store
from leveret.store.disk import MemoryDisk
from leveret.wire import grammar
from leveret.wire.frames import content_frames, frame
from leveret.wire.properties import decode_header
from leveret.wire.table import Value

from .rig import Rig
from .support import SECOND_US, Bench, Client, recovered

LEVELS = 3


def levels(bench: Bench, durable: bool = True) -> Client:
    """Declare queues of 4, 2 and 1 s, each dead-lettering to the next, the last one to the queue "end"."""
    client = bench.connect()
    client.queue("end", durable=durable)
    for level in range(LEVELS):
        following = f"level-{level - 1}" if level else "end"
        arguments = {
            "x-message-ttl": 1000 << level, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": following,
        }  # fmt: skip
        client.queue(f"level-{level}", durable=durable, arguments=arguments)
    return client


def waiting(bench: Bench, name: str) -> list[Entry]:
    return bench.broker.vhosts["/"].queues[name].in_memory()


def take(vhost: VHost, name: str) -> Entry:
    queue = vhost.queues[name]
    entry = queue.peek()
    assert entry is not None
    queue.drop_head(entry)
    return entry


NAMES = st.sampled_from(["a", "z", "x", "x-first-death-exchange", "x-last-death-reason", "x-death", "CC", "BCC", "C"])
VALUES: st.SearchStrategy[Value] = st.one_of(
    st.integers(-5, 1 << 40), st.text(max_size=5), st.just(["expired"]), st.just({"queue": "level-1"}), st.booleans()
)
PROPERTIES = st.fixed_dictionaries(
    {},
    optional={
        "headers": st.dictionaries(NAMES, VALUES, max_size=4),
        "content_type": st.text(max_size=4),
        "content_encoding": st.just("utf-8"),
        "delivery_mode": st.sampled_from([1, 2]),
        "correlation_id": st.text(max_size=4),
        "expiration": st.just("60000"),
        "message_id": st.text(max_size=3),
    },
)


@given(properties=PROPERTIES, durable=st.booleans(), body=st.binary(max_size=20), crashes=st.sets(st.integers(1, 3)))
def test_an_expiry_route_shows_what_dead_lettering_writes(
    properties: dict[str, object], durable: bool, body: bytes, crashes: set[int]
) -> None:
    """Holds for any properties, and wherever the broker restarts on the way."""
    seen: list[tuple[bytes, bytes]] = []
    for is_dead_lettered in (True, False):
        bench = Bench()
        client = levels(bench, durable)
        headers = properties.get("headers")
        copies = [headers[name] for name in ("CC", "BCC") if name in headers] if isinstance(headers, dict) else []
        client.publish("level-2", body, **properties)
        if any(not isinstance(value, list) for value in copies):
            assert client.methods()[-1].name == "channel.close"
            return
        for step in range(1, LEVELS + 1):
            name = f"level-{LEVELS - step}"
            bench.now_us += SECOND_US << (LEVELS - step)
            vhost = bench.broker.vhosts["/"]
            entry = take(vhost, name)
            entry.expires_us = bench.now_us  # an expiration would have been earlier
            if is_dead_lettered:
                dead_lettering.dead_letter(vhost, vhost.queues[name], entry, "expired", entry.expires_us)
            else:
                vhost.expire(vhost.queues[name], entry)
            bench.sync()
            if step in crashes and durable and properties.get("delivery_mode") == 2 and "expiration" not in properties:
                batches, now_us = bench.batches, bench.now_us
                bench = recovered(batches)
                bench.batches, bench.now_us = list(batches), now_us
        (entry,) = waiting(bench, "end")
        seen.append((entry.shown(), entry.key))
    assert seen[0] == seen[1]


@pytest.mark.parametrize("headers", [None, {}, {"a": 1, "NServiceBus.Header": "v" * 300}])
def test_hops_share_the_content_and_write_it_once(headers: dict[str, Value] | None) -> None:
    bench = Bench()
    client = levels(bench)
    client.publish("level-2", b"body" * 500, delivery_mode=2, headers=headers, content_type="text/plain")
    content = waiting(bench, "level-2")[0].content
    bench.sync()
    for step in (4, 2, 1):
        bench.pass_time(step * SECOND_US)
        (hop,) = records(bench.sync())
        assert isinstance(hop, Moved)
        assert len(bench.batches[-1]) < 90
    (entry,) = waiting(bench, "end")
    assert isinstance(entry, DeadEntry)
    assert entry.content is content
    client.send(1, grammar.BASIC_CONSUME, queue="end", no_ack=True)
    shown = content_frames(1, header_of(entry.shown()), b"body" * 500, 131072)
    bench.sync()
    assert b"".join(frame(each.kind, 1, each.payload) for each in client.frames()[-2:]) == shown


def test_the_content_is_written_again_in_a_new_journal_file() -> None:
    """So the old file can be removed."""
    bench = Bench()
    client = levels(bench)
    log = bench.broker.log
    client.publish("level-2", b"body", delivery_mode=2)
    bench.sync()
    log.start_file(1)
    kinds = []
    for step in (4, 2, 1):
        bench.pass_time(step * SECOND_US)
        kinds += [record.kind for record in records(bench.sync())]
        assert log.live() == 1
    assert kinds == [HOP, MOVED, MOVED]
    assert log.disposable() == 1
    (again,) = waiting(recovered(bench.batches), "end")
    assert again.shown() == waiting(bench, "end")[0].shown()


def test_a_hop_of_what_is_not_there_any_more_is_nothing() -> None:
    """The content was in a damaged part of the journal; the start continues without it."""
    bench = Bench()
    client = levels(bench)
    client.publish("level-0", b"body", delivery_mode=2)
    damaged = len(bench.batches)
    bench.sync()
    bench.pass_time(SECOND_US)
    bench.sync()
    del bench.batches[damaged]
    again = recovered(bench.batches)
    assert waiting(again, "end") == waiting(again, "level-0") == []
    assert again.broker.log.next_id == bench.broker.log.next_id


def test_what_was_in_a_page_has_its_content_written_once_more() -> None:
    rig = Rig(MemoryDisk(), file_size=1 << 20, octets_max=4000)
    bench = rig.bench
    client = levels(bench)
    for number in range(40):
        client.publish("level-0", b"%d" % number, delivery_mode=2)
    rig.page()
    in_pages = 40 - len(waiting(bench, "level-0"))
    assert 0 < in_pages < 40
    bench.pass_time(SECOND_US)
    kinds = [record.kind for record in records(bench.sync())]
    assert kinds.count(HOP) == in_pages
    assert kinds.count(MOVED) == 40 - in_pages
    assert bench.broker.log.live() == 40


def test_the_next_wait_begins_when_the_last_one_was_due() -> None:
    bench = Bench()
    client = levels(bench)
    client.publish("level-2", delivery_mode=2)
    due_us = bench.now_us + 4 * SECOND_US
    bench.pass_time(5 * SECOND_US)
    (entry,) = waiting(bench, "level-1")
    assert entry.expires_us == due_us + 2 * SECOND_US
    (death,) = deaths(entry)
    assert death["time"].timestamp() * SECOND_US == due_us  # type: ignore[union-attr]


def deaths(entry: Entry) -> list[dict[str, Value]]:
    found = (decode_header(header_of(entry.shown()))[0].headers or {})["x-death"]
    assert isinstance(found, list)
    return [death for death in found if isinstance(death, dict)]


def test_after_a_pause_all_arrive_in_the_order_in_which_they_were_due() -> None:
    """Holds over all queues, as if no time had been lost in between."""
    bench = Bench()
    client = levels(bench)
    aside = {"x-message-ttl": 5000, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "end"}
    client.queue("aside", durable=True, arguments=aside)
    ways = {"level-0": 1, "level-1": 3, "level-2": 7, "aside": 5}
    sent: list[tuple[int, bytes]] = []
    for number in range(300):
        name = list(ways)[number * 7 % len(ways)]
        sent.append((bench.now_us + SECOND_US * ways[name], b"%d" % number))
        client.publish(name, sent[-1][1], delivery_mode=2)
        bench.now_us += 10_007  # late: the timers run when a client sends something
    bench.sync()
    again = recovered(bench.batches)
    again.now_us = bench.now_us + 7 * 24 * 3600 * SECOND_US
    while 0 < again.broker.timers.next_us() <= again.now_us:
        again.broker.run_timers(again.now_us)
    arrived = [body_of(entry.content) for entry in waiting(again, "end")]
    assert arrived == [body for _, body in sorted(sent)]


def test_much_that_is_due_at_once_is_done_in_parts() -> None:
    bench = Bench()
    client = levels(bench)
    for _ in range(3000):
        client.publish("level-0", delivery_mode=2)
    bench.pass_time(SECOND_US)
    assert 0 < len(waiting(bench, "end")) < 2000
    while 0 < bench.broker.timers.next_us() <= bench.now_us:
        bench.broker.run_timers(bench.now_us)
    assert len(waiting(bench, "end")) == 3000


def test_a_circle_of_expiries_ends() -> None:
    """As in RabbitMQ, a message that expires all the way round is dropped."""
    bench = Bench()
    client = bench.connect()
    for name, other in (("one", "two"), ("two", "one")):
        arguments = {"x-message-ttl": 1000, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": other}
        client.queue(name, durable=True, arguments=arguments)
    client.publish("one", delivery_mode=2)
    bench.pass_time(SECOND_US)
    assert len(waiting(bench, "two")) == 1
    bench.pass_time(SECOND_US)
    assert waiting(bench, "one") == waiting(bench, "two") == []
    assert bench.broker.vhosts["/"].discards == {"dead letter cycle": 1}
    bench.sync()
    assert bench.broker.log.live() == 0


def test_a_binding_changes_the_way() -> None:
    bench = Bench()
    client = bench.connect()
    client.queue("q", arguments={"x-message-ttl": 1000, "x-dead-letter-exchange": "amq.fanout"})
    for name in ("old", "new"):
        client.queue(name)
    client.call(1, grammar.QUEUE_BIND, queue="old", exchange="amq.fanout")
    counts = []
    for change in (None, grammar.QUEUE_BIND, grammar.QUEUE_UNBIND):
        if change is not None:
            name = "new" if change is grammar.QUEUE_BIND else "old"
            client.call(1, change, queue=name, exchange="amq.fanout")
        client.publish("q")
        bench.pass_time(SECOND_US)
        counts.append((len(waiting(bench, "old")), len(waiting(bench, "new"))))
    assert counts == [(1, 0), (2, 1), (2, 2)]


def test_a_hop_is_dumped() -> None:
    bench = Bench()
    client = levels(bench)
    client.publish("level-0", delivery_mode=2)
    bench.sync()
    bench.pass_time(SECOND_US)
    (record,) = records(bench.sync())
    fields = store.fields_of(record, {1: "end", 2: "level-0"}, False)
    left = {"id": 1, "queue": "level-0", "number": 2}
    assert fields == {"kind": "hop", "id": 2, "left": left, "queues": [{"queue": "end", "number": 1, "expires_us": 0}]}
