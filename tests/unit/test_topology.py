"""get_topology and list_downstreams: bindings, limits of the answer, and what it leaves out."""

from __future__ import annotations

from typing import Any, cast

import msgspec
import pytest

import leveret.control.commands  # noqa: F401  (makes them known)
from leveret.control.command import COMMANDS
from leveret.control.host import Host
from leveret.control.node import BrokerNode
from leveret.control.refusal import BAD_REQUEST, NOT_FOUND, Refused
from leveret.control.sliced import Sliced
from leveret.wire import grammar

from .admin import MINE, Browser, missing
from .asking import listed
from .support import Bench, Client


class Clock:
    def __init__(self, bench: Bench) -> None:
        self._bench = bench

    def now_us(self) -> int:
        return self._bench.now_us


class Map:
    """A broker, a client that declares, and the two commands."""

    def __init__(self) -> None:
        self.bench = Bench()
        self.client: Client = self.bench.connect()
        self.node = BrokerNode(
            self.bench.broker, cast(Host, Clock(self.bench)), "leveret@test", "/data", "1", "interpreted"
        )
        self.steps = 0

    def exchange(self, name: str, kind: str = "topic", **arguments: Any) -> None:
        given = {key.replace("_", "-"): value for key, value in arguments.items()}
        self.client.call(1, grammar.EXCHANGE_DECLARE, exchange=name, type=kind, arguments=given)

    def queue(self, name: str, **arguments: Any) -> None:
        given = {f"x-{key.replace('_', '-')}": value for key, value in arguments.items()}
        self.client.queue(name, arguments=given)

    def bind(self, source: str, queue: str, key: str = "", arguments: dict[str, Any] | None = None) -> None:
        self.client.call(
            1, grammar.QUEUE_BIND, exchange=source, queue=queue, routing_key=key, arguments=arguments or {}
        )

    def onward(self, source: str, destination: str, key: str = "") -> None:
        self.client.call(1, grammar.EXCHANGE_BIND, source=source, destination=destination, routing_key=key)

    def do(self, command: str = "get_topology", **fields: Any) -> Any:
        result = msgspec.convert({"command": command, "vhost": "/", **fields}, COMMANDS[command]).run(self.node)
        assert isinstance(result, Sliced)
        while True:
            try:
                next(result.steps)
                self.steps += 1
            except StopIteration as stop:
                return msgspec.json.decode(msgspec.json.encode(listed(stop.value)))


def edges(view: Any) -> set[tuple[str, str, str, int]]:
    return {
        (each["kind"], each["source"]["name"], each["destination"]["name"], each["bindings"]) for each in view["edges"]
    }


def names(view: Any, type: str) -> list[str]:
    return [each["name"] for each in view["nodes"] if each["type"] == type]


def test_what_is_around_one_exchange() -> None:
    map = Map()
    for name in ("in", "dead", "far"):
        map.exchange(name)
    map.exchange("x", alternate_exchange="nowhere")
    map.exchange("fallback-user", alternate_exchange="x")
    map.queue("a", dead_letter_exchange="dead", dead_letter_routing_key="k")
    map.queue("b", dead_letter_exchange="", dead_letter_routing_key="a")
    map.queue("buries-here", dead_letter_exchange="x")
    map.queue("elsewhere")
    map.onward("in", "x", "i.#")
    map.onward("x", "far")
    map.bind("far", "elsewhere")
    map.bind("x", "a", "one")
    map.bind("x", "a", "two")
    map.bind("x", "b", "three", {"n": 5})
    view = map.do(exchange="x")
    assert edges(view) == {
        ("binding", "x", "a", 2), ("binding", "x", "b", 1), ("binding", "x", "far", 1), ("binding", "in", "x", 1),
        ("alternate", "x", "nowhere", 0), ("alternate", "fallback-user", "x", 0),
        ("dead_letter", "a", "dead", 0), ("dead_letter", "b", "a", 0), ("dead_letter", "buries-here", "x", 0),
    }  # fmt: skip
    assert "elsewhere" not in names(view, "queue")
    assert view["left_out"] == []
    by_name = {each["name"]: each for each in view["nodes"]}
    assert by_name["x"] == {
        "type": "exchange", "name": "x", "kind": "topic", "is_internal": False, "bindings": 4,
    }  # fmt: skip
    assert by_name["a"] == {"type": "queue", "name": "a", "kind": "classic", "messages": 0, "consumers": 0}
    assert by_name["nowhere"] == {"type": "exchange", "name": "nowhere", "is_missing": True}
    keys = {(each["source"]["name"], each["destination"]["name"]): each for each in view["edges"]}
    assert keys["x", "a"]["routing_keys"] == ["one", "two"]
    assert keys["x", "b"]["arguments"] == [{"n": 5}]
    assert keys["a", "dead"]["routing_keys"] == ["k"]


