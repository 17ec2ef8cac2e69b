"""Browsing a queue shows all its messages, in order, and changes nothing."""

from __future__ import annotations

from base64 import b64decode
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from leveret.store.disk import MemoryDisk
from leveret.wire import grammar

from .asking import Operator
from .rig import Rig

PAGED = 1 << 11


def desk_of(rig: Rig) -> Operator:
    return Operator(rig.bench)


def filled(count: int = 40, **arguments: Any) -> tuple[Rig, Operator]:
    """A durable queue q, most of whose messages are on disk."""
    rig = Rig(MemoryDisk(), octets_max=PAGED)
    operator = desk_of(rig)
    client = operator.client()
    client.queue("q", durable=True, arguments=arguments)
    for number in range(count):
        client.publish("q", f"body {number}".encode(), delivery_mode=2, headers={"n": number}, message_id=f"m{number}")
        rig.write()
    rig.page()
    return rig, operator


def bodies(answer: Any) -> list[str]:
    return [item["payload"] for item in answer["items"]]


def whole(operator: Operator, queue: str, place: str) -> bytes:
    """Return a body, assembled from its pieces."""
    return b64decode("".join(operator.ask("get_message_body", queue=queue, place=place)))


def state(operator: Operator) -> dict[str, Any]:
    """Return all state that browsing must not change."""
    queue = operator.bench.broker.vhosts["/"].queues["q"]
    log = operator.bench.broker.log
    waiting = [(type(item).__name__, id(item)) for each in queue.message_lists for item in each.ready.items()]
    return {
        "waiting": waiting, "count": queue.count(), "unacked": queue.unacked, "log": (log.size(), log.events),
        "counters": [getattr(queue.counters, name) for name in ("publish", "get", "get_no_ack", "redeliver", "ack")],
        "redelivered": [entry.redelivered for entry in queue.in_memory()],
    }  # fmt: skip


def test_pages_are_looked_into_and_stay() -> None:
    _, operator = filled()
    queue = operator.bench.broker.vhosts["/"].queues["q"]
    assert queue.message_list.ready.waiting_pages()
    before = state(operator)
    answer = operator.ask("browse_queue", queue="q", limit=1000)
    assert bodies(answer) == [f"body {number}" for number in range(40)]
    assert [item["offset"] for item in answer["items"]] == list(range(40))
    assert answer["next_offset"] is None
    assert state(operator) == before


@settings(max_examples=40, deadline=None)
@given(offset=st.integers(-50, 50), limit=st.integers(1, 45))
def test_any_range(offset: int, limit: int) -> None:
    answer = RANGES.ask("browse_queue", queue="q", offset=offset, limit=limit)
    first = max(0, 40 + offset) if offset < 0 else offset
    assert bodies(answer) == [f"body {number}" for number in range(40)][first : first + limit]
    assert answer["next_offset"] == (first + limit if first + limit < 40 else None)


RANGES = filled()[1]


def test_it_is_the_order_of_deliveries() -> None:
    operator = Operator()
    client = operator.client()
    client.queue("q", arguments={"x-max-priority": 3})
    for number, priority in enumerate([0, 3, 1, 3, 0, 2]):
        client.publish("q", str(number).encode(), priority=priority)
    seen = bodies(operator.ask("browse_queue", queue="q"))
    client.call(1, grammar.BASIC_CONSUME, queue="q", no_ack=True, consumer_tag="c")
    assert seen == ["1", "3", "5", "2", "0", "4"]


def test_what_came_back_stands_in_its_place() -> None:
    _, operator = filled(6)
    other = operator.client()
    for _ in range(3):
        other.call(1, grammar.BASIC_GET, queue="q")
    other.send(1, grammar.BASIC_NACK, delivery_tag=3, multiple=True, requeue=True)
    answer = operator.ask("browse_queue", queue="q")
    assert bodies(answer) == [f"body {number}" for number in range(6)]
    assert [item["redelivered"] for item in answer["items"]] == [True] * 3 + [False] * 3


def test_who_holds_what_is_not_acknowledged() -> None:
    _, operator = filled(5)
    consumer = operator.client()
    consumer.call(1, grammar.BASIC_QOS, prefetch_count=2)
    consumer.call(1, grammar.BASIC_CONSUME, queue="q", consumer_tag="c-1")
    getter = operator.client()
    getter.call(1, grammar.BASIC_GET, queue="q")
    before = state(operator)
    answer = operator.ask("browse_queue", queue="q", state="unacked")
    assert bodies(answer) == ["body 0", "body 1", "body 2"]
    assert [item["held_by"]["consumer_tag"] for item in answer["items"]] == ["c-1", "c-1", None]
    assert {item["held_by"]["connection"] for item in answer["items"]} == {consumer.peer.name, getter.peer.name}
    assert bodies(operator.ask("browse_queue", queue="q")) == ["body 3", "body 4"]
    assert state(operator) == before


