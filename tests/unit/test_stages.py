"""Stages: a staged message is in no queue before its batch is released, and then in all its queues, exactly once."""

from __future__ import annotations

from itertools import pairwise

from leveret.broker.access.users import SHA256, hash_password
from leveret.broker.broker import Settings
from leveret.broker.closed_names import CLOSED_MAX
from leveret.broker.exchange_types.recent_history import RecentHistory
from leveret.broker.exchanges.binding import Binding
from leveret.broker.peer import Peer
from leveret.broker.queues.queue import Queue
from leveret.broker.staging.queries import CLOSED_IN_TURN, QUERIES_MAX, STAGES_MAX
from leveret.broker.storage.log import meta_record
from leveret.broker.storage.records import Arrived, records
from leveret.cli.store import fields_of
from leveret.store.disk import MemoryDisk
from leveret.wire import grammar
from leveret.wire.frames import PROTOCOL_HEADER
from leveret.wire.table import Value

from .rig import Rig
from .stages import (
    MILLISECOND_US,
    abort,
    attach,
    detach,
    fetch,
    opened,
    queries,
    refusal,
    release,
    say,
    settle,
    stage,
    staged,
)
from .support import SECOND_US, STREAM, Bench, Client, recovered

DAY_US = 86_400 * SECOND_US


def names(client: Client) -> list[str]:
    return [method.name for method in client.methods()]


def again(bench: Bench) -> tuple[Bench, Client]:
    """Restart the broker without passing time."""
    bench.sync()
    other = recovered(bench.batches)
    other.batches = [*bench.batches]
    other.now_us = bench.now_us
    client = other.connect()
    client.send(1, grammar.CONFIRM_SELECT)
    client.frames()
    return other, client


# -- what is staged ----------------------------------------------------------------------------------------------------


def test_nothing_is_visible_before_the_release_and_all_of_it_after() -> None:
    bench = Bench()
    client = opened(bench, "q")
    stage(client, 0, "a", b"1", b"2")
    assert fetch(client) == []
    bench.pass_time(SECOND_US)
    assert fetch(client) == []
    release(client, 0, "a")
    settle(bench)
    assert fetch(client) == [b"1", b"2"]
    assert queries(bench).stages() == []


def test_the_attachment_is_answered_when_the_stage_is_on_disk() -> None:
    bench = Bench()
    client = opened(bench, "q")
    attach(client, 0, "a")
    assert names(client) == []
    bench.sync()
    assert names(client) == ["basic.consume-ok"]


def test_staged_messages_are_confirmed_when_they_are_on_disk_even_transient_ones() -> None:
    bench = Bench()
    client = opened(bench, "q")
    attach(client, 0, "a")
    bench.sync()
    client.frames()
    client.publish("q", b"transient", delivery_mode=1)
    assert names(client) == []
    bench.sync()
    assert names(client) == ["basic.ack"]
    detach(client)
    bench, client = again(bench)
    release(client, 0, "a")
    settle(bench)
    assert fetch(client) == [b"transient"]


def test_what_reaches_no_queue_comes_back_or_is_confirmed_as_usual() -> None:
    bench = Bench()
    client = opened(bench, "q")
    attach(client, 0, "a")
    bench.sync()
    client.frames()
    client.publish("nowhere", b"m", mandatory=True)
    client.publish("nowhere", b"m")
    returned, *acks = client.methods()
    assert (returned.name, returned.number("reply_code")) == ("basic.return", 312)
    assert [ack.name for ack in acks] == ["basic.ack", "basic.ack"]
    assert staged(client) == {
        "query": "Q",
        "last_batch": None,
        "stages": [{"batch": 0, "attempt": "a", "messages": 0, "octets": 0, "expires_ms": 86_400_000}],
    }


def test_errors_of_a_publish_are_the_usual_ones() -> None:
    bench = Bench()
    client = opened(bench, "q")
    attach(client, 0, "a")
    client.publish("q", b"m", exchange="missing")
    assert refusal(client) == (404, "NOT_FOUND - no exchange 'missing' in vhost '/'", 60, 40)


def test_alike_messages_are_staged_as_one_run() -> None:
    bench = Bench()
    client = opened(bench, "q", "r")
    client.send(1, grammar.QUEUE_BIND, queue="q", exchange="amq.fanout")
    client.send(1, grammar.QUEUE_BIND, queue="r", exchange="amq.fanout")
    attach(client, 0, "a")
    client.raw(b"".join(client.encoded("", b"%03d" % number, exchange="amq.fanout") for number in range(100)))
    detach(client)
    kept = queries(bench).stages()[0]
    assert kept.count() == 100
    assert len(kept.message_lists) == 1
    assert len(kept.message_lists[0].ready.items()) == 2  # the first message alone, then a message batch
    release(client, 0, "a")
    settle(bench)
    assert fetch(client) == fetch(client, "r") == [b"%03d" % number for number in range(100)]


def test_the_order_of_each_queue_is_that_of_publishing_whatever_else_a_message_reaches() -> None:
    bench = Bench()
    client = opened(bench, "q", "r")
    for queue in ("q", "r"):
        client.send(1, grammar.QUEUE_BIND, queue=queue, exchange="amq.fanout")
    attach(client, 0, "a")
    for number in range(30):
        where = ("", "q") if number % 3 else ("amq.fanout", "")
        client.publish(where[1], b"%d" % number, exchange=where[0])
    detach(client)
    release(client, 0, "a")
    settle(bench)
    assert fetch(client) == [b"%d" % number for number in range(30)]
    assert fetch(client, "r") == [b"%d" % number for number in range(0, 30, 3)]


def test_staged_messages_do_not_count_as_those_of_a_queue() -> None:
    bench = Bench()
    client = opened(bench, "q")
    stage(client, 0, "a", b"1", b"2")
    bench.sync()
    client.frames()
    assert client.call(1, grammar.QUEUE_DECLARE, queue="q", passive=True).number("message_count") == 0


# -- release -----------------------------------------------------------------------------------------------------------