def test_three_hundred_are_counted_and_forty_shown() -> None:
    map = Map()
    map.exchange("x")
    for number in range(300):
        map.queue(f"q{number}")
        map.bind("x", f"q{number}", "first")
        map.bind("x", f"q{number}", "second")
    view = map.do(exchange="x")
    assert len(names(view, "queue")) == 40
    assert {count for *_, count in edges(view)} == {2}
    assert view["left_out"] == [
        {"type": "exchange", "name": "x", "what": "destination", "count": 260, "bindings": 520}
    ]  # fmt: skip
    assert map.steps >= 4  # other work is done between the steps
    assert len(names(map.do(exchange="x", limit=1000), "queue")) == 300


def test_too_many_lead_to_one() -> None:
    map = Map()
    map.exchange("x")
    for number in range(5):
        map.exchange(f"in{number}")
        map.onward(f"in{number}", "x")
        map.queue(f"q{number}", dead_letter_exchange="x")
    view = map.do(exchange="x", limit=3)
    assert {(each["what"], each["count"]) for each in view["left_out"]} == {("source", 2), ("dead_letter_source", 2)}
    assert len(edges(view)) == 6


def test_a_whole_virtual_host_says_what_it_leaves_out() -> None:
    map = Map()
    for number in range(4):
        map.exchange(f"x{number}")
        for other in range(number + 1):
            map.queue(f"q{other}")
            map.bind(f"x{number}", f"q{other}", str(number))
    map.queue("alone")
    view = map.do(limit=2)
    assert set(names(view, "exchange")) == {"x3", "x2"}  # those with most bindings
    assert (view["exchanges_left_out"], view["queues_left_out"]) == (2, 3)
    assert {(each["name"], each["count"]) for each in view["left_out"]} == {("x3", 2), ("x2", 1)}
    whole = map.do()
    assert (whole["exchanges_left_out"], whole["queues_left_out"]) == (0, 1)
    assert "amq.topic" not in names(whole, "exchange")  # it has no bindings


def test_itself_bound_to_itself_stands_there_once() -> None:
    map = Map()
    map.exchange("x")
    map.onward("x", "x", "again")
    assert edges(map.do(exchange="x")) == {("binding", "x", "x", 1)}


@pytest.mark.parametrize(
    ("fields", "kind"), [({"exchange": "none"}, NOT_FOUND), ({"limit": 0}, BAD_REQUEST), ({"limit": 1001}, BAD_REQUEST)]
)
def test_what_is_refused(fields: dict[str, Any], kind: str) -> None:
    with pytest.raises(Refused) as refused:
        Map().do(**fields)
    assert refused.value.kind == kind


def test_links_of_others_are_known_by_their_queues() -> None:
    map = Map()
    map.queue("federation: orders -> east", internal_purpose="federation")
    map.queue("federation: news -> west", internal_purpose="federation")
    map.queue("federation: fake -> north")
    map.client.publish("federation: news -> west", b"m")
    map.client.call(1, grammar.BASIC_CONSUME, queue="federation: orders -> east")
    rows = map.do("list_downstreams")
    assert [(each["downstream"], each["exchange"], each["status"], each["messages"]) for each in rows] == [
        ("west", "news", "disconnected", 1), ("east", "orders", "running", 0),
    ]  # fmt: skip
    assert rows[1]["connection"]
    assert rows[0]["connection"] is None
    map.client.publish("federation: orders -> east", b"m")
    (row,) = map.do("list_downstreams", name="orders")
    assert (row["delivered"], row["unacknowledged"]) == (1, 1)


# -- over HTTP ---------------------------------------------------------------------------------------------------------


async def test_paths() -> None:
    browse = Browser()
    browse.control.answers |= {"get_topology": lambda _: {"nodes": []}, "list_downstreams": lambda _: []}
    answer = await browse("GET", "/api/topology/%2F?exchange=a/b&limit=7")
    assert (answer.status_code, answer.json()) == (200, {"nodes": []})
    assert browse.control.fields_of("get_topology") == {"vhost": "/", "exchange": "a/b", "limit": 7}
    assert (await browse("GET", "/api/topology/%2F?limit=many")).status_code == 400
    assert (await browse("GET", "/api/topology/none")).status_code == 404
    assert (await browse("GET", "/api/topology/%2F", user="plain")).status_code == 401
    browse.control.answers["get_topology"] = missing
    assert (await browse("GET", "/api/topology/%2F?exchange=x")).status_code == 404
    assert (await browse("GET", "/api/federation-downstreams", user="plain")).status_code == 200
    assert browse.control.fields_of("list_downstreams") == {"vhosts": [MINE]}
