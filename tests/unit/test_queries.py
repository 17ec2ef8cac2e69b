"""Read-only commands of the control plane: pages, order, filters, columns, rates, deletions while listing."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from leveret.broker.access.security import Security
from leveret.broker.peer import Peer
from leveret.control.calls.line import SOMEBODY, call_line, result_of
from leveret.control.command import COMMANDS
from leveret.control.control import Control
from leveret.control.node import BrokerNode
from leveret.control.refusal import BAD_REQUEST, NOT_AUTHORISED, NOT_FOUND, Refused
from leveret.control.sliced import Sliced
from leveret.control.views.rates import RateWindow
from leveret.net.alarms import Alarms, Gauges, ResourceLimits
from leveret.net.connections.listener import Listener
from leveret.net.connections.logins import Logins
from leveret.wire import grammar

from .asking import whole
from .support import SECOND_US, Bench, Client

PERMISSIONS = ("configure", "write", "read")
DAY_US = 24 * 3600 * SECOND_US


class Host:
    """Stands for the host of leveret.net."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self.started_us = bench.now_us
        self.listeners = [Listener("amqp", "127.0.0.1", 5672)]
        self.memory_octets = 1000
        gauges = Gauges(lambda: 10_000, lambda: self.memory_octets, lambda: None)
        self.alarms = Alarms(ResourceLimits(100, 2000), gauges)
        self.clients: list[Client] = []
        self.shown: list[tuple[str, int]] = []
        self.shutdown = SimpleNamespace(is_under_maintenance=False)
        self.is_draining = False

    @property
    def logins(self) -> Logins:
        return Logins(self.bench.broker, self.now_us, lambda peer: None)

    def now_us(self) -> int:
        return self.bench.now_us

    def peers(self) -> list[Peer]:
        return [client.peer for client in self.clients]

    def unsent_octets(self, peer: Peer) -> int:
        return 7

    def certificates(self) -> list[tuple[str, int]]:
        return self.shown

    def close(self, peer: Peer, reason: str) -> None:
        raise AssertionError("queries close nothing")

    def stop(self) -> None:
        raise AssertionError("queries stop nothing")

    async def settled(self) -> None:
        raise AssertionError("queries change nothing")


class Rig:
    """A broker to query, and a client of it."""

    def __init__(self) -> None:
        self.bench = Bench()
        self.host = Host(self.bench)
        self.node = BrokerNode(self.bench.broker, self.host, "leveret@test", "/data", "1.0", "interpreted")
        self.control = Control(self.node)
        self.client = self.connect()

    def connect(self) -> Client:
        client = self.bench.connect()
        client.peer.name = f"test:{len(self.host.clients)} -> here:1"
        self.host.clients.append(client)
        return client

    def ask(self, command: str, **fields: Any) -> Any:
        line = call_line(command, fields, SOMEBODY).rstrip()
        return result_of(asyncio.run(whole(self.control.answer(line))))

    def refusal(self, command: str, **fields: Any) -> tuple[str, str]:
        with pytest.raises(Refused) as refused:
            self.ask(command, **fields)
        return refused.value.kind, refused.value.reason

    def names(self, command: str = "list_queues", **fields: Any) -> list[str]:
        found = self.ask(command, columns=["name"], **fields)
        return [item["name"] for item in (found["items"] if isinstance(found, dict) else found)]


@pytest.fixture
def rig() -> Rig:
    rig = Rig()
    for name in ("delta", "Alpha", "charlie", "bravo"):
        rig.client.queue(name)
    rig.client.publish("charlie")
    rig.client.publish("charlie")
    rig.client.publish("bravo")
    return rig


def test_a_list_is_in_order_and_a_page_says_where_it_is(rig: Rig) -> None:
    assert rig.names() == ["Alpha", "bravo", "charlie", "delta"]
    page = rig.ask("list_queues", page=2, page_size=3, columns=["name"])
    assert page == {
        "filtered_count": 4,
        "item_count": 1,
        "items": [{"name": "delta"}],
        "page": 2,
        "page_count": 2,
        "page_size": 3,
        "total_count": 4,
    }


def test_an_empty_list_has_a_first_page_and_no_other(rig: Rig) -> None:
    page = rig.ask("list_queues", page=1, name="nothing")
    assert (page["items"], page["page_count"], page["total_count"]) == ([], 0, 4)
    refusal = rig.refusal("list_queues", page=2, name="nothing")
    assert refusal == ("page_out_of_range", "Page out of range, page: 2 page size: 100, len: 0")