def test_attempts_are_released_in_the_order_that_the_release_says() -> None:
    bench = Bench()
    client = opened(bench, "q")
    stage(client, 0, "a", b"a1", b"a2")
    stage(client, 0, "b", b"b1")
    stage(client, 0, "retried", b"never")
    release(client, 0, "b", "a")
    settle(bench)
    assert fetch(client) == [b"b1", b"a1", b"a2"]
    assert queries(bench).stages() == []


def test_batches_come_in_the_order_of_their_releases_over_all_queries() -> None:
    bench = Bench()
    client = opened(bench, "q")
    stage(client, 0, "a", b"P0", query="P")
    stage(client, 0, "a", b"Q0")
    stage(client, 1, "a", b"P1", query="P")
    release(client, 0, "a")
    release(client, 0, "a", query="P")
    release(client, 1, "a", query="P")
    settle(bench)
    assert fetch(client) == [b"Q0", b"P0", b"P1"]


def test_a_release_is_confirmed_when_it_is_on_disk_and_nothing_moves_before() -> None:
    bench = Bench()
    client = opened(bench, "q")
    stage(client, 0, "a", b"1")
    bench.sync()
    client.frames()
    release(client, 0, "a")
    bench.pass_time(10 * MILLISECOND_US)
    assert names(client) == []
    assert bench.broker.vhosts["/"].queues["q"].count() == 0
    bench.sync()
    assert names(client) == ["basic.ack"]
    bench.pass_time(MILLISECOND_US)
    assert bench.broker.vhosts["/"].queues["q"].count() == 1


def test_who_has_the_confirm_of_a_release_finds_its_messages_at_once() -> None:
    """No time passes between the confirm and the basic.get."""
    bench = Bench()
    client = opened(bench, "q")
    stage(client, 0, "a", b"1", b"2")
    release(client, 0, "a")
    bench.sync()
    client.frames()
    for _ in range(3):
        client.send(1, grammar.BASIC_GET, queue="q", no_ack=True)
    assert names(client) == ["basic.get-ok", "basic.get-ok", "basic.get-empty"]


def test_a_second_release_is_confirmed_and_does_nothing() -> None:
    bench = Bench()
    client = opened(bench, "q")
    stage(client, 3, "a", b"1")
    release(client, 3, "a")
    settle(bench)
    assert fetch(client) == [b"1"]
    for batch, attempt in ((3, "a"), (3, "other"), (1, "a")):
        release(client, batch, attempt)
        bench.sync()
        assert names(client) == ["basic.ack"]
    settle(bench)
    assert fetch(client) == []
    assert staged(client) == {"query": "Q", "last_batch": 3, "stages": []}


def test_a_second_release_is_confirmed_no_sooner_than_the_first_one() -> None:
    bench = Bench()
    client, other = opened(bench, "q"), opened(bench)
    stage(client, 0, "a", b"1")
    bench.sync()
    client.frames()
    release(client, 0, "a")
    batch = bench.broker.log.batch
    data = b"".join(bench.broker.log.close_batch())
    release(other, 0, "a")
    assert names(other) == []
    bench.broker.log.on_disk(batch)
    bench.batches.append(data)
    assert names(other) == ["basic.ack"]


def test_a_replay_of_a_released_batch_is_checked_confirmed_and_dropped() -> None:
    bench = Bench()
    client = opened(bench, "q")
    stage(client, 0, "a", b"1")
    release(client, 0, "a")
    settle(bench)
    attach(client, 0, "again")
    bench.sync()
    client.frames()
    client.publish("q", b"1", delivery_mode=2)
    client.publish("nowhere", b"1", mandatory=True)
    bench.sync()
    assert sorted(names(client)) == ["basic.ack", "basic.ack", "basic.return"]
    detach(client)
    release(client, 0, "again")
    settle(bench)
    assert fetch(client) == [b"1"]


def test_a_speculative_attempt_that_was_not_chosen_goes_on_for_nothing() -> None:
    bench = Bench()
    client, slow = opened(bench, "q"), opened(bench)
    attach(slow, 0, "slow")
    slow.publish("q", b"slow")
    stage(client, 0, "quick", b"quick")
    release(client, 0, "quick")
    slow.publish("q", b"slow")
    settle(bench)
    assert names(slow)[-1] == "basic.ack"
    assert fetch(client) == [b"quick"]


def test_who_goes_on_publishing_into_what_was_released_hears_of_it() -> None:
    bench = Bench()
    client, other = opened(bench, "q"), opened(bench)
    attach(other, 0, "a")
    release(client, 0, "a")
    other.publish("q", b"late")
    what = "the stage of attempt 'a' of batch 0 of query 'Q' in vhost '/'"
    assert refusal(other) == (406, f"PRECONDITION_FAILED - {what} is released", 60, 40)


def test_a_release_that_names_what_is_not_there_is_refused_and_nothing_is_released() -> None:
    bench = Bench()
    client = opened(bench, "q")
    stage(client, 0, "a", b"1")
    release(client, 0, "a", "b")
    gone = "the stage of attempt 'b' of batch 0 of query 'Q' does not exist (expired, aborted or never created)"
    assert refusal(client) == (406, f"PRECONDITION_FAILED - {gone}", 60, 40)
    release(client, 1, "a")
    assert refusal(client)[0] == 406
    release(client, 0, "a", "a")
    assert refusal(client)[1] == "PRECONDITION_FAILED - an attempt of batch 0 of query 'Q' is listed twice"
    settle(bench)
    assert fetch(client) == []
    release(client, 0, "a")
    settle(bench)
    assert fetch(client) == [b"1"]


def test_an_empty_batch_is_released_like_any_other() -> None:
    bench = Bench()
    client = opened(bench, "q")
    release(client, 0)
    stage(client, 1, "empty")
    release(client, 1, "empty")
    bench.sync()
    assert staged(client) == {"query": "Q", "last_batch": 1, "stages": []}


