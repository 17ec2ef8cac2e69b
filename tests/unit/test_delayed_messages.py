"""Delayed messages are listed without consuming them, cancelled, and rescheduled: all that match or none."""

from __future__ import annotations

import random
from typing import Any

import pytest

from leveret.broker.delayed.search import STEP
from leveret.broker.timeline import ClockSample
from leveret.control.commands import delayed
from leveret.control.refusal import BAD_REQUEST, CONFLICT, NOT_AUTHORISED, NOT_FOUND
from leveret.delay.named import DELAY_HEADER
from leveret.wire import grammar
from leveret.wire.properties import decode_header

from .support import SECOND_US
from .waiting import LAYOUT, Office

UNIT_MS = 1000
LONGEST = LAYOUT.units_max


def ms(us: int) -> int:
    return -(-us // 1000)


def level_counts(office: Office) -> dict[str, int]:
    return {row["name"]: row["messages"] for row in office.do("list_delay_levels") if row["messages"]}


def test_a_row_for_each_destination() -> None:
    office = Office()
    first = office.send(b"1", 10)
    last = office.send(b"2", 33, count=3)
    other = office.send(b"3", 5, "b.c")
    held = office.hold(b"4", 7)
    assert office.do("list_delayed", vhost="/") == [
        {"vhost": "/", "layout": "d", "type": "exchange", "destination": "k", "messages": 1, "parked": 0,
         "next_due_ms": ms(held), "last_due_ms": ms(held)},
        {"vhost": "/", "layout": "t", "type": "levels", "destination": "a", "messages": 4, "parked": 0,
         "next_due_ms": ms(first), "last_due_ms": ms(last)},
        {"vhost": "/", "layout": "t", "type": "levels", "destination": "b.c", "messages": 1, "parked": 0,
         "next_due_ms": ms(other), "last_due_ms": ms(other)},
    ]  # fmt: skip
    assert level_counts(office) == {"t.delay-level-05": 3, "t.delay-level-03": 1, "t.delay-level-02": 1, "d": 1}
    office.pass_time(9 * SECOND_US)  # moving to the next level does not change the due time
    assert office.rows() == {"a": (4, ms(first), ms(last))}
    office.pass_time(60 * SECOND_US)
    assert sorted(office.arrived) == sorted([(b"1", first), *[(b"2", last)] * 3, (b"3", other), (b"4", held)])
    assert office.rows() == {}


def test_rows_are_chosen() -> None:
    office = Office()
    soon, late = office.send(b"1", 10), office.send(b"2", 20, "b.c")
    office.hold(b"3", 15)
    assert set(office.rows(destination="b.c")) == {"b.c"}
    assert set(office.rows(layout="t")) == {"a", "b.c"}
    assert set(office.rows(due_before_ms=ms(soon))) == set()
    assert set(office.rows(due_before_ms=ms(soon) + 1)) == {"a"}
    assert set(office.rows(due_after_ms=ms(late))) == {"b.c"}
    assert set(office.rows(vhosts=[])) == set()
    assert office.refusal("list_delayed", due_after_ms=-1)[0] == BAD_REQUEST


def test_single_messages_first_due_first() -> None:
    office = Office()
    dues = {n: office.send(b"%d" % n, n, message_id=str(n), headers={"n": n}) for n in (12, 3, 40, 7)}
    office.send(b"xyz", 9, "b.c", count=2, message_id="two")
    found = office.do("list_delayed_messages", limit=3)
    assert [each["message_id"] for each in found] == ["3", "7", "two"]
    assert found[0] == {
        "vhost": "/", "layout": "t", "type": "levels", "level": 1, "message_id": "3", "destination": "a",
        "routing_key": "0.0.0.0.1.1.a", "due_ms": ms(dues[3]), "remaining_ms": 3000, "message_bytes": 1,
        "state": "pending",
    }  # fmt: skip
    assert [each["message_id"] for each in office.do("list_delayed_messages")] == ["3", "7", "two", "two", "12", "40"]
    assert [each["message_id"] for each in office.do("list_delayed_messages", headers={"n": "40"})] == ["40"]
    assert [each["message_bytes"] for each in office.do("list_delayed_messages", message_id="two")] == [3, 3]
    assert office.do("list_delayed_messages", parked=True) == []
    assert office.refusal("list_delayed_messages", limit=0)[0] == BAD_REQUEST
    assert office.refusal("list_delayed_messages", vhost="none")[0] == NOT_FOUND


def test_cancel_one_by_its_id() -> None:
    office = Office()
    kept = office.send(b"kept", 10, message_id="kept")
    office.send(b"gone", 10, message_id="gone")
    assert office.do("cancel_delayed", message_id="gone", dry_run=True) == {"message_count": 1}
    assert office.rows()["a"][0] == 2
    assert office.do("cancel_delayed", message_id="gone") == {"message_count": 1}
    assert office.do("cancel_delayed", message_id="gone") == {"message_count": 0}
    assert office.rows()["a"] == (1, ms(kept), ms(kept))
    office.restart()
    assert office.rows()["a"] == (1, ms(kept), ms(kept))
    office.pass_time(60 * SECOND_US)
    assert office.arrived == [(b"kept", kept)]


def test_what_a_change_must_say() -> None:
    office = Office()
    office.send(b"1", 10)
    assert office.refusal("cancel_delayed")[0] == BAD_REQUEST
    assert office.refusal("cancel_delayed", all=True, destination="a")[0] == BAD_REQUEST
    assert office.refusal("retime_delayed", all=True)[0] == BAD_REQUEST
    assert office.refusal("retime_delayed", all=True, at_ms=1, in_ms=1)[0] == BAD_REQUEST
    assert office.refusal("retime_delayed", all=True, in_ms=-1)[0] == BAD_REQUEST
    assert office.refusal("cancel_delayed", all=True, vhost="none")[0] == NOT_FOUND
    assert office.do("cancel_delayed", all=True) == {"message_count": 1}


@pytest.mark.parametrize("units", range(1, LONGEST + 1, 5))
def test_a_message_gets_another_time(units: int) -> None:
    office = Office()
    office.send(b"x", 21)
    office.pass_time(17 * SECOND_US)  # it has been in a higher level
    before_us = office.now_us
    # rounded up to whole units, so it is never early
    answer = office.do("retime_delayed", destination="a", in_ms=units * UNIT_MS - 999)
    due = before_us + units * SECOND_US
    assert answer == {"message_count": 1, "due_ms": ms(due)}
    assert office.rows() == {"a": (1, ms(due), ms(due))}
    assert level_counts(office) == {f"t.delay-level-{units.bit_length() - 1:02}": 1}
    office.restart()
    assert office.rows() == {"a": (1, ms(due), ms(due))}
    office.pass_time(64 * SECOND_US)
    assert office.arrived == [(b"x", due)]


def test_it_is_written_by_one_record_and_its_level_forgets_it() -> None:
    office = Office()
    office.send(b"x", 21)
    office.save()
    office.do("retime_delayed", all=True, in_ms=1000)
    kinds = [record.kind for record in _records(office)]
    assert kinds == [7]  # HOP
    assert office.bench.broker.log.live() == 1


def _records(office: Office) -> list[Any]:
    from leveret.broker.storage.records import records

    return list(records(b"".join(office.bench.broker.log.close_batch())))


@pytest.mark.parametrize("in_ms", [0, 500])
def test_at_once(in_ms: int) -> None:
    office = Office()
    office.send(b"x", 21)
    office.do("retime_delayed", all=True, in_ms=in_ms)
    office.pass_time(0 if in_ms == 0 else SECOND_US)
    office.save()
    assert [body for body, _ in office.arrived] == [b"x"]
    assert office.rows() == {}


def test_at_a_time_that_is_past() -> None:
    office = Office()
    office.send(b"x", 21)
    office.hold(b"y", 21)
    assert office.do("retime_delayed", all=True, at_ms=5)["message_count"] == 2
    office.pass_time(0)
    office.save()
    assert sorted(body for body, _ in office.arrived) == [b"x", b"y"]


def test_without_a_way_it_waits_a_unit_and_dies_as_others_do() -> None:
    office = Office()
    office.send(b"x", 21, "nobody")
    office.do("retime_delayed", all=True, in_ms=0)
    assert level_counts(office) == {"t.delay-level-00": 1}
    office.pass_time(SECOND_US)
    assert office.do("list_delayed")[0]["parked"] == 1


def test_it_keeps_what_it_is() -> None:
    office = Office()
    office.send(b"in front", 21, "b.c")
    due = office.send(
        b"x", 21, message_id="m", priority=3, headers={
            "NServiceBus.TimeSent": "2023-11-14 22:13:20:000000 Z", DELAY_HEADER: 21, "mine": [1, "x"],
        },
    )  # fmt: skip
    office.send(b"plain", 21)
    office.pass_time(17 * SECOND_US)
    office.save()
    office.rig.pager.relieve(0)  # from here on, its death history is in its headers
    office.page()
    now_us = office.now_us
    for queue in ("a", "b.c"):
        office.client.send(1, grammar.BASIC_CANCEL, consumer_tag=queue)
    office.do("retime_delayed", destination="a", in_ms=40_000)
    office.pass_time(40 * SECOND_US)
    office.client.frames()
    headers = []
    for _ in range(2):
        office.client.send(1, grammar.BASIC_GET, queue="a", no_ack=True)
        header = next(frame for frame in office.client.frames() if frame.kind == 2)
        headers.append(decode_header(header.payload)[0])
    first, plain = headers
    assert (first.message_id, first.priority) == ("m", 3)
    assert first.headers is not None
    assert plain.headers is not None
    assert first.headers["mine"] == [1, "x"]
    # together they are the due time: other tools compute it from them
    assert first.headers["NServiceBus.TimeSent"] == "2023-11-14 22:13:20:000000 Z"
    assert first.headers[DELAY_HEADER] == 17 + 40
    assert due == now_us + 4 * SECOND_US
    # the earlier waits (16, 4 and 1) have left no deaths; 32 and 8 have
    deaths = [death["queue"] for death in first.headers["x-death"]]  # type: ignore[union-attr, index, call-overload]
    assert deaths == [f"t.delay-level-{level:02}" for level in (3, 5)]
    assert set(plain.headers) == {name for name in first.headers if name.startswith("x-")}


@pytest.mark.parametrize("sent", [None, "yesterday", 5, "2123-11-14 22:13:20:000000 Z", "1999-01-01 00:00:00:000000 Z"])
def test_a_time_of_sending_that_does_not_fit_becomes_now(sent: Any) -> None:
    office = Office()
    headers = {DELAY_HEADER: 21} | ({} if sent is None else {"NServiceBus.TimeSent": sent})
    office.send(b"x", 21, headers=headers)
    office.client.send(1, grammar.BASIC_CANCEL, consumer_tag="a")
    office.pass_time(1_234_567)
    office.do("retime_delayed", all=True, in_ms=5_000)
    office.pass_time(30 * SECOND_US)
    office.client.frames()
    office.client.send(1, grammar.BASIC_GET, queue="a", no_ack=True)
    header = next(frame for frame in office.client.frames() if frame.kind == 2)
    found = decode_header(header.payload)[0].headers
    assert found is not None
    assert (found["NServiceBus.TimeSent"], found[DELAY_HEADER]) == ("2023-11-14 22:13:21:234567 Z", 5)


def test_people_say_and_hear_the_time_on_the_wall() -> None:
    office = Office()
    due = office.send(b"x", 21, message_id="x")
    ahead_us = 3_600_000_500
    wall = ClockSample(office.now_us, office.now_us + ahead_us, 0, "")
    office.bench.broker.timeline.note(wall)
    shown = ms(due + ahead_us)
    assert office.rows() == {"a": (1, shown, shown)}
    assert office.rows(due_after_ms=shown, due_before_ms=shown + 1) == {}  # it was rounded up
    assert office.rows(due_after_ms=shown - 1, due_before_ms=shown).keys() == {"a"}
    (message,) = office.do("list_delayed_messages")
    assert (message["due_ms"], message["remaining_ms"]) == (shown, 21_000)
    answer = office.do("retime_delayed", message_id="x", at_ms=shown + 7_500)
    office.pass_time(40 * SECOND_US)
    ((body, arrived),) = office.arrived
    assert (body, ms(arrived + ahead_us)) == (b"x", answer["due_ms"])
    assert shown + 7_500 <= answer["due_ms"] <= shown + 8_500


def sent(office: Office, count: int, **values: Any) -> dict[str, int]:
    """Send messages with the ids "0", "1" and so on, due after 10 s and more; return their due times (µs)."""
    return {str(n): office.send(b"%d" % n, 10 + n, message_id=str(n), **values) for n in range(count)}


def test_one_call_cancels_many_ids_and_tells_which_were_there() -> None:
    office = Office()
    dues = sent(office, 5)
    office.send(b"no id", 10)
    ids = ["1", "3", "not there"]
    assert office.do("cancel_delayed", message_ids=ids, dry_run=True) == {"message_count": 2, "message_ids": ["1", "3"]}
    assert office.rows()["a"][0] == 6
    assert office.do("cancel_delayed", message_ids=ids) == {"message_count": 2, "message_ids": ["1", "3"]}
    assert office.do("cancel_delayed", message_ids=ids) == {"message_count": 0, "message_ids": []}
    assert office.do("cancel_delayed", message_ids=[]) == {"message_count": 0, "message_ids": []}
    office.pass_time(60 * SECOND_US)
    assert [due for body, due in office.arrived if body != b"no id"] == [dues["0"], dues["2"], dues["4"]]


@pytest.mark.parametrize("is_on_disk", [False, True])
def test_one_call_gives_each_id_a_time_of_its_own(is_on_disk: bool) -> None:
    office = Office(octets_max=1 if is_on_disk else 1 << 30)
    dues = sent(office, 40)
    office.save()
    wall_ms = ms(office.now_us)
    times = {"0": wall_ms + 50_000, "7": wall_ms + 2_000, "8": wall_ms, "9": wall_ms + 2_000, "gone": wall_ms}
    answer = office.do("retime_delayed", times=times)
    assert answer == {"message_count": 4, "message_ids": ["0", "7", "8", "9"], "due_ms": wall_ms + 50_000}
    assert office.do("retime_delayed", times=times, dry_run=True) == {
        "message_count": 3, "message_ids": ["0", "7", "9"], "due_ms": wall_ms + 50_000,
    }  # fmt: skip
    office.save()  # one was due at once
    office.restart()
    office.pass_time(64 * SECOND_US)
    arrived = {body.decode(): ms(due) for body, due in office.arrived}
    expected = {each: ms(due) for each, due in dues.items()} | {key: at for key, at in times.items() if key != "gone"}
    assert len(office.arrived) == 40
    assert arrived == expected


def test_times_of_ids_are_all_possible_or_none_is_given() -> None:
    office = Office()
    dues = sent(office, 2)
    wall_ms = ms(office.now_us)
    beyond = wall_ms + LONGEST * UNIT_MS + 1
    kind, reason = office.refusal("retime_delayed", times={"0": wall_ms + 1000, "1": beyond})
    assert (kind, reason) == (CONFLICT, "the layout 't' can delay for 63000 ms at most")
    assert office.refusal("retime_delayed", times={"0": -1})[0] == BAD_REQUEST
    assert office.refusal("retime_delayed", times={"0": 1}, at_ms=1)[0] == BAD_REQUEST
    assert office.refusal("retime_delayed", times={"0": 1}, message_ids=["0"])[0] == BAD_REQUEST
    assert office.refusal("retime_delayed", times={"0": 1}, all=True)[0] == BAD_REQUEST
    assert office.refusal("cancel_delayed", message_ids=["0"] * 100_001)[0] == BAD_REQUEST
    office.pass_time(60 * SECOND_US)
    assert sorted(due for _, due in office.arrived) == sorted(dues.values())


def test_ids_and_headers_must_both_fit_and_some_headers_must_not() -> None:
    office = Office()
    office.send(b"old", 10, message_id="m", headers={"x-schedule": "s", "run": 1})
    office.send(b"new", 20, message_id="m", headers={"x-schedule": "s", "run": 2})
    office.send(b"other", 30, message_id="m")
    asked = {"message_ids": ["m"], "headers": {"x-schedule": "s"}, "without_headers": {"run": "2"}}
    assert office.do("cancel_delayed", **asked) == {"message_count": 1, "message_ids": ["m"]}
    assert office.do("cancel_delayed", without_headers={"run": "2"}) == {"message_count": 1}
    office.pass_time(60 * SECOND_US)
    assert [body for body, _ in office.arrived] == [b"new"]


def test_too_long_for_the_layout() -> None:
    office = Office()
    office.send(b"1", 10)
    assert office.do("retime_delayed", all=True, in_ms=LONGEST * UNIT_MS)["message_count"] == 1
    kind, reason = office.refusal("retime_delayed", all=True, in_ms=LONGEST * UNIT_MS + 1)
    assert (kind, reason) == (CONFLICT, "the layout 't' can delay for 63000 ms at most")


def test_a_missing_or_limited_level_is_a_conflict() -> None:
    office = Office()
    office.send(b"1", 10)
    office.client.send(1, grammar.QUEUE_DELETE, queue="t.delay-level-05")
    assert office.refusal("retime_delayed", all=True, in_ms=40_000)[0] == CONFLICT
    assert office.rows()["a"][0] == 1
    policy = {"vhost": "/", "name": "p", "pattern": "level-04", "apply-to": "queues", "definition": {"max-length": 1}}
    office.bench.broker.definitions.put("policy", {**policy, "priority": 0})
    office.bench.broker.end_turn(office.now_us)
    assert office.refusal("retime_delayed", all=True, in_ms=20_000)[0] == CONFLICT


def test_too_many_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    office = Office()
    office.send(b"1234567890", 10, count=5)
    monkeypatch.setattr(delayed, "RETIMED_MAX", 4)
    assert office.refusal("retime_delayed", all=True, in_ms=0)[0] == CONFLICT
    monkeypatch.setattr(delayed, "RETIMED_MAX", 5)
    monkeypatch.setattr(delayed, "RETIMED_OCTETS_MAX", 50)
    assert office.refusal("retime_delayed", all=True, in_ms=0)[0] == CONFLICT
    monkeypatch.setattr(delayed, "RETIMED_OCTETS_MAX", 5000)
    assert office.do("retime_delayed", all=True, in_ms=0)["message_count"] == 5


def test_permissions() -> None:
    office = Office()
    office.send(b"1", 10)
    office.hold(b"2", 10)
    definitions = office.bench.broker.definitions
    definitions.put("user", {"name": "u", "tags": []})

    def allow(configure: str, write: str, read: str) -> None:
        patterns: dict[str, Any] = {"configure": configure, "write": write, "read": read}
        definitions.put("permission", {"user": "u", "vhost": "/", **patterns})

    level, exchange = "t.delay-level-03", "d"
    allow("", "", "")
    assert office.refusal("cancel_delayed", user="u", destination="a") == (
        NOT_AUTHORISED, f"access to queue '{level}' in vhost '/' refused for user 'u'"
    )  # fmt: skip
    assert office.refusal("cancel_delayed", user="u", destination="k") == (
        NOT_AUTHORISED, f"access to exchange '{exchange}' in vhost '/' refused for user 'u'"
    )  # fmt: skip
    allow("", "", level)
    assert office.refusal("retime_delayed", user="u", destination="a", in_ms=5000)[0] == NOT_AUTHORISED
    allow("", "t.delay-level-02", level)
    assert office.do("retime_delayed", user="u", destination="a", in_ms=5000)["message_count"] == 1
    assert office.refusal("cancel_delayed", user="u", all=True)[0] == NOT_AUTHORISED
    allow("^d$", "", level[:-1])
    assert office.do("cancel_delayed", user="u", all=True)["message_count"] == 2


def test_others_have_their_turn_and_everything_is_met_once() -> None:
    """Messages that move on during a listing are counted where they were; a change takes what matches when it is
    made."""
    office = Office()
    for number in range(4 * STEP):
        office.send(b"%d" % number, 20, "ab"[number % 2].replace("b", "b.c"), message_id=str(number))
    turns = 0

    def between() -> None:
        nonlocal turns
        turns += 1
        if turns == 2:
            office.pass_time(16 * SECOND_US)  # all of them go to the next level
        if turns == 3:
            office.send(b"new", 20)
            office.send(b"other", 20, "b.c")

    assert sum(row["messages"] for row in office.do("list_delayed", between)) == 4 * STEP
    assert turns >= 4
    turns = 0
    # the messages that it found first arrive before the change; those sent meanwhile match it
    assert office.do("cancel_delayed", between, destination="a")["message_count"] == 2
    assert office.rows().keys() == {"b.c"}
    assert len(office.arrived) == 4 * STEP


def test_pages_are_read_where_they_are_and_stay_there() -> None:
    office = paged()
    before = in_memory(office)
    reads = office.rows()
    assert {name: row[0] for name, row in reads.items()} == {"a": 100, "b.c": 100}
    assert len(office.do("list_delayed_messages", limit=500)) == 200
    assert in_memory(office) == before < 50


def test_a_cancelled_page_leaves_the_disk() -> None:
    office = paged()
    assert office.do("cancel_delayed", destination="a")["message_count"] == 100
    office.page()
    assert office.rows().keys() == {"b.c"}
    assert sum(level_counts(office).values()) == 100
    office.restart()
    assert office.rows()["b.c"][0] == 100
    assert office.do("cancel_delayed", all=True)["message_count"] == 100
    office.page()
    office.page()
    assert office.rig.disk.list_names("/segments") == []
    assert office.bench.broker.log.live() == 0
    office.restart()
    assert office.rows() == {}


def test_two_changes_at_a_time() -> None:
    office = paged()

    def between() -> None:
        office.do("cancel_delayed", destination="a", dry_run=False)

    assert office.do("cancel_delayed", between, message_id="7") == {"message_count": 1}
    assert office.rows()["b.c"][0] == 99
    office.restart()
    assert office.rows().keys() == {"b.c"}
    assert office.rows()["b.c"][0] == 99


def test_undeliverable_messages_are_told_apart_and_may_be_changed_as_others() -> None:
    office = Office(octets_max=3000)
    dues = [office.send(b"%04d" % number, number, "gone", message_id=str(number)) for number in range(1, 61)]
    office.send(b"on time", 30, message_id="other")
    office.pass_time(45 * SECOND_US)
    office.page()
    assert office.do("list_delayed") == [
        {"vhost": "/", "layout": "t", "type": "levels", "destination": "gone", "messages": 15, "parked": 45,
         "next_due_ms": ms(dues[45]), "last_due_ms": ms(dues[-1])},
    ]  # fmt: skip
    parked = {row["name"]: row["parked"] for row in office.do("list_delay_levels") if row["parked"]}
    assert sum(parked.values()) == 45
    found = office.do("list_delayed_messages", parked=True)
    assert [(each["message_id"], each["due_ms"]) for each in found] == [
        (str(number), ms(dues[number - 1])) for number in range(1, 46)
    ]
    assert {(each["state"], each["remaining_ms"]) for each in found} == {("parked", 0)}
    assert office.do("cancel_delayed", message_id="3") == {"message_count": 1}
    due = office.now_us + 20 * SECOND_US
    for id in ("5", "6"):
        assert office.do("retime_delayed", message_id=id, parked=True, in_ms=20_000)["message_count"] == 1
    office.restart()
    assert office.do("list_delayed")[0] | {"parked": 42, "messages": 17} == office.do("list_delayed")[0]
    assert office.do("list_delayed_messages", message_id="5")[0]["due_ms"] == ms(due)
    assert office.do("cancel_delayed", destination="gone", parked=True) == {"message_count": 42}
    office.page()
    office.pass_time(60 * SECOND_US)
    assert office.do("list_delayed")[0]["parked"] == 17
    vhost = office.bench.broker.vhosts["/"]
    assert sum(queue.undeliverable_count() for queue in vhost.queues.values()) == 17
    office.client.send(1, grammar.QUEUE_DECLARE, queue="gone", durable=True)
    office.client.send(1, grammar.QUEUE_BIND, queue="gone", exchange=LAYOUT.delivery_exchange, routing_key="#.gone")
    office.pass_time(10 * SECOND_US)
    assert office.do("list_delayed") == []
    assert vhost.queues["gone"].count() == 17
    assert [body for body, _ in office.arrived] == [b"on time"]


@pytest.mark.parametrize("mode", [1, 2])
def test_what_is_withdrawn_while_its_page_is_being_written_stays_away(mode: int) -> None:
    office = Office()
    for number in range(40):
        office.send(b"%04d" % number, 40, message_id=str(number), delivery_mode=mode)
    office.save()
    rig = office.rig
    rig.pager.relieve(300)
    while not rig.unwritten:
        rig.page_step()
    assert office.do("cancel_delayed", message_id="38") == {"message_count": 1}
    office.page()
    assert sum(level_counts(office).values()) == office.rows()["a"][0] == 39
    # a page that does not know of the removal must not restore the message
    found = office.bench.broker.vhosts["/"].queues["t.delay-level-05"].in_memory()
    assert any(b"0039" in entry.content for entry in found) == (mode == 1)
    office.pass_time(40 * SECOND_US)
    assert sorted(body for body, _ in office.arrived) == [b"%04d" % number for number in range(40) if number != 38]


def paged() -> Office:
    """An office with two hundred messages, most of them on disk."""
    office = Office(octets_max=3000)
    for number in range(100):
        office.send(b"%04d" % number, 20 + number % 10, message_id=str(number))
        office.send(b"%04d" % number, 20 + number % 10, "b.c", message_id=str(number))
        office.page()
    return office


def in_memory(office: Office) -> int:
    vhost = office.bench.broker.vhosts["/"]
    return sum(len(queue.in_memory()) for queue in vhost.queues.values())


# -- a model -----------------------------------------------------------------------------------------------------------


def some_filter(rng: random.Random) -> dict[str, Any]:
    offered = {
        "destination": rng.choice(["a", "b.c", "k"]),
        "message_id": rng.choice("01234"),
        "layout": rng.choice("td"),
        "after": rng.randrange(-5, 30),
        "before": rng.randrange(5, 60),
    }
    return {name: offered[name] for name in rng.sample(sorted(offered), rng.choice([1, 1, 2, 3]))}


def some_operation(rng: random.Random) -> tuple[Any, ...]:
    others = ["cancel", "retime", "retime", "page", "half_page", "half_page", "restart", "pass_"]
    which = rng.choice(["send"] * 8 + others)
    match which:
        case "send":
            count, mode = rng.choice([1, 1, 3]), rng.choice([2, 2, 1])
            return which, rng.choice(["a", "b.c", "k"]), rng.randint(1, LONGEST), count, mode
        case "cancel":
            return which, some_filter(rng), rng.randrange(6)
        case "retime":
            return which, some_filter(rng), rng.randrange(LONGEST * UNIT_MS), rng.randrange(6)
        case "restart":
            return which, rng.random() < 0.5, rng.randrange(6)
        case "pass_":
            return which, rng.randrange(10_000_000)
    return (which,)


class Model:
    """The expected result."""

    def __init__(self, octets_max: int) -> None:
        self.office = Office(octets_max)
        # body -> [destination, id, due time (µs), whether it survives a restart, count]
        self.waits: dict[bytes, list[Any]] = {}
        self.arrives: dict[bytes, list[int]] = {}
        self._number = 0

    def send(self, destination: str, units: int, count: int, mode: int) -> None:
        self._number += 1
        body, id = b"%05d" % self._number, str(self._number % 5)
        if destination == "k":
            due, count = self.office.hold(body, units, message_id=id, delivery_mode=mode), 1
        else:
            due = self.office.send(body, units, destination, count, message_id=id, delivery_mode=mode)
        # a durable schedule keeps transient messages, too
        self.waits[body] = [destination, id, due, mode == 2 or destination == "k", count]
        self.check()

    def fits(self, wanted: dict[str, Any]) -> list[bytes]:
        now_us = self.office.now_us
        return [
            body
            for body, (destination, id, due, _, _) in self.waits.items()
            if wanted.get("destination", destination) == destination
            and wanted.get("message_id", id) == id
            and wanted.get("layout", "d" if destination == "k" else "t") == ("d" if destination == "k" else "t")
            and due >= now_us // 1000 * 1000 + wanted.get("after", -100) * SECOND_US
            and due < now_us // 1000 * 1000 + wanted.get("before", 100) * SECOND_US
        ]

    def fields(self, wanted: dict[str, Any]) -> dict[str, Any]:
        fields = dict(wanted)
        now_ms = self.office.now_us // 1000
        for name in ("after", "before"):
            if name in fields:
                fields[f"due_{name}_ms"] = now_ms + fields.pop(name) * 1000
        return fields

    def pausing(self, turns: int) -> Any:
        """Return a function that writes a part of a page, for the first `turns` calls."""
        left = turns

        def between() -> None:
            nonlocal left
            if left:
                left -= 1
                self.office.rig.page_step()

        return between

    def cancel(self, wanted: dict[str, Any], turns: int) -> None:
        fitting = self.fits(wanted)
        answer = self.office.do("cancel_delayed", self.pausing(turns), **self.fields(wanted))
        assert answer["message_count"] == sum(self.waits[body][4] for body in fitting)
        for body in fitting:
            del self.waits[body]
        self.check()

    def retime(self, wanted: dict[str, Any], in_ms: int, turns: int) -> None:
        fitting, now_us = self.fits(wanted), self.office.now_us
        self.office.do("retime_delayed", self.pausing(turns), **self.fields(wanted), in_ms=in_ms)
        for body in fitting:
            exactly = now_us + in_ms * 1000
            is_held = self.waits[body][0] == "k"
            self.waits[body][2] = exactly if is_held else now_us + -(-in_ms // UNIT_MS) * SECOND_US
        self.office.pass_time(0)
        self.office.save()
        self.settle()

    def page(self) -> None:
        self.office.page()
        self.check()

    def half_page(self) -> None:
        """Build a page that then waits to be written."""
        rig = self.office.rig
        if rig.pager.is_idle:
            rig.pager.relieve(300)
        rig.page_step()
        self.check()

    def restart(self, is_orderly: bool, after_s: int) -> None:
        self.office.save()
        self.office.restart(is_orderly, after_s * SECOND_US)
        self.waits = {body: wait for body, wait in self.waits.items() if wait[3]}
        self.office.pass_time(0)
        self.office.save()
        self.settle(is_late=True)

    def pass_(self, us: int) -> None:
        self.office.pass_time(us)
        self.settle()

    def settle(self, is_late: bool = False) -> None:
        """Check that each due message arrived once, at its time, and nothing else did."""
        now_us = self.office.now_us
        expected = sorted(
            (body, now_us if is_late else wait[2]) for body, wait in self.waits.items() for _ in range(wait[4])
            if wait[2] <= now_us
        )  # fmt: skip
        assert sorted(self.office.arrived) == expected
        self.office.arrived.clear()
        self.waits = {body: wait for body, wait in self.waits.items() if wait[2] > now_us}
        self.check()

    def check(self) -> None:
        rows: dict[str, tuple[int, int, int]] = {}
        for destination, _, due, _, count in self.waits.values():
            n, first, last = rows.get(destination, (0, due, due))
            rows[destination] = (n + count, min(first, due), max(last, due))
        assert self.office.rows() == {name: (n, ms(first), ms(last)) for name, (n, first, last) in rows.items()}
        levels = sum(level_counts(self.office).values())
        assert levels == sum(n for n, _, _ in rows.values())


@pytest.mark.parametrize("octets_max", [400, 3000, 1 << 30])
@pytest.mark.parametrize("seed", range(15))
def test_whatever_is_done_in_any_order(seed: int, octets_max: int) -> None:
    rng, model = random.Random(seed), Model(octets_max)
    for _ in range(80):
        name, *arguments = some_operation(rng)
        getattr(model, name)(*arguments)
    model.pass_((LONGEST + 1) * SECOND_US)
    assert model.waits == {}
    model.page()
    assert model.office.bench.broker.log.live() == 0