@pytest.mark.parametrize(("page", "size"), [(0, None), (-1, 10), (1, 0), (1, 501)])
def test_pages_that_cannot_be(rig: Rig, page: int, size: int | None) -> None:
    said = "undefined" if size is None else size
    expected = f"Invalid pagination parameters: page number {page}, page size {said}"
    assert rig.refusal("list_queues", page=page, page_size=size) == ("invalid_pagination_parameters", expected)


def test_filters_look_for_parts_of_names_in_any_case(rig: Rig) -> None:
    assert rig.names(name="AL") == ["Alpha"]
    assert rig.names(name="^.(L|h)", use_regex=True) == ["Alpha", "charlie"]
    assert rig.names(name="(l") == []
    kind, reason = rig.refusal("list_queues", name="(l", use_regex=True)
    assert kind == BAD_REQUEST
    assert "invalid regular expression '(l'" in reason


def test_a_pattern_that_would_take_years_is_refused(rig: Rig) -> None:
    rig.client.queue("a" * 60 + "!")
    kind, reason = rig.refusal("list_queues", name="(a+)+$", use_regex=True)
    assert (kind, reason) == (BAD_REQUEST, "the regular expression '(a+)+$' takes too long")
    assert rig.names(name="^alpha$", use_regex=True) == ["Alpha"]  # the refused pattern has no effect on later ones


@pytest.mark.parametrize("column", ["messages", "message_stats.publish"])
def test_any_column_can_be_the_order(rig: Rig, column: str) -> None:
    # missing values come first; equal ones stay in order
    assert rig.names(sort=column) == ["Alpha", "delta", "bravo", "charlie"]
    assert rig.names(sort=column, sort_reverse=True) == ["charlie", "bravo", "Alpha", "delta"]
    assert rig.names(sort=column, sort_reverse=True, page=1, page_size=1) == ["charlie"]


def test_words_are_an_order_too(rig: Rig) -> None:
    assert rig.names(sort="name", sort_reverse=True) == ["delta", "charlie", "bravo", "Alpha"]
    assert rig.names(sort_reverse=True) == ["delta", "charlie", "bravo", "Alpha"]
    assert rig.names(sort="type") == ["Alpha", "bravo", "charlie", "delta"]


def test_columns_are_paths(rig: Rig) -> None:
    found = rig.ask("list_queues", name="bravo", columns=["name", "message_stats.publish", "nothing", "name.more"])
    assert found == [{"name": "bravo", "message_stats": {"publish": 1}}]


def test_virtual_hosts_bound_what_is_seen(rig: Rig) -> None:
    rig.bench.broker.definitions.put("vhost", {"name": "other", "description": "", "tags": []})
    assert rig.names("list_vhosts") == ["/", "other"]
    assert rig.names("list_vhosts", vhosts=["other"]) == ["other"]
    assert rig.names(vhosts=["other"]) == []
    assert rig.names(vhost="/", vhosts=["other"]) == []
    assert rig.names("list_connections", vhosts=["other"]) == []
    assert rig.names("list_connections", vhosts=["/"]) == ["test:0 -> here:1"]
    assert rig.refusal("list_queues", vhost="nowhere")[0] == NOT_FOUND
    overview = rig.ask("overview", vhosts=["other"])
    assert overview["object_totals"]["queues"] == overview["queue_totals"]["messages"] == 0
    assert "listeners" not in overview
    assert rig.ask("overview", vhosts=[])["queue_totals"]["messages"] == 0


def result(work: Sliced) -> Any:
    """Run all steps and return the result."""

    def run() -> Iterator[Any]:
        yield (yield from work.steps)

    return list(run())[-1]


def test_what_goes_while_it_is_listed_is_left_out() -> None:
    rig = Rig()
    names = [f"q{number:03}" for number in range(300)]
    for name in names:
        rig.client.queue(name)
    command = msgspec.convert({"command": "list_queues"}, COMMANDS["list_queues"])
    work = command.run(rig.node)
    assert isinstance(work, Sliced)
    items = result(work)
    for _ in range(10):
        next(items)
    rig.client.call(1, grammar.QUEUE_DELETE, queue="q299")
    rig.client.queue("new")
    assert [msgspec.json.decode(item)["name"] for item in items if item is not None] == names[5:-1]


