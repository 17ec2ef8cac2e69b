"""Metrics without a broker process: histograms, which events are counted, and the text for Prometheus."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_open
from prometheus_client.parser import text_string_to_metric_families as parse

from leveret.broker.histogram import TIMES_US, Histogram
from leveret.broker.peer import Peer
from leveret.control.metrics.collecting import ROWS, collect
from leveret.control.metrics.metric import COUNTER, HISTOGRAM
from leveret.control.metrics.scope import Scope
from leveret.control.metrics.table import ALWAYS, GROUPS, groups_of
from leveret.control.metrics.text import exposition
from leveret.control.refusal import ANSWER_TOO_LONG, BAD_REQUEST, Refused
from leveret.control.sliced import CHUNK
from leveret.net.pressure import Pressure
from leveret.net.stopwatch import Stopwatch
from leveret.wire import grammar

from .admin import Browser
from .metrics import samples
from .support import Bench
from .test_queries import Rig

ROOT = Path(__file__).parents[2]


def test_a_histogram_counts_each_value_once_where_it_belongs() -> None:
    chance = random.Random(7)
    values = [chance.choice([0, 50, 51, 10_000_000, 10_000_001, chance.randrange(20_000_000)]) for _ in range(500)]
    found = Histogram(TIMES_US)
    for value in values:
        found.add(value, 2)
    assert int(found.sum) == 2 * sum(values)
    below = 0
    for bound, count in zip(found.bounds, found.counts, strict=False):
        below += count
        assert below == 2 * sum(value <= bound for value in values)
    assert sum(found.counts) == 1000


def test_a_stopwatch_counts_what_is_still_going_on() -> None:
    watch = Stopwatch()
    watch.set(False, 5)
    watch.set(True, 10)
    watch.set(True, 20)
    assert (watch.total_us(25), watch.times) == (15, 1)
    watch.set(False, 30)
    watch.set(True, 100)
    assert (watch.total_us(101), watch.times) == (21, 2)


def test_how_long_each_reason_held_publishers_up() -> None:
    now_us = 0
    pressure = Pressure({}, lambda: now_us)
    pressure.journal(True)
    now_us = 2_000_000
    pressure.pages(True)
    pressure.journal(False)
    now_us = 2_500_000
    assert pressure.seconds() == {"journal": 2.0, "pages": 0.5, "slow": 0.0, "fairness": 0.0}


def test_every_group_has_rows_and_every_name_is_there_once() -> None:
    assert set(ROWS) == {group.name for group in GROUPS}
    names = [metric.name for group in GROUPS for metric in group.metrics]
    assert len(set(names)) == len(names)
    for group in GROUPS:
        for metric in group.metrics:
            assert metric.name.endswith("_total") == (metric.kind == COUNTER)
            assert bool(metric.bounds) == (metric.kind == HISTOGRAM)
            assert metric.help.endswith(".")


def test_the_page_is_what_the_table_says() -> None:
    subprocess.run([sys.executable, ROOT / "tools" / "metrics_table.py", "--check"], check=True)


# -- counted events ----------------------------------------------------------------------------------------------------


def test_confirms_count_from_the_publish_to_the_disk_by_the_oldest_of_their_batch() -> None:
    bench = Bench()
    client = bench.connect()
    client.queue("q", durable=True)
    bench.sync()
    client.call(1, grammar.CONFIRM_SELECT)
    log, found = bench.broker.log, bench.broker.log.measures.confirm_us
    client.publish("q", delivery_mode=2)
    bench.now_us += 300
    client.publish("q", delivery_mode=2)
    batch = log.batch
    log.close_batch()
    client.publish("q", delivery_mode=2)  # belongs to the next batch, which this sync does not confirm
    log.on_disk(batch, bench.now_us + 100)
    assert (int(found.sum), sum(found.counts)) == (800, 2)
    batch = log.batch
    log.close_batch()
    log.on_disk(batch, bench.now_us + 40)
    assert (int(found.sum), sum(found.counts), found.counts[0]) == (840, 3, 1)


def test_a_batch_counts_once_with_its_octets_and_events() -> None:
    bench = Bench()
    client = bench.connect()
    client.queue("q", durable=True)
    bench.sync()
    measures = bench.broker.log.measures
    batches, events, octets = sum(measures.batch_events.counts), int(measures.batch_events.sum), measures.batch_octets
    before = int(octets.sum)
    for _ in range(3):
        client.publish("q", delivery_mode=2)
    data = bench.sync()
    assert sum(measures.batch_events.counts) == batches + 1
    assert int(measures.batch_events.sum) == events + 3
    assert int(octets.sum) == before + len(data)


@pytest.mark.parametrize(("exchange", "strategy"), [(None, "disabled"), ("amq.fanout", "at_most_once")])
def test_the_dead_count_by_reason_and_by_what_becomes_of_them(exchange: str | None, strategy: str) -> None:
    bench = Bench()
    client = bench.connect()
    letters: dict[str, Any] = {} if exchange is None else {"x-dead-letter-exchange": exchange}
    client.queue("short", arguments={"x-max-length": 1} | letters)
    client.queue("brief", arguments={"x-message-ttl": 5} | letters)
    for name in ("short", "short", "short", "brief"):
        client.publish(name)
    bench.pass_time(10_000)
    client.send(1, grammar.BASIC_GET, queue="short", no_ack=False)
    client.send(1, grammar.BASIC_REJECT, delivery_tag=1, requeue=False)
    deaths = bench.broker.vhosts["/"].tally.deaths
    assert deaths.of("classic", strategy) == (1, 2, 1, 0)
    other = {"disabled": "at_most_once", "at_most_once": "disabled"}[strategy]
    assert deaths.of("classic", other) == deaths.of("quorum", strategy) == (0, 0, 0, 0)


def test_lateness_of_what_a_delayed_exchange_held() -> None:
    bench = Bench()
    client = bench.connect()
    client.call(1, grammar.EXCHANGE_DECLARE, exchange="later", type="x-delayed-message",
                arguments={"x-delayed-type": "fanout"})  # fmt: skip
    client.publish("", exchange="later", headers={"x-delay": 5_000})
    found = bench.broker.log.measures.late_us
    bench.pass_time(4_999_000)
    assert sum(found.counts) == 0
    bench.pass_time(4_000)
    assert (sum(found.counts), int(found.sum)) == (1, 3_000)


def test_direct_replies_that_find_nobody_count_as_dropped(rig: Rig) -> None:
    asking, answering = rig.connect(), rig.connect()
    asking.call(1, grammar.BASIC_CONSUME, queue="amq.rabbitmq.reply-to", no_ack=True)
    asking.publish("kept", reply_to="amq.rabbitmq.reply-to")
    (name,) = rig.bench.broker.vhosts["/"].replies
    answering.publish(name)
    asking.call(1, grammar.CHANNEL_CLOSE, reply_code=200, reply_text="bye")
    answering.publish(name)
    found = {name: value for name, _, value in samples(rig.ask("metrics", families=["leveret_replies"]))}
    assert found["leveret_direct_replies_delivered_total"] == 1
    assert found["leveret_direct_replies_dropped_total"] == 1


def test_who_is_turned_away_counts_by_what_was_wrong() -> None:
    bench = Bench()
    Peer(bench.broker, "test:9", True).turn(b"GET / HTTP/1.1\r\n\r\n", bench.now_us)
    assert bench.broker.refusals == {"protocol": 1}
    bench.connect("nowhere")
    assert bench.broker.refusals == {"protocol": 1, "vhost": 1}


# -- scrapes -----------------------------------------------------------------------------------------------------------

ASKABLE = ["queue_metrics", "queue_coarse_metrics", "channel_exchange_metrics", "channel_queue_metrics", "totals",
           "global_counters", "queue_delivery_metrics", "leveret_discarded"]  # fmt: skip


def numbers(rig: Rig, **fields: Any) -> dict[tuple[str, tuple[str, ...]], Any]:
    items = rig.ask("metrics", families=ASKABLE, **fields)
    return {(name, tuple(labels.values())): value for name, labels, value in samples(items)}


@pytest.fixture
def rig() -> Rig:
    rig = Rig()
    rig.client.queue("kept")
    rig.client.queue("gone")
    for name in ("kept", "kept", "gone", "nobody"):
        rig.client.publish(name)
    return rig


def test_sums_and_details_tell_the_same(rig: Rig) -> None:
    sums, details = numbers(rig), numbers(rig, details=True)
    for name in ("rabbitmq_queue_messages_ready", "rabbitmq_queue_messages_bytes", "rabbitmq_queue_consumers"):
        each = {labels: value for (metric, labels), value in details.items() if metric == name}
        assert set(each) == {("/", "kept"), ("/", "gone")}
        assert sum(each.values()) == sums[name, ()]
    assert sums["rabbitmq_queue_messages_ready", ()] == 3
    assert details["rabbitmq_queue_messages", ("/", "kept")] == 2
    assert sums["leveret_messages_discarded_total", ("/", "unroutable_dropped")] == 1


def test_counters_do_not_fall_when_queues_and_channels_go(rig: Rig) -> None:
    rig.client.send(1, grammar.BASIC_GET, queue="gone", no_ack=True)
    before = numbers(rig)
    rig.client.call(1, grammar.QUEUE_DELETE, queue="gone")
    rig.client.call(1, grammar.CHANNEL_CLOSE, reply_code=200, reply_text="bye")
    after = numbers(rig)
    counters = {metric.name for group in GROUPS for metric in group.metrics if metric.kind == COUNTER}
    assert before["rabbitmq_channel_get_total", ()] == 1
    assert before["rabbitmq_channel_messages_published_total", ()] == 4
    assert before["rabbitmq_global_messages_routed_total", ("amqp091",)] == 3
    assert before["rabbitmq_global_messages_delivered_total", ("amqp091", "rabbit_classic_queue")] == 1
    for key, value in before.items():
        if key[0] in counters:
            assert after[key] == value, key


def test_many_queues_are_looked_at_a_few_at_a_time(rig: Rig) -> None:
    for number in range(1000):
        rig.client.queue(f"q{number}")
    for families in (["queue_coarse_metrics"], ["totals"], ["leveret_delayed"]):
        steps = collect(Scope(rig.node, list(rig.bench.broker.vhosts.values()), False), families)
        assert len(list(steps)) >= 1002 // CHUNK


def test_only_what_is_asked_for(rig: Rig) -> None:
    assert groups_of(["totals"]) == [*ALWAYS, "totals"]
    items = rig.ask("metrics", families=["queue_coarse_metrics"], vhosts=["elsewhere"], details=True)
    assert [item[0] for item in items] == list(ALWAYS)
    kind, reason = rig.refusal("metrics", families=["queue_course_metrics"])
    assert kind == BAD_REQUEST
    assert "did you mean 'queue_coarse_metrics'?" in reason


# -- the text ----------------------------------------------------------------------------------------------------------


def items() -> list[Any]:
    return [
        ["queue_coarse_metrics", ["/", 'a"\\\nb'], [1, 2, 3]],
        ["leveret_refused", ["login"], [1_000_000]],
        ["leveret_times", [], [[1, 2, *[0] * 14, 4, 12_345_678], *[[0] * 12, [0] * 11], *[[0] * 18] * 5]],
        ["leveret_federation", ["/", "x", "up", "id"], [1, 5, 0, 0, 0, 0, 0, None, 1, 1]],
    ]


@pytest.mark.parametrize("is_open", [False, True])
def test_prometheus_own_parser_reads_it(is_open: bool) -> None:
    text = "".join(exposition(items(), is_open))
    families = {family.name: family for family in (parse_open if is_open else parse)(text)}
    (sample,) = families["rabbitmq_queue_messages"].samples
    assert (sample.labels, sample.value) == ({"vhost": "/", "queue": 'a"\\\nb'}, 3)
    refused = families["leveret_connections_refused"]
    assert refused.type == "counter"
    assert [each.value for each in refused.samples] == [1_000_000]
    latency = {
        (each.name.rpartition("_")[2], each.labels.get("le")): each.value
        for each in families["leveret_confirm_latency_seconds"].samples
    }
    assert families["leveret_confirm_latency_seconds"].type == "histogram"
    assert (latency["bucket", "5e-05"], latency["bucket", "0.0001"], latency["bucket", "+Inf"]) == (1, 3, 7)
    assert (latency["count", None], latency["sum", None]) == (7, 12.345678)
    assert families["leveret_federation_link_lag_messages"].samples == []
    assert text.endswith("# EOF\n") == is_open


def test_details_have_rabbitmqs_other_names() -> None:
    text = "".join(exposition(items(), is_detailed=True))
    assert "\nrabbitmq_detailed_queue_messages{" in text
    assert "\nrabbitmq_queue_messages{" not in text
    assert "\nleveret_connections_refused_total{" in text


def test_a_long_answer_comes_in_pieces() -> None:
    rows = [["queue_coarse_metrics", ["/", f"q{number}"], [1, 0, 1]] for number in range(5000)]
    pieces = list(exposition(rows))
    assert max(piece.count("\n") for piece in pieces) <= 2001
    (ready, *_) = parse("".join(pieces))
    assert len(ready.samples) == 5000


async def test_who_asks_for_the_numbers_of_too_many_objects_is_told_what_to_ask_for() -> None:
    def too_many(fields: dict[str, Any]) -> Any:
        raise Refused(ANSWER_TOO_LONG, "the answer exceeds 64 MiB: request pages, or a part of it")

    browse = Browser()
    browse.control.answers["metrics"] = too_many
    answer = await browse("GET", "/metrics/per-object")
    assert (answer.status_code, answer.json()["error"]) == (400, "answer_too_long")
    assert "pages" not in answer.json()["reason"]
    assert "/metrics/detailed?family=...&vhost=..." in answer.json()["reason"]
