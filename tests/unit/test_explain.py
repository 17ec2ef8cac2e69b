"""The route explainer agrees with the broker's routing, in verdicts and reasons, and changes nothing."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from leveret.broker.exchange_types.envelope import Envelope
from leveret.broker.exchange_types.topic import Topic
from leveret.broker.exchanges.binding import Binding
from leveret.cli.ctl.explained import tree
from leveret.control.commands import explain
from leveret.control.explain.message import ExplainedMessage
from leveret.control.explain.reasons import reason_of, topic_failure
from leveret.control.explain.walk import Walk
from leveret.control.tables import encoded_table
from leveret.wire import grammar
from leveret.wire.frames import content_frames
from leveret.wire.properties import Properties, encode_header
from leveret.wire.table import encode_short

from .asking import Operator

KINDS = ("direct", "fanout", "topic", "headers", "x-consistent-hash", "x-modulus-hash", "x-random", "x-recent-history",
         "x-delayed-message", "x-federation-upstream", "x-message-deduplication")  # fmt: skip
ARGUMENTS: dict[str, dict[str, Any]] = {
    "x-delayed-message": {"x-delayed-type": "topic"},
    "x-message-deduplication": {"x-cache-size": 5},
    "x-federation-upstream": {"x-max-hops": 2, "x-downstream-name": "there", "x-downstream-vhost": "/"},
}
PATTERNS = ("a", "a.b", "a.*", "#", "*.b.#", "#.c", "1", "2")
KEYS = ("a", "a.b", "a.b.c", "", "1")
HEADERS: tuple[dict[str, Any], ...] = (
    {}, {"h": 1}, {"h": "1", "x-i": True}, {"BCC": ["a.b"], "h": 2}, {"CC": ["a", "1"]}, {"x-delay": 50},
    {"x-deduplication-header": "k"},
    {"x-received-from": [{"cluster-name": "there", "vhost": "/"}]}, {"x-received-from": [{}, {}, {}]},
)  # fmt: skip
WANTED: tuple[dict[str, Any], ...] = (
    {}, {"x-match": "all", "h": 1}, {"x-match": "any", "h": 1, "g": 2}, {"x-match": "any"}, {"h": "1", "x-i": False},
    {"x-match": "all-with-x", "x-i": True},
)  # fmt: skip
NAMES = ("e0", "e1", "e2", "e3")
QUEUES = ("q0", "q1", "q2", "q3")

topologies = st.fixed_dictionaries(
    {
        "kinds": st.lists(st.sampled_from(KINDS), min_size=len(NAMES), max_size=len(NAMES)),
        "alternates": st.lists(st.sampled_from((None, *NAMES, "missing")), min_size=len(NAMES), max_size=len(NAMES)),
        "bindings": st.lists(
            st.tuples(
                st.sampled_from(NAMES), st.sampled_from((*NAMES, *QUEUES)), st.sampled_from(PATTERNS),
                st.sampled_from(WANTED),
            ),
            max_size=14,
        ),
    }
)  # fmt: skip


def built(topology: dict[str, Any]) -> Operator:
    """Make a broker with these exchanges and bindings, and all queues."""
    operator = Operator()
    client = operator.client()
    vhost = operator.bench.broker.vhosts["/"]
    for name, kind, alternate in zip(NAMES, topology["kinds"], topology["alternates"], strict=True):
        arguments = ARGUMENTS.get(kind, {}) | ({"alternate-exchange": alternate} if alternate else {})
        vhost.add_exchange(name, kind, False, False, False, arguments)
    for name in QUEUES:
        client.queue(name)
    for source, destination, pattern, arguments in topology["bindings"]:
        is_weight = topology["kinds"][NAMES.index(source)] == "x-consistent-hash"
        key = pattern if not is_weight else str(PATTERNS.index(pattern) + 1)
        place = vhost.queues.get(destination) or vhost.exchanges[destination]
        vhost.bind(Binding(vhost.exchanges[source], place, key, encoded_table(arguments)))
    return operator


def counts(operator: Operator) -> dict[str, int]:
    return {name: int(queue.count()) for name, queue in operator.bench.broker.vhosts["/"].queues.items()}


@settings(max_examples=150, deadline=None)
@given(topology=topologies, key=st.sampled_from(KEYS), headers=st.sampled_from(HEADERS))
def test_what_takes_it_is_what_gets_it(topology: dict[str, Any], key: str, headers: dict[str, Any]) -> None:
    operator = built(topology)
    told = operator.ask("explain_route", exchange="e0", routing_key=key, properties={"headers": headers}, limit=1000)
    assert counts(operator) == dict.fromkeys(QUEUES, 0)
    verdicts = {row["queue"]: row["verdict"] for row in told["route"]["queues"]}
    held = told["route"]["exchanges"] and any("held_ms" in step for step in told["route"]["exchanges"])
    operator.clients[0].publish(key, exchange="e0", headers=headers)
    got = {name for name, count in counts(operator).items() if count}
    certain = {name for name, verdict in verdicts.items() if verdict == "takes"}
    assert certain <= got <= set(verdicts)
    if set(verdicts.values()) <= {"takes"}:
        assert got == set(verdicts)
    assert bool(held) is any(schedule.count() for schedule in operator.bench.broker.vhosts["/"].schedules.values())
    assert (told["route"]["outcome"] == "unroutable") is (not verdicts and not held)


@settings(max_examples=150, deadline=None)
@given(topology=topologies, key=st.sampled_from(KEYS), headers=st.sampled_from(HEADERS))
def test_a_reason_never_contradicts_its_verdict(topology: dict[str, Any], key: str, headers: dict[str, Any]) -> None:
    operator = built(topology)
    vhost = operator.bench.broker.vhosts["/"]
    keys = [key, *headers.get("CC", []), *headers.get("BCC", [])]
    content = content_frames(1, encode_header(Properties(headers=headers), 0), b"", 0)
    message = ExplainedMessage(encode_short("e0") + encode_short(key), keys, content, -1)
    walk = Walk(vhost, vhost.exchanges["e0"], message.envelope())
    for _ in walk.steps():
        pass
    for visit in walk.visits.values():
        for binding in [] if visit.held_us else visit.exchange.every():
            reason = reason_of(visit, binding, keys, walk.envelope)
            assert reason.fits is visit.takes(binding), (visit.exchange.kind, binding.key, reason.text)


@given(
    st.lists(st.sampled_from(("a", "b", "*", "#")), max_size=5),
    st.lists(st.sampled_from(("a", "b", "*", "")), max_size=5),
)
@settings(max_examples=300, deadline=None)
def test_a_pattern_fails_in_words_when_it_fails(pattern: list[str], words: list[str]) -> None:
    operator = built({"kinds": ["topic"] * 4, "alternates": [None] * 4, "bindings": []})
    vhost = operator.bench.broker.vhosts["/"]
    binding = Binding(vhost.exchanges["e0"], vhost.queues["q0"], ".".join(pattern), encoded_table({}))
    vhost.bind(binding)
    matcher = vhost.exchanges["e0"].matcher
    assert isinstance(matcher, Topic)
    key = ".".join(words)
    assert bool(matcher.match(Envelope([key], b"", b""))) is (topic_failure(binding.key, key) == "")


@pytest.mark.parametrize(
    ("pattern", "key", "reason"),
    [
        ("a.*.c", "a.b.d", "word 3 of the key is 'd', the pattern requires 'c' there"),
        ("a.b", "a", "the key ends after 1 word, the pattern requires 'b' after that"),
        ("a", "a.b", "the pattern ends before word 2 of the key, 'b'"),
        ("#.x", "a.b", "the key ends after 2 words, the pattern requires 'x' after that"),
        ("a.#.z", "b", "word 1 of the key is 'b', the pattern requires 'a' there"),
    ],
)
def test_which_word_differs(pattern: str, key: str, reason: str) -> None:
    assert topic_failure(pattern, key) == reason


class TestReasons:
    """The reasons that people read, for each exchange type."""

    def reasons(self, kind: str, bindings: list[tuple[str, str, dict[str, Any]]], **message: Any) -> dict[str, str]:
        rows = [("e0", queue, pattern, arguments) for queue, pattern, arguments in bindings]
        operator = built({"kinds": [kind] + ["fanout"] * 3, "alternates": [None] * 4, "bindings": []})
        client = operator.clients[0]
        for source, queue, pattern, arguments in rows:
            fields = {"queue": queue, "exchange": source, "routing_key": pattern, "arguments": arguments}
            client.call(1, grammar.QUEUE_BIND, **fields)
        told = operator.ask("explain_route", exchange="e0", **message)
        return {row["destination"]: row["reason"] for row in told["route"]["exchanges"][0]["bindings"]["shown"]}

    def test_direct(self) -> None:
        found = self.reasons("direct", [("q0", "k", {}), ("q1", "l", {})], routing_key="k")
        assert found == {"q0": "the routing key is 'k'", "q1": "the routing key is 'k', the binding requires 'l'"}

    def test_copies_count(self) -> None:
        headers = {"headers": {"BCC": ["l"]}}
        found = self.reasons("direct", [("q1", "l", {})], routing_key="k", properties=headers)
        assert found == {"q1": "the routing key is 'l' (from CC or BCC)"}

    def test_headers(self) -> None:
        bindings: list[tuple[str, str, dict[str, Any]]] = [
            ("q0", "", {"x-match": "all", "colour": "red", "size": 2}),
            ("q1", "", {"x-match": "any", "colour": "blue"}),
            ("q2", "", {"size": "2"}),
            ("q3", "", {"x-match": "all", "x-flag": True, "size": 2}),
        ]
        found = self.reasons("headers", bindings, properties={"headers": {"size": 2}})
        assert found == {
            "q0": "x-match is all: header 'colour' is missing (required: 'red')",
            "q1": "x-match is any: header 'colour' is missing (required: 'blue')",
            "q2": "x-match is all: header 'size' is 2, the binding requires '2'",
            "q3": "x-match is all: header 'size' is 2",
        }

    def test_a_hash_names_who_gets_it(self) -> None:
        found = self.reasons("x-consistent-hash", [("q0", "1", {}), ("q1", "3", {})], routing_key="order.5")
        taker = next(name for name, text in found.items() if "is in its range" in text)
        other = next(name for name in found if name != taker)
        assert found[other].endswith(f"which is in the range of queue '{taker}'")
        found = self.reasons("x-modulus-hash", [("q0", "a", {}), ("q1", "b", {})], routing_key="order.5")
        assert sorted(text.endswith("this one") for text in found.values()) == [False, True]

    def test_hops(self) -> None:
        been = {"headers": {"x-received-from": [{"cluster-name": "there", "vhost": "/"}]}}
        found = self.reasons("x-federation-upstream", [("q0", "", {})], properties=been)
        hop = "hop 1 of x-received-from is cluster 'there', vhost '/'"
        assert found["q0"] == f"the message has already been there: {hop}"
        far = {"headers": {"x-received-from": [{}, {}]}}
        found = self.reasons("x-federation-upstream", [("q0", "", {})], properties=far)
        assert found["q0"] == "the message has crossed 2 links (x-received-from), and max-hops is 2"

    def test_chance(self) -> None:
        found = self.reasons("x-random", [("q0", "", {}), ("q1", "", {})])
        assert set(found.values()) == {"one of 2 bindings is chosen at random"}


def shaped(**queues: dict[str, Any]) -> Operator:
    """Make a broker with queues of these arguments."""
    operator = Operator()
    client = operator.client()
    for name, arguments in queues.items():
        client.queue(name, arguments=arguments, durable="x-queue-type" in arguments)
    return operator


class TestFates:
    """What happens to the message in a queue, and after."""

    def queue(self, operator: Operator, name: str, **fields: Any) -> Any:
        (row,) = operator.ask("explain_route", exchange="", routing_key=name, **fields)["route"]["queues"]
        return row

    def test_a_full_queue_refuses(self) -> None:
        operator = shaped(q={"x-max-length": 1, "x-overflow": "reject-publish"}, d={"x-max-length": 1})
        for name in ("q", "d"):
            operator.clients[0].publish(name)
        assert self.queue(operator, "q")["verdict"] == "refuses"
        assert "reject-publish" in self.queue(operator, "q")["notes"][0]
        assert self.queue(operator, "d")["verdict"] == "takes"
        assert "the oldest message is removed" in self.queue(operator, "d")["notes"][0]

    def test_dead_letters_are_followed(self) -> None:
        operator = shaped(
            q={"x-message-ttl": 5000, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "end"}, end={}
        )
        row = self.queue(operator, "q", properties={"expiration": "2000"})
        assert row["ttl_ms"] == 2000
        assert row["notes"][0] == "it waits at most 2 s (its own expiration)"
        dead = row["dead_letter"]
        assert (dead["reason"], dead["after_ms"]) == ("expired", 2000)
        assert [each["queue"] for each in dead["next"]["queues"]] == ["end"]
        assert "notes" in dead["next"]["queues"][0]

    def test_a_circle_is_cut(self) -> None:
        operator = shaped(q={"x-message-ttl": 5, "x-dead-letter-exchange": ""})
        (again,) = self.queue(operator, "q")["dead_letter"]["next"]["queues"]
        assert again["verdict"] == "cut"
        operator.clients[0].publish("q")
        operator.bench.pass_time(6000)
        assert counts(operator) == {"q": 0}

    def test_depth_is_limited(self) -> None:
        names = [f"q{number}" for number in range(12)]
        operator = shaped(**{
            name: {"x-message-ttl": 5, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": following}
            for name, following in zip(names, [*names[1:], "gone"], strict=True)
        })  # fmt: skip
        told = operator.ask("explain_route", exchange="", routing_key="q0", depth=3)
        assert told["is_truncated"]
        route, depth = told["route"], 0
        while route["queues"] and "next" in route["queues"][0].get("dead_letter", {}):
            route, depth = route["queues"][0]["dead_letter"]["next"], depth + 1
        assert depth == 3

    def test_a_missing_dead_letter_exchange_is_told(self) -> None:
        operator = shaped(q={"x-message-ttl": 5, "x-dead-letter-exchange": "nowhere"})
        assert self.queue(operator, "q")["dead_letter"]["trouble"].startswith("exchange 'nowhere' does not exist")

    def test_a_delayed_exchange_holds_it_and_then_lets_it_go(self) -> None:
        operator = shaped(q={})
        client = operator.clients[0]
        client.call(
            1, grammar.EXCHANGE_DECLARE, exchange="d", type="x-delayed-message", arguments={"x-delayed-type": "topic"}
        )
        client.call(1, grammar.QUEUE_BIND, queue="q", exchange="d", routing_key="a.*")
        told = operator.ask("explain_route", exchange="d", routing_key="a.b", properties={"headers": {"x-delay": 1500}})
        assert told["route"]["outcome"] == "held"
        (step,) = told["route"]["exchanges"]
        assert step["held_ms"] == 1500
        assert [row["queue"] for row in step["next"]["queues"]] == ["q"]
        wrong = operator.ask("explain_route", exchange="d", properties={"headers": {"x-delay": "soon"}})
        assert wrong["refusals"] == ["406 PRECONDITION_FAILED - invalid x-delay 'soon': no_integer"]
        assert wrong["route"] is None

    def test_delay_levels_are_one_line(self) -> None:
        operator = Operator()
        client = operator.client()
        client.queue("dest")
        client.call(1, grammar.EXCHANGE_DECLARE, exchange="nsb.delay-delivery", type="topic")
        client.call(1, grammar.QUEUE_BIND, queue="dest", exchange="nsb.delay-delivery", routing_key="#.dest")
        for level in range(3):
            name, onward = (
                f"nsb.delay-level-{level:02d}",
                "nsb.delay-delivery" if level == 0 else f"nsb.delay-level-{level - 1:02d}",
            )
            client.call(1, grammar.EXCHANGE_DECLARE, exchange=name, type="topic")
            client.queue(name, arguments={"x-message-ttl": 1000 << level, "x-dead-letter-exchange": onward})
            client.call(1, grammar.QUEUE_BIND, queue=name, exchange=name, routing_key="*." * (2 - level) + "1.#")
            client.call(
                1, grammar.EXCHANGE_BIND, destination=onward, source=name, routing_key="*." * (2 - level) + "0.#"
            )
        told = operator.ask("explain_route", exchange="nsb.delay-level-02", routing_key="1.0.1.dest")
        (row,) = told["route"]["queues"]
        dead = row["dead_letter"]
        assert (
            dead["delay"]
            == "waits 4 s here (level 2), then level 0; arrives at exchange 'nsb.delay-delivery' after 5 s"
        )
        assert [each["queue"] for each in dead["next"]["queues"]] == ["dest"]
        assert "waits 4 s here" in tree(told, {})


class TestAsking:
    def test_what_it_is_not_reached_by(self) -> None:
        operator = built({"kinds": ["topic", "direct", "fanout", "fanout"], "alternates": [None] * 4,
                      "bindings": [("e0", "q0", "a.b", {}), ("e1", "q0", "x", {})]})  # fmt: skip
        told = operator.ask("explain_route", exchange="e0", routing_key="a.c", destination="q0")["destination"]
        assert told["reached"] is False
        assert {row["source"]: row["reason"] for row in told["bindings"]} == {
            "e0": "pattern 'a.b': word 2 of the key is 'c', the pattern requires 'b' there",
            "e1": "the message does not reach exchange 'e1'",
        }
        assert operator.ask("explain_route", exchange="e0", destination="nobody")["destination"]["exists"] is False

    def test_permissions_are_looked_at(self) -> None:
        operator = shaped(q={})
        broker = operator.bench.broker
        broker.definitions.put("user", {"name": "u", "tags": []})
        patterns: dict[str, Any] = {"configure": "", "write": "^amq.topic$", "read": ""}
        broker.definitions.put("permission", {"user": "u", "vhost": "/", **patterns})
        pattern: dict[str, Any] = {"exchange": "amq.topic", "write": "^u", "read": ""}
        broker.definitions.put("topic_permission", {"user": "u", "vhost": "/", **pattern})
        asked = {"properties": {"user_id": "guest"}, "routing_key": "q"}
        (no_write,) = operator.ask("explain_route", exchange="", routing_key="q", user="u")["refusals"]
        assert "no write permission" in no_write
        topic, said = operator.ask("explain_route", exchange="amq.topic", user="u", **asked)["refusals"]
        assert "topic 'q' in exchange 'amq.topic'" in topic
        assert "user_id property set to 'guest' but authenticated user was 'u'" in said
        assert operator.ask("explain_route", exchange="amq.topic", routing_key="u.x", user="u")["refusals"] == []
        assert operator.refusal("explain_route", exchange="", user="nobody")[0] == "not_found"

    def test_what_no_publisher_may(self) -> None:
        operator = shaped(q={})
        told = operator.ask(
            "explain_route", exchange="amq.rabbitmq.trace", routing_key="q", properties={"expiration": "soon"}
        )
        assert [text.partition(" - ")[2].partition(" '")[0] for text in told["refusals"]] == [
            "cannot publish to internal exchange", "invalid expiration",
        ]  # fmt: skip
        assert operator.ask("explain_route", exchange="gone")["route"] is None
        for wrong in ({"limit": 0}, {"depth": 99}, {"payload_bytes": -1}, {"routing_key": "k" * 256}):
            assert operator.refusal("explain_route", exchange="", **wrong)[0] == "bad_request"

    def test_nothing_is_changed(self) -> None:
        kinds = ["x-recent-history", "x-random", "x-delayed-message", "x-message-deduplication"]
        ends = (("e0", "e1"), ("e1", "q0"), ("e1", "q1"), ("e0", "e2"), ("e0", "e3"))
        bindings = [(source, destination, "", {}) for source, destination in ends]
        operator = built({"kinds": kinds, "alternates": [None] * 4, "bindings": bindings})
        broker = operator.bench.broker
        vhost = broker.vhosts["/"]
        drawn: list[int] = []
        vhost.random_bytes = lambda count: drawn.append(count) or bytes(count)  # type: ignore[func-returns-value]
        before = (broker.log.size(), broker.log.events, vhost.generation, vhost.tally.counters.publish)
        headers = {"x-delay": 5, "x-deduplication-header": 1}
        for _ in range(3):
            operator.ask("explain_route", exchange="e0", properties={"headers": headers})
        assert (broker.log.size(), broker.log.events, vhost.generation, vhost.tally.counters.publish) == before
        assert not drawn
        assert len(vhost.exchanges["e0"].matcher.history) == 0  # type: ignore[attr-defined]
        assert vhost.exchanges["e3"].matcher.cache.count() == 0  # type: ignore[attr-defined]

    @pytest.mark.parametrize("kind", ["fanout", "headers", "x-modulus-hash"])
    def test_many_bindings_are_looked_at_in_steps(self, kind: str) -> None:
        operator = built({"kinds": [kind] + ["fanout"] * 3, "alternates": [None] * 4, "bindings": []})
        vhost = operator.bench.broker.vhosts["/"]
        source, queue = vhost.exchanges["e0"], vhost.queues["q0"]
        for number in range(5000):
            arguments = encoded_table({"h": number} if kind == "headers" else {})
            vhost.bind(Binding(source, queue, f"k{number}", arguments))
        told = operator.ask("explain_route", exchange="e0", routing_key="k7", properties={"headers": {"h": 7}}, limit=5)
        assert operator.steps > 5000 // 256
        bindings = told["route"]["exchanges"][0]["bindings"]
        assert bindings["total"] == 5000
        assert len(bindings["shown"]) <= 10
        assert bindings["shown"][0]["matched"] is True

    def test_what_changes_meanwhile_is_looked_at_anew(self, monkeypatch: pytest.MonkeyPatch) -> None:
        operator = built({"kinds": ["fanout"] * 4, "alternates": [None] * 4, "bindings": [("e0", "q0", "", {})]})
        vhost = operator.bench.broker.vhosts["/"]

        def bind(key: str) -> None:
            vhost.bind(Binding(vhost.exchanges["e0"], vhost.queues["q1"], key, encoded_table({})))

        operator.between_steps = [lambda: bind("once")]
        told = operator.ask("explain_route", exchange="e0")
        assert told["route"]["queue_count"] == 2
        # it changes after each step, so the answer is made in one go
        operator.between_steps = [lambda key=str(number): bind(key) for number in range(100)]
        told = operator.ask("explain_route", exchange="e0")
        assert told["route"]["exchanges"][0]["bindings"]["matched"] == vhost.exchanges["e0"].binding_count
        monkeypatch.setattr(explain, "UNDISTURBED_MAX", 3)
        operator.between_steps = [lambda key=str(number): bind(key) for number in range(200, 2000)]
        kind, reason = operator.refusal("explain_route", exchange="e0")
        assert (kind, reason) == (
            "conflict",
            "exchanges, queues and bindings of vhost '/' change too quickly: try again",
        )

    def test_a_hostile_name_does_not_steer_the_terminal(self) -> None:
        operator = shaped(**{"q\x1b[2J": {}})
        text = tree(operator.ask("explain_route", exchange="", routing_key="q\x1b[2J"), {})
        assert "\x1b" not in text
        assert "receives it" in text
