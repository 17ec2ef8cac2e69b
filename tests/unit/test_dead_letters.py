"""Dead letters where only the core can be asked: restarts, counters, and random histories against a model."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leveret.broker.messages.carbon_copies import may_have
from leveret.broker.messages.contents import header_of
from leveret.broker.messages.entry import Entry
from leveret.broker.storage.recovery import Recovery
from leveret.broker.vhost import VHost
from leveret.wire import grammar
from leveret.wire.properties import decode_header
from leveret.wire.table import Value, encode_table

from .support import Bench, Client

REASONS = ["rejected", "expired", "maxlen", "delivery_limit"]
CLAIM: Value = [{"queue": "q", "reason": "expired", "count": 7}]


@pytest.fixture
def bench() -> Bench:
    return Bench()


@pytest.fixture
def client(bench: Bench) -> Client:
    return bench.connect()


def revived(bench: Bench) -> Bench:
    """Return a new broker with what is on disk."""
    again = Bench()
    recovery = Recovery(again.broker, again.now_us)
    for batch in bench.batches:
        recovery.batch(batch)
    recovery.finish()
    again.broker.log.recovered(1, recovery.in_journal)
    again.batches = list(bench.batches)
    return again


def kill(vhost: VHost, name: str, reason: str, now_us: int) -> bool:
    """Let the oldest message of a queue die; return False if there is none."""
    queue = vhost.queues[name]
    entry = queue.peek()
    if entry is None:
        return False
    queue.drop_head(entry)
    vhost.dead_letter(queue, entry, reason, now_us)
    return True


def headers_of(entry: Entry) -> dict[str, Value]:
    return decode_header(header_of(entry.shown()))[0].headers or {}


def history(entry: Entry) -> list[tuple[Value, Value, Value]]:
    deaths = headers_of(entry)["x-death"]
    assert isinstance(deaths, list)
    return [(d["queue"], d["reason"], d["count"]) for d in deaths if isinstance(d, dict)]


def only(bench: Bench, name: str) -> Entry:
    (entry,) = bench.broker.vhosts["/"].queues[name].in_memory()
    return entry


@pytest.mark.parametrize("blind", [[], ["nowhere"], ["n" * 255]])
@pytest.mark.parametrize("in_tx", [False, True])
def test_a_claim_is_told_from_history_after_a_restart(
    bench: Bench, client: Client, blind: list[Value], in_tx: bool
) -> None:
    """Holds behind BCC keys of any length, and after a transaction."""
    client.queue("grave", durable=True)
    dying = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "grave"}
    client.queue("q", durable=True, arguments=dying)
    if in_tx:
        client.call(1, grammar.TX_SELECT)
    headers: dict[str, Value] = {"x-death": CLAIM, **({"BCC": blind} if blind else {})}
    client.publish("q", headers=headers, delivery_mode=2)
    if in_tx:
        client.call(1, grammar.TX_COMMIT)
    bench.sync()
    again = revived(bench)
    assert headers_of(only(again, "q")) == {"x-death": CLAIM}
    kill(again.broker.vhosts["/"], "q", "maxlen", again.now_us)
    assert history(only(again, "grave")) == [("q", "maxlen", 1)]
    again.sync()
    twice = revived(again)
    twice.broker.vhosts["/"].queues["grave"].dead_letter_exchange = ""  # back to the same queue
    kill(twice.broker.vhosts["/"], "grave", "rejected", twice.now_us)
    assert history(only(twice, "grave")) == [("grave", "rejected", 1), ("q", "maxlen", 1)]


@pytest.mark.parametrize("times", [1, 2])
def test_the_types_are_rabbitmqs(bench: Bench, client: Client, times: int) -> None:
    """Even small counts are 64-bit integers, and the time is a timestamp: clients in typed languages depend on it."""
    client.queue("q", arguments={"x-dead-letter-exchange": ""})
    client.publish("q", expiration="60000")
    for _ in range(times):
        kill(bench.broker.vhosts["/"], "q", "rejected", bench.now_us)
    header = header_of(only(bench, "q").shown())
    _, _, deaths = header.partition(b"\x07x-deathA")
    names = [b"count", b"reason", b"queue", b"time", b"exchange", b"routing-keys", b"original-expiration"]
    places = [deaths.index(bytes([len(name)]) + name) + 1 + len(name) for name in names]
    assert [deaths[place : place + 1] for place in places] == [b"l", b"S", b"S", b"T", b"S", b"A", b"S"]


@pytest.mark.parametrize(("name", "found"), [
    ("x-death", True), ("CC", True), ("BCC", True), ("x-deatH", False), ("x-deaths", False), ("x-deat", False),
    ("cc", False), ("", False),
])
def test_headers_that_concern_the_broker(name: str, found: bool) -> None:
    for headers in ({name: "value"}, {"a": 1, "x-match": True, name: [1], "z": "z"}):
        assert may_have(encode_table(headers), 0) == found


@pytest.mark.parametrize("overflow", ["reject-publish", "reject-publish-dlx"])
def test_dead_letters_that_a_full_queue_refuses_are_counted(bench: Bench, client: Client, overflow: str) -> None:
    """Unless that queue dead-letters them in its turn."""
    told: list[str] = []
    bench.broker.on_event = told.append
    client.queue("full", arguments={"x-max-length": 1, "x-overflow": overflow})
    client.queue("q", arguments={"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "full"})
    vhost = bench.broker.vhosts["/"]
    for number in range(3):
        client.publish("q", b"%d" % number)
        kill(vhost, "q", "rejected", bench.now_us)
    assert history(only(bench, "full")) == [("q", "rejected", 1)]
    if overflow == "reject-publish":
        text = "dead letter refused by a full queue"
        assert vhost.discards == {text: 2}
        assert told == [f"queue 'q' in vhost '/': {text}: the message is dropped (logged once; all are counted)"]
    else:
        assert (vhost.discards, told) == ({}, [])


def test_a_delayed_exchange_with_the_name_of_the_queue_is_no_circle(bench: Bench, client: Client) -> None:
    arguments = {"x-delayed-type": "fanout"}
    client.call(1, grammar.EXCHANGE_DECLARE, exchange="same", type="x-delayed-message", arguments=arguments)
    client.queue("same", arguments={"x-dead-letter-exchange": "same"})
    client.publish("same", headers={"x-delay": 1000})
    vhost = bench.broker.vhosts["/"]
    kill(vhost, "same", "expired", bench.now_us)
    assert vhost.discards == {}
    schedule = vhost.exchanges["same"].schedule
    assert schedule is not None
    assert schedule.count() == 1


# -- random histories --------------------------------------------------------------------------------------------------

QUEUES = ["a", "b", "c", "d"]
TARGETS = st.lists(st.sets(st.sampled_from(QUEUES), max_size=3), min_size=len(QUEUES), max_size=len(QUEUES))
ACTIONS = st.lists(
    st.one_of(
        st.tuples(st.just("publish"), st.sampled_from(QUEUES), st.sampled_from(["", "claim", "copy"])),
        st.tuples(st.just("kill"), st.sampled_from(QUEUES), st.sampled_from(REASONS)),
        st.tuples(st.just("kill"), st.sampled_from(QUEUES), st.sampled_from(REASONS)),
        st.tuples(st.just("restart"), st.just("a"), st.just("")),
    ),
    max_size=40,
)
History = list[tuple[str, str, int]]


def model_death(past: History, queue: str, reason: str) -> History:
    same = [count for name, why, count in past if (name, why) == (queue, reason)]
    return [(queue, reason, sum(same) + 1), *(death for death in past if death[:2] != (queue, reason))]


def model_circle(past: History, target: str) -> bool:
    names = [name for name, _, _ in past]
    return target in names and all(why != "rejected" for _, why, _ in past[: names.index(target) + 1])


@given(targets=TARGETS, actions=ACTIONS)
def test_random_histories(targets: list[set[str]], actions: list[tuple[str, str, str]]) -> None:
    """After each step, each queue holds what the model predicts, each message with the predicted history."""
    bench = Bench()
    client = bench.connect()
    # headers of each message as published, and its history
    model: dict[str, list[tuple[dict[str, Value], History]]] = {name: [] for name in QUEUES}
    copied: dict[str, Value] = {"x-death": CLAIM}
    for name in QUEUES:
        client.call(1, grammar.EXCHANGE_DECLARE, exchange=f"x-{name}", type="fanout", durable=True)
        client.queue(name, durable=True, arguments={"x-dead-letter-exchange": f"x-{name}"})
    for name, following in zip(QUEUES, targets, strict=True):
        for target in sorted(following):
            client.call(1, grammar.QUEUE_BIND, queue=target, exchange=f"x-{name}")
    for action, name, what in actions:
        vhost = bench.broker.vhosts["/"]
        if action == "publish":
            headers = {"": {}, "claim": {"x-death": CLAIM}, "copy": copied}[what]
            client.publish(name, headers=headers, delivery_mode=2)
            model[name].append((headers, []))
        elif action == "restart":
            bench.sync()
            bench = revived(bench)
            client = bench.connect()
        elif kill(vhost, name, what, bench.now_us):
            headers, past = model[name].pop(0)
            past = model_death(past, name, what)
            for target in targets[QUEUES.index(name)]:
                if what == "rejected" or not model_circle(past, target):
                    model[target].append((headers, past))
        for each in QUEUES:
            entries = bench.broker.vhosts["/"].queues[each].in_memory()
            assert len(entries) == len(model[each])
            for entry, (headers, past) in zip(entries, model[each], strict=True):
                if past:
                    copied = headers_of(entry)
                    assert history(entry) == past
                    assert (copied["x-last-death-queue"], copied["x-last-death-reason"]) == past[0][:2]
                    assert copied["x-first-death-queue"] in [name for name, _, _ in past]
                else:
                    assert headers_of(entry) == headers