@pytest.mark.parametrize("sort", [None, "messages", "message_stats.publish"])
def test_no_step_of_a_long_list_is_long(sort: str | None) -> None:
    rig = Rig()
    for number in range(400):
        rig.client.queue(f"q{number:03}")
    command = msgspec.convert({"command": "list_queues", "page": 1, "sort": sort}, COMMANDS["list_queues"])
    seen: list[str] = []
    view = type(command).view
    work = command.run(rig.node)
    assert isinstance(work, Sliced)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(command), "view", lambda self, node, item: (seen.append(item[1]), view(self, node, item))[1])
        longest, before = 0, 0
        for _ in work.steps:
            longest, before = max(longest, len(seen) - before), len(seen)
    assert longest == 1  # views are expensive: a pause follows each
    assert len(seen) == (500 if sort == "message_stats.publish" else 100)


def test_arguments_that_are_no_utf_8() -> None:
    rig = Rig()
    rig.client.queue("q", arguments={"x-note": b"\xff".decode("utf-8", "surrogateescape")})
    assert rig.ask("list_queues")[0]["arguments"] == {"x-note": "Not UTF-8, base64 is: /w=="}


def test_bindings_between_two() -> None:
    rig = Rig()
    client = rig.client
    client.queue("q")
    client.queue("p")
    client.call(1, grammar.EXCHANGE_DECLARE, exchange="x", type="topic")
    client.call(1, grammar.QUEUE_BIND, queue="q", exchange="x", routing_key="a.#", arguments={"n": 1})
    client.call(1, grammar.EXCHANGE_BIND, destination="amq.topic", source="x", routing_key="")

    def bindings(**fields: Any) -> list[tuple[str, str, str]]:
        found = rig.ask("list_bindings", **fields)
        return [(each["source"], each["destination"], each["properties_key"]) for each in found]

    hashed = ("x", "q", "a.%23~AXY02A")
    assert bindings(source="", destination="q") == [("", "q", "q")]
    assert [pair[:2] for pair in bindings()] == [("", "p"), ("", "q"), ("x", "amq.topic"), ("x", "q")]
    assert bindings(destination="amq.topic", destination_type="exchange") == [("x", "amq.topic", "~")]
    assert [pair[:2] for pair in bindings(source="x", destination_type="queue")] == [hashed[:2]]
    assert bindings(source="x", destination="p") == bindings(source="missing") == []


def test_connections_channels_and_consumers_of_a_user() -> None:
    rig = Rig()
    rig.client.queue("q")
    rig.client.call(1, grammar.BASIC_CONSUME, queue="q", consumer_tag="t", arguments={"x-priority": 3})
    other = rig.connect()
    other.peer.user = "somebody"
    other.call(2, grammar.CHANNEL_OPEN)
    assert rig.names("list_connections", user="somebody") == ["test:1 -> here:1"]
    assert rig.names("list_channels", user="somebody") == ["test:1 -> here:1 (1)", "test:1 -> here:1 (2)"]
    assert rig.names("list_channels", connection="test:0 -> here:1") == ["test:0 -> here:1 (1)"]
    assert rig.ask("list_consumers", user="somebody") == []
    (consumer,) = rig.ask("list_consumers")
    assert (consumer["consumer_tag"], consumer["arguments"]) == ("t", {"x-priority": 3})
    assert rig.ask("get_queue", vhost="/", name="q")["consumer_details"] == [consumer]
    assert rig.ask("get_channel", name="test:0 -> here:1 (1)")["consumer_details"] == [consumer]


def test_one_of_several_consumers_is_active() -> None:
    rig = Rig()
    rig.client.queue("q", arguments={"x-single-active-consumer": True})
    for tag in ("one", "two"):
        rig.client.call(1, grammar.BASIC_CONSUME, queue="q", consumer_tag=tag)
    found = [(each["active"], each["activity_status"]) for each in rig.ask("list_consumers")]
    assert found == [(True, "single_active"), (False, "waiting")]
    assert rig.ask("get_queue", vhost="/", name="q")["single_active_consumer_tag"] == "one"


@pytest.mark.parametrize(
    ("command", "fields"),
    [
        ("get_queue", {"vhost": "/", "name": "no"}),
        ("get_queue", {"vhost": "no", "name": "no"}),
        ("get_exchange", {"vhost": "/", "name": "no"}),
        ("get_connection", {"name": "no"}),
        ("get_channel", {"name": "no"}),
        ("get_channel", {"name": "test:0 -> here:1 (9)"}),
        ("get_channel", {"name": "test:0 -> here:1 (x)"}),
        ("get_vhost", {"name": "no"}),
        ("get_node", {"name": "no"}),
        ("aliveness_test", {"vhost": "no"}),
    ],
)
def test_what_is_not_there(rig: Rig, command: str, fields: dict[str, Any]) -> None:
    assert rig.refusal(command, **fields)[0] == NOT_FOUND