def test_a_release_drops_what_older_batches_left_and_keeps_newer_ones() -> None:
    bench = Bench()
    client = opened(bench, "q")
    stage(client, 0, "a", b"0")
    stage(client, 1, "a", b"1")
    stage(client, 2, "a", b"2")
    release(client, 1, "a")
    release(client, 2, "a")
    settle(bench)
    assert fetch(client) == [b"1", b"2"]


def test_much_moves_in_turns_of_bounded_size() -> None:
    bench = Bench()
    client = opened(bench, "q")
    attach(client, 0, "a")
    for number in range(2500):
        client.publish("q", b"x" * (number % 7))
    detach(client)
    release(client, 0, "a")
    bench.sync()
    queue = bench.broker.vhosts["/"].queues["q"]
    counts = [int(queue.count())]
    while counts[-1] < 2500:
        bench.pass_time(MILLISECOND_US)
        bench.sync()
        counts.append(int(queue.count()))
    steps = [after - before for before, after in pairwise(counts)]
    assert max(steps) <= 1000
    assert len(steps) == 3


def test_what_moves_is_no_reason_for_a_release_that_is_not_on_disk_to_move_with_it() -> None:
    bench = Bench()
    client = opened(bench, "q")
    attach(client, 0, "a")
    for number in range(1500):
        client.publish("q", b"x" * (number % 7))
    detach(client)
    stage(client, 1, "a", b"last")
    release(client, 0, "a")
    bench.sync()
    release(client, 1, "a")
    bench.pass_time(10 * MILLISECOND_US)
    assert bench.broker.vhosts["/"].queues["q"].count() == 1500
    settle(bench)
    assert bench.broker.vhosts["/"].queues["q"].count() == 1501


# -- abort, expiry, forgetting -----------------------------------------------------------------------------------------


def test_abort_drops_a_batch_and_only_that() -> None:
    bench = Bench()
    client = opened(bench, "q")
    stage(client, 0, "a", b"0")
    stage(client, 1, "a", b"1")
    abort(client, 0)
    abort(client, 7)
    abort(client, 0, query="unknown")
    release(client, 1, "a")
    abort(client, 1)
    settle(bench)
    assert fetch(client) == [b"1"]


def test_an_aborted_attempt_may_begin_anew_and_its_channel_hears_of_it() -> None:
    bench = Bench()
    client, other = opened(bench, "q"), opened(bench)
    attach(other, 0, "a")
    abort(client, 0)
    other.publish("q", b"late")
    gone = "the stage of attempt 'a' of batch 0 of query 'Q' in vhost '/' has expired, was aborted, or its query was"
    assert refusal(other) == (406, f"PRECONDITION_FAILED - {gone} forgotten", 60, 40)
    stage(client, 0, "a", b"1")
    release(client, 0, "a")
    settle(bench)
    assert fetch(client) == [b"1"]


def test_a_query_that_never_released_anything_is_unknown_when_its_stages_are_gone() -> None:
    bench = Bench()
    client = opened(bench, "q")
    assert staged(client) is None
    stage(client, 0, "a", b"1")
    assert staged(client) is not None
    abort(client, 0)
    assert staged(client) is None
    attach(client, 0, "a", expires_ms=1000)
    bench.pass_time(SECOND_US)
    assert staged(client) is None


def test_a_stage_expires_a_day_after_the_last_message_and_its_release_fails() -> None:
    bench = Bench()
    client = opened(bench, "q")
    events: list[str] = []
    bench.broker.on_event = events.append
    attach(client, 0, "a")
    bench.pass_time(DAY_US - 1)
    client.publish("q", b"1")
    detach(client)
    bench.pass_time(DAY_US - 1)
    assert [kept.count() for kept in queries(bench).stages()] == [1]
    bench.pass_time(1)
    assert queries(bench).stages() == []
    assert events == [
        "stage of attempt 'a' of batch 0 of query 'Q' in vhost '/' has expired, and its messages were dropped (1)"
    ]
    release(client, 0, "a")
    assert refusal(client)[0] == 406


def test_a_stage_expires_when_its_client_says() -> None:
    bench = Bench()
    client = opened(bench, "q")
    attach(client, 0, "a", expires_ms=1500)
    client.publish("q", b"1")
    bench.pass_time(1_499_000)
    assert len(queries(bench).stages()) == 1
    bench.pass_time(1000)
    assert queries(bench).stages() == []