@pytest.mark.parametrize(
    ("text", "found"),
    [("BODY 7", ["body 7"]), ("m12", ["body 12"]), ("'n': 33", ["body 33"]), ("nowhere", [])],
)
def test_a_text_is_looked_for_everywhere(text: str, found: list[str]) -> None:
    _, operator = filled()
    answer = operator.ask("browse_queue", queue="q", text=text)
    assert bodies(answer) == found
    assert answer["scanned"] == 40


def test_alike_messages_are_shown_one_by_one() -> None:
    operator = Operator()
    client = operator.client()
    client.queue("q")
    client.raw(b"".join(client.encoded("q", b"%03d" % number) for number in range(20)))
    answer = operator.ask("browse_queue", queue="q", offset=5, limit=3)
    assert bodies(answer) == ["005", "006", "007"]


def test_a_body_is_had_as_a_whole_by_its_place() -> None:
    _, operator = filled()
    octets = bytes(range(256)) * 400
    operator.clients[0].publish("q", octets)
    (item,) = operator.ask("browse_queue", queue="q", offset=-1, truncate=10)["items"]
    assert (item["payload_bytes"], item["payload_encoding"]) == (len(octets), "string")
    assert whole(operator, "q", item["place"]) == octets
    paged = operator.ask("browse_queue", queue="q", offset=17, limit=1)["items"][0]
    assert whole(operator, "q", paged["place"]) == b"body 17"
    operator.clients[0].call(1, grammar.QUEUE_PURGE, queue="q")
    assert operator.refusal("get_message_body", queue="q", place=item["place"])[0] == "not_found"
    for wrong in ("", "x", "5", "1-2-3", "-1"):
        assert operator.refusal("get_message_body", queue="q", place=wrong)[0] == "bad_request"


def test_a_body_is_not_cut_within_a_character() -> None:
    operator = Operator()
    client = operator.client()
    client.queue("q")
    client.publish("q", "añ€😀".encode())
    shown = [bodies(operator.ask("browse_queue", queue="q", truncate=octets))[0] for octets in range(11)]
    assert shown == ["", "a", "a", "añ", "añ", "añ", "añ€", "añ€", "añ€", "añ€", "añ€😀"]


def test_a_stream_by_offset() -> None:
    operator = Operator()
    client = operator.client()
    client.queue("s", durable=True, arguments={"x-queue-type": "stream"})
    for number in range(10):
        client.publish("s", f"body {number}".encode())
    operator.bench.sync()
    answer = operator.ask("browse_queue", queue="s", offset=4, limit=3)
    assert [(item["offset"], item["payload"]) for item in answer["items"]] == [
        (4, "body 4"),
        (5, "body 5"),
        (6, "body 6"),
    ]
    assert answer["next_offset"] == 7
    assert bodies(operator.ask("browse_queue", queue="s", offset=-2)) == ["body 8", "body 9"]
    assert whole(operator, "s", "3") == b"body 3"
    assert operator.refusal("browse_queue", queue="s", state="unacked")[0] == "bad_request"


def test_what_is_not_on_disk_is_not_shown_of_a_stream() -> None:
    operator = Operator()
    client = operator.client()
    client.queue("s", durable=True, arguments={"x-queue-type": "stream"})
    client.publish("s")
    assert bodies(operator.ask("browse_queue", queue="s")) == []


def test_who_may_look() -> None:
    _, operator = filled(2)
    broker = operator.bench.broker
    for name, read in (("r", "^q$"), ("n", "^other$")):
        broker.definitions.put("user", {"name": name, "tags": []})
        patterns: dict[str, Any] = {"configure": "", "write": "", "read": read}
        broker.definitions.put("permission", {"user": name, "vhost": "/", **patterns})
    assert len(operator.ask("browse_queue", queue="q", user="r")["items"]) == 2
    kind, reason = operator.refusal("browse_queue", queue="q", user="n")
    assert (kind, reason) == (
        "not_authorised", "ACCESS_REFUSED - access to queue 'q' in vhost '/' refused for user 'n'",
    )  # fmt: skip
    assert operator.refusal("browse_queue", queue="gone")[0] == "not_found"
    assert operator.refusal("get_message_body", queue="q", place="0-1", user="n")[0] == "not_authorised"


@pytest.mark.parametrize("wrong", [{"limit": 0}, {"limit": 1001}, {"truncate": -1}, {"truncate": 1 << 21}])
def test_wrong_questions(wrong: dict[str, Any]) -> None:
    _, operator = filled(1)
    assert operator.refusal("browse_queue", queue="q", **wrong)[0] == "bad_request"