def test_the_default_exchange_has_two_names(rig: Rig) -> None:
    for name in ("", "amq.default"):
        exchange = rig.ask("get_exchange", vhost="/", name=name)
        assert (exchange["name"], exchange["type"], exchange["message_stats"]["publish_in"]) == ("", "direct", 3)


def test_totals_are_sums(rig: Rig) -> None:
    rig.bench.broker.definitions.put("vhost", {"name": "other", "description": "", "tags": []})
    overview = rig.ask("overview")
    assert overview["queue_totals"]["messages_ready"] == 3
    assert overview["message_stats"]["publish"] == 3
    assert overview["object_totals"] == {"channels": 1, "connections": 1, "consumers": 0, "exchanges": 14, "queues": 4}
    (vhost,) = rig.ask("list_vhosts", vhost="/")
    assert (vhost["messages"], vhost["message_stats"]["publish"], vhost["tracing"]) == (3, 3, False)


def test_rates_are_those_of_the_time_between_two_looks(rig: Rig) -> None:
    def rate() -> float:
        stats = rig.ask("get_queue", vhost="/", name="bravo")["message_stats"]
        assert isinstance(stats, dict)
        return float(stats["publish_details"]["rate"])

    assert rate() == 0.0
    for _ in range(20):
        rig.client.publish("bravo")
    rig.bench.now_us += 2 * SECOND_US
    assert rate() == 10.0
    rig.bench.now_us += 8 * SECOND_US
    assert rate() == 2.0
    rig.bench.now_us += 8 * SECOND_US
    assert rate() == 0.0