def test_a_restart_does_not_forget_when_a_stage_expires() -> None:
    bench = Bench()
    client = opened(bench, "q")
    attach(client, 0, "a")
    bench.pass_time(DAY_US // 2)
    client.publish("q", b"1")
    bench.pass_time(DAY_US - SECOND_US)
    bench, client = again(bench)
    assert len(queries(bench).stages()) == 1
    bench.pass_time(SECOND_US)
    assert queries(bench).stages() == []
    bench, client = again(bench)
    assert queries(bench).stages() == []


def test_forgetting_a_query_drops_what_is_staged_and_what_was_released_goes_on() -> None:
    bench = Bench()
    client = opened(bench, "q")
    stage(client, 4, "a", b"4")
    stage(client, 5, "a", b"5")
    release(client, 4, "a")
    say(client, op="forget", query="Q")
    assert staged(client) is None
    bench, client = again(bench)
    settle(bench)
    assert fetch(client) == [b"4"]
    assert staged(client) is None
    stage(client, 0, "a", b"0")
    release(client, 0, "a")
    settle(bench)
    assert fetch(client) == [b"0"]


# -- checks and permissions --------------------------------------------------------------------------------------------


def test_arguments_are_checked() -> None:
    bench = Bench()
    client = opened(bench, "q")
    attach(client, 0, "a")
    detach(client)
    for wrong, text in (
        ({"batch": -1}, "x-leveret-batch must be an integer from 0 to 2^63-1"),
        ({"batch": "1"}, "x-leveret-batch must be an integer from 0 to 2^63-1"),
        ({"batch": True}, "x-leveret-batch must be an integer from 0 to 2^63-1"),
        ({"attempt": ""}, "x-leveret-attempt must be a string of 1 to 200 octets"),
        ({"query": 7}, "x-leveret-query must be a string of 1 to 200 octets"),
        ({"query": "x" * 201}, "x-leveret-query must be a string of 1 to 200 octets"),
        ({"expires_ms": 0}, "x-leveret-expires-ms must be an integer from 1 to 315360000000"),
        ({}, "attempt 'a' of batch 0 of query 'Q' already has a stage"),
    ):
        attach(client, **({"batch": 0, "attempt": "a"} | wrong))  # type: ignore[arg-type]
        assert refusal(client) == (406, f"PRECONDITION_FAILED - {text}", 60, 20)


def test_orders_are_checked() -> None:
    bench = Bench()
    client = opened(bench, "q")
    unknown = "query 'Q' is unknown: no attempt of batch 1 exists"
    for body, text in (
        (b"{", "the body must be JSON in UTF-8"),
        (b"\xff", "the body must be JSON in UTF-8"),
        (b"[" * 100_000, "the body must be JSON in UTF-8"),
        (b"[]", "the body must be a JSON object"),
        (b'{"op": "release", "query": "Q"}', "batch must be an integer from 0 to 2^63-1"),
        (b'{"op": "release", "query": "Q", "batch": 1.0}', "batch must be an integer from 0 to 2^63-1"),
        (b'{"op": "release", "query": "Q", "batch": 1}', "attempts must be a list of names"),
        (b'{"op": "release", "query": "Q", "batch": 1, "attempts": [1]}', "attempts must be a string of 1 to 200 "
                                                                          "octets"),
        (b'{"op": "release", "query": "Q", "batch": 1, "attempts": ["a"]}', unknown),
        (b'{"op": "abort", "batch": 1}', "query must be a string of 1 to 200 octets"),
        (b'{"op": "commit", "query": "Q"}', '"op" must be "release", "abort", "forget" or "report"'),
    ):
        client.publish("amq.leveret.stage", body, mandatory=True)
        assert refusal(client) == (406, f"PRECONDITION_FAILED - {text}", 60, 40)
    assert staged(client) is None


def other_user(bench: Bench, write: str = "^amq\\.default$") -> Client:
    """Return a client of user u, whose only permission is to write to this pattern."""
    bench.broker.definitions.put("user", {"name": "u", "tags": [], **hashed("u")})
    bench.broker.definitions.put("permission", {"user": "u", "vhost": "/", "configure": "", "write": write, "read": ""})
    client = Client(bench, Peer(bench.broker, "test:2", True))
    client.raw(PROTOCOL_HEADER)
    client.send(0, grammar.CONNECTION_START_OK, mechanism="PLAIN", response=b"\0u\0u")
    client.send(0, grammar.CONNECTION_TUNE_OK, channel_max=2047, frame_max=131072)
    client.send(0, grammar.CONNECTION_OPEN, virtual_host="/")
    client.call(1, grammar.CHANNEL_OPEN)
    client.frames()
    return client


def hashed(password: str) -> dict[str, Value]:
    return {"password_hash": hash_password(password, lambda count: b"s" * count), "hashing_algorithm": SHA256}


def test_a_query_is_its_owners_and_administrators() -> None:
    bench = Bench()
    client, other = opened(bench, "q"), other_user(bench)
    stage(client, 0, "a", b"1")
    text = "ACCESS_REFUSED - access to query 'Q' in vhost '/' refused for user 'u'"
    attach(other, 0, "b")
    assert refusal(other) == (403, text, 60, 20)
    other.send(1, grammar.BASIC_GET, queue="amq.leveret.query.Q", no_ack=True)
    assert refusal(other) == (403, text, 60, 70)
    for op in ("release", "abort", "forget"):
        say(other, op=op, query="Q", batch=0, attempts=["a"])
        assert refusal(other) == (403, text, 60, 40)
    bench.broker.definitions.put("user", {"name": "u", "tags": ["administrator"], **hashed("u")})
    release(other, 0, "a")
    settle(bench)
    assert fetch(client) == [b"1"]


def test_what_is_published_into_a_stage_needs_the_usual_permission() -> None:
    bench = Bench()
    opened(bench, "q")
    other = other_user(bench)
    attach(other, 0, "a")
    other.publish("q", b"m", exchange="amq.topic")
    text = "ACCESS_REFUSED - access to exchange 'amq.topic' in vhost '/' refused for user 'u'"
    assert refusal(other) == (403, text, 60, 40)


def test_who_could_not_release_anything_may_not_stage_anything() -> None:
    bench = Bench()
    other = other_user(bench, "^$")
    bench.sync()
    size = bench.broker.log.size()
    for number in range(3):
        attach(other, 0, "a", query=f"{number}")
        text = "ACCESS_REFUSED - access to exchange 'amq.default' in vhost '/' refused for user 'u'"
        assert refusal(other) == (403, text, 60, 20)
    release(other, 0)
    assert refusal(other) == (403, text, 60, 40)
    assert (queries(bench).by_name, bench.broker.log.size()) == ({}, size)


def test_a_user_has_no_more_queries_than_its_limit() -> None:
    bench = Bench(Settings(quotas={"staged_producer_max_per_user": 2}))
    client, other = opened(bench, "q"), other_user(bench)
    for name in ("a", "b", "b"):
        attach(client, 0, f"{len(queries(bench).by_number)}", query=name)
        detach(client)
    text = "PRECONDITION_FAILED - user 'guest' has reached the limit of 2 queries in vhost '/': forget finished ones "
    text += "(op \"forget\", leveret ctl forget_query), or raise staged_producer_max_per_user"
    attach(client, 0, "c", query="c")
    assert refusal(client) == (406, text, 60, 20)
    release(client, 0, query="c")
    assert refusal(client) == (406, text, 60, 40)
    attach(other, 0, "c", query="c")
    bench.sync()
    assert names(other) == ["basic.consume-ok"]
    say(client, op="forget", query="a")
    attach(client, 0, "d", query="d")
    bench.sync()
    assert sorted(queries(bench).by_name) == ["b", "c", "d"]


def test_a_user_has_no_more_stages_than_its_limit() -> None:
    bench = Bench(Settings(quotas={"stage_max_per_user": 2}))
    client, other = opened(bench, "q"), other_user(bench)
    stage(client, 0, "a", b"1")
    stage(client, 0, "b", b"2", query="R")
    text = "PRECONDITION_FAILED - user 'guest' has reached the limit of 2 stages in vhost '/': release or abort some, "
    attach(client, 0, "c")
    assert refusal(client) == (406, text + "or raise stage_max_per_user", 60, 20)
    attach(other, 0, "a", query="S")
    bench.sync()
    assert names(other) == ["basic.consume-ok"]
    release(client, 0, "a")
    attach(client, 0, "again")  # attaching to a released batch needs no stage
    detach(client)
    attach(client, 1, "c")
    bench.sync()
    assert (1, "c") in queries(bench).by_name["Q"].stages


def closed_query(bench: Bench) -> Client:
    """Query Q of guest has released a message of batch 3 and was then unused for 401 days."""
    client = opened(bench, "q")
    stage(client, 3, "a", b"1")
    release(client, 3, "a")
    settle(bench)
    bench.pass_time(399 * DAY_US)
    assert staged(client) == {"query": "Q", "last_batch": 3, "stages": []}
    for _ in range(2):
        bench.pass_time(DAY_US)
    assert queries(bench).by_name == {}
    return client


CLOSED = (
    "PRECONDITION_FAILED - query 'Q' was closed after 400 days without use, so repeated batches are no longer "
    'recognized: forget it (op "forget", leveret ctl forget_query) or use another name'
)


def test_a_query_that_nobody_uses_goes_and_is_refused_when_it_comes_back() -> None:
    bench = Bench()
    events: list[str] = []
    bench.broker.on_event = events.append
    client = closed_query(bench)
    assert [event.split(": the broker can")[0] for event in events if "query" in event] == [
        "query 'Q' in vhost '/' was not used for 400 days and is closed"
    ]
    assert fetch(client) == [b"1"]
    for _ in range(3):  # also after a restart, and after a restart from the snapshot of a new journal file
        attach(client, 3, "b")
        assert refusal(client) == (406, CLOSED, 60, 20)
        release(client, 3)
        assert refusal(client) == (406, CLOSED, 60, 40)
        client.send(1, grammar.BASIC_GET, queue="amq.leveret.query.Q", no_ack=True)
        assert refusal(client) == (406, CLOSED, 60, 70)
        bench, client = again(bench)
        bench.batches = [b"".join(bench.broker.snapshot())]
    other = other_user(bench)
    attach(other, 4, "b")
    assert refusal(other)[0] == 403


def test_who_says_that_nothing_is_repeated_may_use_the_name_again() -> None:
    bench = Bench()
    client = closed_query(bench)
    say(client, op="forget", query="Q")
    assert staged(client) is None
    bench, client = again(bench)
    stage(client, 4, "a", b"2")
    release(client, 4, "a")
    settle(bench)
    assert fetch(client) == [b"1", b"2"]


def test_what_is_used_does_not_go() -> None:
    bench = Bench()
    client = opened(bench, "q")
    for batch in range(4):
        release(client, batch)
        bench.pass_time(300 * DAY_US)
        bench, client = again(bench)
        bench.pass_time(DAY_US)
    assert queries(bench).by_name["Q"].last_batch == 3


def test_a_journal_that_does_not_say_when_a_query_was_used() -> None:
    bench = Bench()
    opened(bench, "q")
    fields: dict[str, Value] = {"op": "query.declare", "vhost": "/", "query": "Q", "owner": "guest", "last_batch": 7}
    bench.sync()
    bench.batches.append(meta_record(fields))
    bench, client = again(bench)
    bench.pass_time(400 * DAY_US)
    assert staged(client) == {"query": "Q", "last_batch": 7, "stages": []}
    bench.pass_time(DAY_US)
    assert queries(bench).by_name == {}


def test_no_stage_is_kept_for_longer_than_an_unused_query() -> None:
    bench = Bench(Settings(quotas={"staged_producer_unused_days_max": 2}))
    client = opened(bench, "q")
    attach(client, 0, "a", expires_ms=315_360_000_000)
    detach(client)
    bench.pass_time(DAY_US)
    assert len(queries(bench).stages()) == 1
    bench.pass_time(DAY_US)
    assert (queries(bench).stages(), queries(bench).by_name) == ([], {})
    unlimited = ("staged_producer_unused_days_max", "staged_producer_max_per_user", "stage_max_per_user")
    bench.broker.set_quotas(bench.broker.settings.quotas | dict.fromkeys(unlimited, -1))
    release(client, 0)
    for _ in range(5):
        bench.pass_time(DAY_US)
    assert "Q" in queries(bench).by_name


def test_what_remains_of_closed_queries_is_bounded() -> None:
    bench = Bench()
    known = queries(bench)
    for number in range(CLOSED_IN_TURN + 1):
        known.of(f"{number}", "guest", bench.now_us).last_batch = 0
    bench.pass_time(401 * DAY_US)
    assert len(known.closed) == CLOSED_IN_TURN
    bench.pass_time(SECOND_US)
    assert (len(known.closed), len(known.by_name)) == (CLOSED_IN_TURN + 1, 0)
    known.closed.update(dict.fromkeys(range(CLOSED_MAX), "guest"))
    count = len(known.closed)
    known.of("stays", "guest", bench.now_us)
    bench.pass_time(402 * DAY_US)
    assert (len(known.closed), list(known.by_name)) == (count, ["stays"])


def test_queries_are_not_without_number() -> None:
    bench = Bench(Settings(quotas={"staged_producer_max_per_user": -1}))
    client = opened(bench, "q")
    for number in range(QUERIES_MAX):
        queries(bench).of(f"{number}", "guest", bench.now_us)
    attach(client, 0, "a", query="one more")
    text = "vhost '/' has reached the limit of 10000 queries: forget some (forget_query)"
    assert refusal(client) == (406, f"PRECONDITION_FAILED - {text}", 60, 20)
    stage(client, 0, "a", b"1", query="7")
    release(client, 0, "a", query="7")
    settle(bench)
    assert fetch(client) == [b"1"]


def test_stages_are_not_without_number() -> None:
    bench = Bench(Settings(quotas={"stage_max_per_user": -1}))
    client = opened(bench, "q")
    known = queries(bench)
    for number in range(STAGES_MAX):
        known.attach("Q", "guest", 0, f"{number}", 10**9, bench.now_us)
    attach(client, 0, "one more")
    text = "PRECONDITION_FAILED - vhost '/' has reached the limit of 100000 stages: release or abort some"
    assert refusal(client) == (406, text, 60, 20)
    abort(client, 0)
    bench.sync()
    stage(client, 1, "a", b"1")
    release(client, 1, "a")
    settle(bench)
    assert fetch(client) == [b"1"]


def test_a_channel_has_one_stage_and_no_transaction() -> None:
    bench = Bench()
    client = opened(bench, "q")
    attach(client, 0, "a")
    attach(client, 0, "b")
    assert refusal(client)[1] == "PRECONDITION_FAILED - the channel is already attached to a stage"
    client.send(1, grammar.BASIC_CONSUME, queue="amq.leveret.stage", no_ack=False)
    assert refusal(client)[1] == "PRECONDITION_FAILED - a channel that attaches to a stage must consume with no-ack"
    other = bench.connect()
    attach(other, 0, "b")
    other.send(1, grammar.TX_SELECT)
    text = "PRECONDITION_FAILED - cannot switch a channel that is attached to a stage to tx mode"
    assert refusal(other) == (406, text, 90, 10)
    other = bench.connect()
    other.send(1, grammar.TX_SELECT)
    attach(other, 0, "c")
    assert refusal(other) == (406, "PRECONDITION_FAILED - cannot attach a channel in tx mode to a stage", 60, 20)
    other = bench.connect()
    other.send(1, grammar.TX_SELECT)
    release(other, 0)
    assert refusal(other) == (406, "PRECONDITION_FAILED - stages cannot be released or aborted within a "
                                   "transaction", 60, 40)


def test_a_direct_reply_cannot_be_staged() -> None:
    bench = Bench()
    client, requester = opened(bench, "q"), bench.connect()
    requester.send(1, grammar.BASIC_CONSUME, queue="amq.rabbitmq.reply-to", no_ack=True)
    requester.publish("q", b"request", reply_to="amq.rabbitmq.reply-to")
    name = next(iter(bench.broker.vhosts["/"].replies))
    attach(client, 0, "a")
    client.publish(name, b"reply")
    bench.sync()
    closed = client.methods()[-1]
    assert (closed.name, closed.number("reply_code")) == ("connection.close", 540)
    assert b"reply" not in requester.bodies()


def test_a_recent_history_takes_nothing_from_a_stage() -> None:
    bench = Bench()
    client = opened(bench, "q")
    client.call(1, grammar.EXCHANGE_DECLARE, exchange="h", type="x-recent-history")
    client.call(1, grammar.QUEUE_BIND, queue="q", exchange="h")
    attach(client, 0, "a")
    client.publish("", b"m", exchange="h")
    bench.sync()
    closed = client.methods()[-1]
    assert (closed.name, closed.number("reply_code")) == ("connection.close", 540)
    matcher = bench.broker.vhosts["/"].exchanges["h"].matcher
    assert isinstance(matcher, RecentHistory)
    assert len(matcher.history) == 0


# -- queue types and limits --------------------------------------------------------------------------------------------


def test_times_to_live_count_from_the_release() -> None:
    bench = Bench()
    client = opened(bench, "r")
    client.queue("q", durable=True, arguments={"x-message-ttl": 5000})
    attach(client, 0, "a")
    client.publish("q", b"queue's")
    client.publish("r", b"own", expiration="2000")
    detach(client)
    bench.pass_time(60 * SECOND_US)
    release(client, 0, "a")
    settle(bench)
    released_us = bench.now_us
    queues = bench.broker.vhosts["/"].queues
    assert queues["q"].expires_us() == released_us + 5 * SECOND_US
    assert queues["r"].expires_us() == released_us + 2 * SECOND_US


def test_delays_count_from_the_release_however_long_the_moves_take() -> None:
    """A queue that dead-letters and has no consumers is a delay; from another one, somebody may consume in time."""
    bench = Bench()
    client = opened(bench, "q")
    arguments = {"x-message-ttl": 5000}
    client.queue("level", durable=True, arguments={**arguments, "x-dead-letter-exchange": "amq.fanout"})
    client.queue("other", durable=True, arguments=arguments)
    client.call(1, grammar.QUEUE_BIND, queue="q", exchange="amq.fanout")
    attach(client, 0, "a")
    for number in range(2500):
        client.publish("level", b"x" * (number % 7), delivery_mode=2)
    client.publish("other", b"last")
    detach(client)
    bench.pass_time(SECOND_US)
    released_us = bench.now_us
    release(client, 0, "a")
    settle(bench)
    assert bench.now_us > released_us
    queues = bench.broker.vhosts["/"].queues
    assert queues["other"].expires_us() == bench.now_us + 5 * SECOND_US
    bench.pass_time(released_us + 5 * SECOND_US - bench.now_us)
    for _ in range(9):  # they expire in turns
        bench.pass_time(1)
        bench.sync()
    assert (queues["level"].count(), queues["q"].count()) == (0, 2500)


def test_a_delayed_exchange_counts_from_the_release() -> None:
    bench = Bench()
    client = opened(bench, "q", "direct")
    client.call(
        1, grammar.EXCHANGE_DECLARE, exchange="d", type="x-delayed-message", durable=True,
        arguments={"x-delayed-type": "fanout"},
    )  # fmt: skip
    client.call(1, grammar.EXCHANGE_DECLARE, exchange="f", type="fanout")
    client.call(1, grammar.EXCHANGE_BIND, destination="d", source="f")
    client.call(1, grammar.QUEUE_BIND, queue="q", exchange="d")
    client.call(1, grammar.QUEUE_BIND, queue="direct", exchange="f")
    attach(client, 0, "a")
    client.publish("", b"m", exchange="f", headers={"x-delay": 10_000})
    client.publish("", b"at once", exchange="f")
    detach(client)
    bench.pass_time(3600 * SECOND_US)
    release(client, 0, "a")
    settle(bench)
    assert fetch(client) == [b"at once"]
    assert fetch(client, "direct") == [b"m", b"at once"]
    bench.pass_time(9 * SECOND_US)
    bench, client = again(bench)
    assert fetch(client) == []
    bench.pass_time(2 * SECOND_US)
    bench.pass_time(MILLISECOND_US)
    assert fetch(client) == [b"m"]


def test_a_full_queue_refuses_when_it_is_staged_and_not_when_it_is_released() -> None:
    bench = Bench()
    client = opened(bench, "r")
    client.queue("q", durable=True, arguments={"x-max-length": 1, "x-overflow": "reject-publish"})
    for queue in ("q", "r"):
        client.call(1, grammar.QUEUE_BIND, queue=queue, exchange="amq.fanout")
    stage(client, 0, "a", b"1", b"2")
    bench.sync()
    assert "basic.nack" not in names(client)
    release(client, 0, "a")
    settle(bench)
    client.frames()
    attach(client, 1, "a")
    client.publish("", b"3", exchange="amq.fanout")
    bench.sync()
    assert names(client) == ["basic.consume-ok", "basic.nack"]
    detach(client)
    release(client, 1, "a")
    settle(bench)
    assert fetch(client) == [b"1", b"2"]
    assert fetch(client, "r") == [b"3"]  # as without a stage


def test_a_queue_with_a_limit_drops_its_oldest_at_the_release() -> None:
    bench = Bench()
    client = opened(bench)
    client.queue("q", durable=True, arguments={"x-max-length": 2})
    stage(client, 0, "a", b"1", b"2", b"3")
    release(client, 0, "a")
    settle(bench)
    assert fetch(client) == [b"2", b"3"]


def test_priorities_are_those_of_the_messages() -> None:
    bench = Bench()
    client = opened(bench)
    client.queue("q", durable=True, arguments={"x-max-priority": 5})
    attach(client, 0, "a")
    for priority in (1, 5, 3):
        client.publish("q", b"%d" % priority, priority=priority)
    detach(client)
    release(client, 0, "a")
    settle(bench)
    assert fetch(client) == [b"5", b"3", b"1"]


def test_a_stream_has_the_messages_from_the_release_on_in_its_order() -> None:
    bench = Bench()
    client = opened(bench)
    client.queue("s", durable=True, arguments=STREAM)
    attach(client, 0, "a")
    # publisher numbers are ignored, since a stage is exactly-once by itself
    for number in (2, 1):
        client.publish("s", b"%d" % number, headers={"x-leveret-publisher": "p", "x-leveret-sequence": number})
    detach(client)
    stream = bench.broker.vhosts["/"].queues["s"]
    assert stream.count() == 0
    bench.pass_time(60 * SECOND_US)
    release(client, 0, "a")
    settle(bench)
    reader = bench.connect()
    reader.send(1, grammar.BASIC_QOS, prefetch_count=10)
    reader.send(1, grammar.BASIC_CONSUME, queue="s", arguments={"x-stream-offset": "first"})
    assert reader.bodies() == [b"2", b"1"]


def test_a_queue_that_is_gone_at_the_release_gets_nothing_and_the_others_all() -> None:
    bench = Bench()
    client = opened(bench, "q", "r")
    for queue in ("q", "r"):
        client.call(1, grammar.QUEUE_BIND, queue=queue, exchange="amq.fanout")
    attach(client, 0, "a")
    client.publish("", b"both", exchange="amq.fanout")
    client.publish("r", b"lost")
    detach(client)
    client.call(1, grammar.QUEUE_DELETE, queue="r")
    release(client, 0, "a")
    settle(bench)
    assert fetch(client) == [b"both"]
    assert bench.broker.vhosts["/"].discards == {"released message without a queue": 1}
    assert queries(bench).stages() == []


def test_no_record_of_a_release_names_more_queues_than_its_number_has_room_for() -> None:
    bench = Bench()
    client = opened(bench)
    client.send(1, grammar.EXCHANGE_DECLARE, exchange="x", type="fanout", durable=True)
    vhost = bench.broker.vhosts["/"]
    for number in range(66_000):
        vhost.add_queue(Queue(vhost, f"q{number}", True, False, {}), 0, bench.now_us)
        vhost.bind(Binding(vhost.exchanges["x"], vhost.queues[f"q{number}"], "", bytes(4)))
    attach(client, 1, "a")
    client.publish("", b"1", exchange="x", delivery_mode=2)
    while client.peer.has_more:
        client.raw(b"")
    detach(client)
    bench.sync()
    bench.batches.clear()
    release(client, 1, "a")
    settle(bench)
    arrived = [record for batch in bench.batches for record in records(batch) if isinstance(record, Arrived)]
    assert sorted(number for record in arrived for number, _ in record.queues) == sorted(
        queue.number for queue in vhost.queues.values()
    )


def test_copies_and_headers_exchanges_are_looked_at_for_each_message() -> None:
    bench = Bench()
    client = opened(bench, "q", "r", "c")
    for queue in ("q", "r"):
        client.call(1, grammar.QUEUE_BIND, queue=queue, exchange="amq.headers", arguments={"to": queue})
    attach(client, 0, "a")
    for number, to in enumerate(["q", "r", "q", "none"]):
        client.publish("", b"%d" % number, exchange="amq.headers", headers={"to": to})
    client.publish("q", b"copied", headers={"BCC": ["c"]})
    detach(client)
    release(client, 0, "a")
    settle(bench)
    assert fetch(client) == [b"0", b"2", b"copied"]
    assert fetch(client, "r") == [b"1"]
    assert fetch(client, "c") == [b"copied"]


# -- restarts ----------------------------------------------------------------------------------------------------------


def test_a_restart_keeps_stages_and_what_was_decided() -> None:
    bench = Bench()
    client = opened(bench, "q")
    stage(client, 0, "a", b"0")
    stage(client, 1, "a", b"1")
    release(client, 0, "a")
    bench, client = again(bench)
    settle(bench)
    assert fetch(client) == [b"0"]
    bench, client = again(bench)
    release(client, 0, "a")
    release(client, 1, "a")
    settle(bench)
    assert fetch(client) == [b"1"]


def test_a_file_of_the_journal_begins_with_all_that_is_known_of_stages() -> None:
    bench = Bench()
    client = opened(bench, "q", "r")
    stage(client, 7, "a", b"7")
    release(client, 7, "a")
    settle(bench)
    stage(client, 8, "a")
    kept = staged(client)
    other = recovered([b"".join(bench.broker.snapshot())])
    other.now_us = bench.now_us
    assert staged(other.connect()) == kept


def test_an_orderly_stop_carries_stages_over() -> None:
    bench = Bench()
    client = opened(bench, "q")
    stage(client, 0, "a", b"0")
    bench.broker.stop()
    bench, client = again(bench)
    release(client, 0, "a")
    settle(bench)
    assert fetch(client) == [b"0"]


def test_what_comes_from_a_stage_was_not_delivered_before() -> None:
    bench = Bench()
    client = opened(bench, "q")
    stage(client, 0, "a", b"0")
    bench, client = again(bench)  # after a crash, messages of a queue may have been delivered before
    release(client, 0, "a")
    settle(bench)
    client.frames()
    client.send(1, grammar.BASIC_GET, queue="q", no_ack=True)
    assert client.methods()[0].flag("redelivered") is False


def test_a_stage_that_lost_a_page_is_not_released() -> None:
    disk = MemoryDisk()
    rig = Rig(disk, octets_max=100)
    client = rig.bench.connect()
    client.send(1, grammar.QUEUE_DECLARE, queue="q", durable=True)
    stage(client, 0, "a", *[b"x" * 100] * 20)
    rig.page()
    stage(client, 0, "b", b"whole")
    rig.write()
    for number in list(rig.pager.segments):
        rig.segments.remove(number)
    bench = Rig(disk).bench
    client = bench.connect()
    lost = "the stage of attempt 'a' of batch 0 of query 'Q' is incomplete: the broker has lost part of it"
    for attempts in (["a"], ["b", "a"]):
        release(client, 0, *attempts)
        assert refusal(client)[1] == f"PRECONDITION_FAILED - {lost}"
    other = recovered([b"".join(bench.broker.snapshot())])  # the snapshot of a new journal file keeps it
    client = other.connect()
    release(client, 0, "a")
    assert refusal(client)[1] == f"PRECONDITION_FAILED - {lost}"


def test_no_stage_is_released_when_a_part_of_the_journal_was_lost() -> None:
    disk = MemoryDisk()
    rig = Rig(disk, file_size=1 << 20)
    client = rig.bench.connect()
    client.send(1, grammar.QUEUE_DECLARE, queue="q", durable=True)
    rig.write()
    attach(client, 0, "a")
    for body in (b"first", b"second", b"third"):
        client.publish("q", body)
        rig.write()
    path = rig.journal.path(rig.journal.current)
    at = disk.read(path).index(b"second")
    file = disk.open(path)
    file.write(at, [b"S"])
    file.sync()
    bench = Rig(disk, file_size=1 << 20).bench
    rig = Rig(disk, file_size=1 << 20)  # damage is reported once, but its effect on the stage must be kept
    assert [int(kept.count()) for kept in queries(bench).stages()] == [2]
    client = rig.bench.connect()
    release(client, 0, "a")
    lost = "the stage of attempt 'a' of batch 0 of query 'Q' is incomplete: the broker has lost part of it"
    assert refusal(client)[1] == f"PRECONDITION_FAILED - {lost}"


def test_a_virtual_host_takes_its_stages_along() -> None:
    bench = Bench()
    bench.broker.definitions.put("vhost", {"name": "v", "description": "", "tags": []})
    anything = {"configure": ".*", "write": ".*", "read": ".*"}
    bench.broker.definitions.put("permission", {"user": "guest", "vhost": "v", **anything})
    client = bench.connect("v")
    client.queue("q", durable=True)
    stage(client, 0, "a", b"0")
    release(client, 0, "a")
    stage(client, 1, "a", b"1")
    client.peer.lost(bench.now_us)
    bench.broker.delete_vhost("v")
    bench.pass_time(2 * DAY_US)
    assert bench.broker.log.live() == 0
    bench, _ = again(bench)
    assert "v" not in bench.broker.vhosts
    assert bench.broker.log.live() == 0


def test_a_dump_of_the_journal_tells_all_of_it() -> None:
    bench = Bench()
    client = opened(bench, "q")
    stage(client, 3, "a", b"0")
    release(client, 3, "a")
    settle(bench)
    names: dict[int, str] = {}
    found = [fields_of(record, names, False) for batch in bench.batches for record in records(batch)]
    told = [(each["kind"], each.get("op")) for each in found]
    start = told.index(("meta", "query.declare"))
    assert told[start:] == [
        ("meta", "query.declare"),
        ("meta", "stage.declare"),
        ("meta", "stage.shelf"),
        ("messages", None),
        ("meta", "query.release"),
        ("hop", None),
        ("meta", "stage.delete"),
    ]
    assert found[start + 2]["queues"] == ["q"]
    assert found[start + 4]["batch"] == 3
    assert found[start + 5]["left"] == {"id": 1, "queue": "stage Q/3/a", "number": 2}


def test_nothing_of_a_stage_is_alive_when_it_is_gone() -> None:
    bench = Bench()
    client = opened(bench, "q")
    stage(client, 1, "b", b"0", b"1")
    abort(client, 1)
    attach(client, 0, "a")
    client.raw(b"".join(client.encoded("q", b"%d" % number) for number in range(5)))
    detach(client)
    release(client, 0, "a")
    settle(bench)
    fetch(client)
    assert bench.broker.log.live() == 0