def test_a_window_forgets_what_is_long_ago() -> None:
    window = RateWindow(0, (0,))
    assert window.rates(SECOND_US // 2, (100,)) == [0.0]  # a rate covers at least one second
    assert window.rates(2 * SECOND_US, (100,)) == [50.0]
    assert window.rates(200 * SECOND_US, (1000,)) == [0.0]
    assert window.rates(202 * SECOND_US, (1010,)) == [5.0]
    assert window.rates(205 * SECOND_US, (1010,)) == [2.0]
    assert window.rates(206 * SECOND_US, (1012,)) == [2.0]
    assert window.rates(210 * SECOND_US, (1012,)) == [0.4]
    assert window.rates(215 * SECOND_US, (1012,)) == [0.0]


def test_health_checks(rig: Rig) -> None:
    def check(name: str, argument: Any = None, unit: str | None = None) -> Any:
        return rig.ask("health_check", check=name, argument=argument, unit=unit)

    assert check("alarms") == check("local-alarms") == check("virtual-hosts") == {"status": "ok"}
    assert check("port-listener", "5672") == {"status": "ok", "port": 5672}
    assert check("port-listener", 1) == {
        "status": "failed", "reason": "No active listener", "missing": 1, "ports": [5672],
    }  # fmt: skip
    assert check("protocol-listener", "amqp091") == {"status": "ok", "protocol": "amqp"}
    assert check("protocol-listener", "mqtt") == {
        "status": "failed", "reason": "No active listener", "missing": "mqtt", "protocols": ["amqp"],
    }  # fmt: skip
    assert check("node-is-quorum-critical") == {"status": "ok", "reason": "single node cluster"}
    rig.host.memory_octets = 3000
    rig.host.alarms.check(False)
    assert check("alarms") == {
        "status": "failed",
        "reason": "There are alarms in effect in the cluster",
        "alarms": [{"node": "leveret@test", "resource": "memory"}],
    }


def test_certificates_that_end_soon(rig: Rig) -> None:
    def check(within: Any, unit: str) -> Any:
        return rig.ask("health_check", check="certificate-expiration", argument=within, unit=unit)

    rig.host.shown = [("a.pem", rig.bench.now_us + 10 * DAY_US), ("b.pem", rig.bench.now_us + 400 * DAY_US)]
    assert check(1, "weeks") == {"status": "ok"}
    assert check("1", "months")["expired"] == [{"node": "leveret@test", "path": "a.pem"}]
    assert len(check("2", "years")["expired"]) == 2
    fields = {"check": "certificate-expiration", "argument": "1", "unit": "eons"}
    reason = "Time unit not recognised. Supported units: days, weeks, months, years."
    assert rig.refusal("health_check", **fields) == (BAD_REQUEST, reason)
    for within in ("x", "-1", "", None):
        fields = {"check": "certificate-expiration", "argument": within, "unit": "days"}
        assert rig.refusal("health_check", **fields) == (BAD_REQUEST, "Invalid expiration value.")
    assert rig.refusal("health_check", check="port-listener", argument="x") == (BAD_REQUEST, "Invalid port")
    assert "unknown health check 'x'" in rig.refusal("health_check", check="x")[1]


def test_aliveness_leaves_its_queue_empty(rig: Rig) -> None:
    for _ in range(2):
        assert rig.ask("aliveness_test", vhost="/") == {"status": "ok"}
    assert rig.ask("get_queue", vhost="/", name="aliveness-test")["messages"] == 0


def test_aliveness_is_tested_with_the_permissions_of_who_asks(rig: Rig) -> None:
    rig.bench.broker.definitions.put("user", {"name": "u", "tags": []})
    rig.bench.broker.definitions.put("permission", {"user": "u", "vhost": "/", **dict.fromkeys(PERMISSIONS, "^x")})
    kind, reason = rig.refusal("aliveness_test", vhost="/", user="u")
    expected = "ACCESS_REFUSED - access to queue 'aliveness-test' in vhost '/' refused for user 'u'"
    assert (kind, reason) == (NOT_AUTHORISED, expected)


@pytest.mark.parametrize(
    "command",
    [
        "ping", "version", "status", "environment", "cluster_status", "list_nodes", "list_hashes", "list_ciphers",
        "list_feature_flags", "list_unresponsive_queues", "memory_breakdown", "get_cluster_name",
    ],
)  # fmt: skip
def test_what_the_node_says_of_itself(rig: Rig, command: str) -> None:
    assert rig.ask(command) is not None


def test_a_node_is_what_it_measures(rig: Rig) -> None:
    (node,) = rig.ask("list_nodes")
    one = rig.ask("get_node", name="leveret@test", columns=["name", "uptime"])
    assert one == {"name": "leveret@test", "uptime": 0}
    assert (node["mem_used"], node["mem_limit"], node["disk_free"], node["disk_free_limit"]) == (1000, 2000, 10000, 100)
    assert (node["sockets_used"], node["uptime"], node["queue_created"]) == (2, 0, 4)
    assert node["fd_used"] > 3


def test_exchanges_know_who_declared_them(rig: Rig) -> None:
    rig.client.call(1, grammar.EXCHANGE_DECLARE, exchange="x", type="topic")
    users = {each["name"]: each["user_who_performed_action"] for each in rig.ask("list_exchanges")}
    assert (users["x"], users[""], users["amq.topic"]) == ("guest", "rmq-internal", "rmq-internal")
    rig.bench.broker.vhosts["/"].exchanges["x"].user = ""  # as after a restart
    assert rig.ask("get_exchange", vhost="/", name="x")["user_who_performed_action"] == "none"


def test_names_stay_in_order_whatever_comes_and_goes() -> None:
    rig = Rig()
    rng = random.Random(1)
    there: set[str] = set()
    for count in (200, 3, 100, 1, 5, 40, 70, 2):
        for _ in range(count):
            name = f"q{rng.randrange(400)}"
            if name in there:
                rig.client.call(1, grammar.QUEUE_DELETE, queue=name)
            else:
                rig.client.queue(name)
            there ^= {name}
        assert rig.names() == sorted(there)


def test_policies_are_said_of_what_they_are_about(rig: Rig) -> None:
    policy = {"vhost": "/", "name": "p", "pattern": "^x|^bravo$", "apply-to": "all", "priority": 1}
    rig.bench.broker.definitions.put("policy", {**policy, "definition": {"max-length": 9, "alternate-exchange": "a"}})
    rig.client.call(1, grammar.EXCHANGE_DECLARE, exchange="x", type="topic")
    queues = {each["name"]: each for each in rig.ask("list_queues")}
    assert (queues["bravo"]["policy"], queues["bravo"]["operator_policy"]) == ("p", None)
    assert queues["bravo"]["effective_policy_definition"]["max-length"] == 9
    assert (queues["delta"]["policy"], queues["delta"]["effective_policy_definition"]) == (None, {})
    assert rig.ask("get_exchange", vhost="/", name="x")["policy"] == "p"
    assert "policy" not in rig.ask("get_exchange", vhost="/", name="amq.topic")


def test_a_connection_says_what_tls_says(rig: Rig) -> None:
    assert rig.ask("list_connections")[0]["ssl_protocol"] is None
    assert rig.ask("get_connection", name="test:0 -> here:1")["ssl_protocol"] == ""  # as RabbitMQ
    rig.client.peer.security = Security("tlsv1.3", "any", "aes_256_gcm", "aead")
    (connection,) = rig.ask("list_connections")
    assert (connection["ssl"], connection["ssl_protocol"], connection["ssl_hash"]) == (True, "tlsv1.3", "aead")
    assert connection["peer_cert_subject"] is None
