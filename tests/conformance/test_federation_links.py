"""Federation links as operators see and control them: two brokers, the downstream one controlled by `leveret ctl`.

leveret only: `tests/interop/test_ctl.py` compares with rabbitmqctl, `http/test_federation.py` with RabbitMQ's HTTP API.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pika
import pika.exceptions
import pytest
from pika.adapters.blocking_connection import BlockingChannel

from leveret.testing.processes import LeveretProcess

from ..waiting import until
from .test_ctl import Ctl

EXCHANGE = "flights"
POLICY = "hq"
REPLY_TO = "amq.rabbitmq.reply-to"


class Pair:
    """Two brokers, of which the second has a link `ewr` to the first, and a queue for what the link transfers."""

    def __init__(self, upstream: LeveretProcess, downstream: LeveretProcess) -> None:
        self.upstream = upstream
        self.downstream = downstream
        self.ctl = Ctl(downstream.data_dir)
        self._connections: list[pika.BlockingConnection] = []

    def channel(self, broker: LeveretProcess) -> BlockingChannel:
        """Open a channel on a new connection that is closed with the pair."""
        connection = pika.BlockingConnection(pika.URLParameters(f"{broker.url}?heartbeat=0"))
        self._connections.append(connection)
        channel = connection.channel()
        channel.confirm_delivery()
        return channel

    def federate(self, name: str = "ewr", **settings: object) -> None:
        """Define an upstream, with the settings of RabbitMQ's guide."""
        uri = f"amqp://guest:guest@127.0.0.1:{self.upstream.port}"
        value = {"uri": uri, "reconnect-delay": 1, **settings}
        self.ctl("set_parameter", "federation-upstream", name, json.dumps(value))

    def begin(self) -> None:
        """Set up one link, and a queue bound to the federated exchange."""
        channel = self.channel(self.downstream)
        channel.exchange_declare(EXCHANGE, "topic", durable=True)
        channel.queue_declare("q", durable=True)
        channel.queue_bind("q", EXCHANGE, "#")
        self.federate()
        definition = json.dumps({"federation-upstream-set": "all"})
        self.ctl("set_policy", "--apply-to", "exchanges", POLICY, f"^{EXCHANGE}$", definition)
        self.until(status="running", unbound=0)

    def links(self, *options: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = json.loads(self.ctl("federation_status", "--json", *options))
        return found

    def until(self, upstream: str = "ewr", **values: object) -> dict[str, Any]:
        """Wait until a link's row has these values, and return the row."""

        def look() -> dict[str, Any] | None:
            rows = [row for row in self.links() if row["upstream"] == upstream]
            return next((row for row in rows if values.items() <= row.items()), None)

        return until(look)

    def publish(self, body: bytes, reply_to: str | None = None) -> None:
        """Publish to the upstream exchange."""
        channel = self.channel(self.upstream)
        if reply_to is not None:
            channel.basic_consume(REPLY_TO, lambda *_: None, auto_ack=True)
        channel.basic_publish(EXCHANGE, "ewr.1", body, pika.BasicProperties(delivery_mode=2, reply_to=reply_to))

    def arrived(self) -> bytes:
        """Wait for the next message of the queue."""
        channel = self.channel(self.downstream)

        def ask() -> bytes | None:
            body = channel.basic_get("q", auto_ack=True)[2]
            return body if isinstance(body, bytes) else None

        return until(ask)

    def close(self) -> None:
        """Close the connections; a broker may have closed them already, or be down."""
        for connection in self._connections:
            with contextlib.suppress(pika.exceptions.AMQPError):
                connection.close()


def pairs(directory: Path) -> Iterator[Pair]:
    with LeveretProcess(directory / "up") as upstream, LeveretProcess(directory / "down") as downstream:
        pair = Pair(upstream, downstream)
        pair.begin()
        yield pair
        pair.close()


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    """A pair for this test only."""
    yield from pairs(tmp_path)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    """A pair for tests that do not change it."""
    yield from pairs(tmp_path_factory.mktemp("shared"))


def test_how_a_link_stands(pair: Pair) -> None:
    pair.publish(b"one")
    assert pair.arrived() == b"one"
    row = pair.until(messages=1, unacknowledged=0)
    assert row["uri"] == f"amqp://127.0.0.1:{pair.upstream.port}"
    assert (row["exchange"], row["upstream_exchange"], row["vhost"], row["policy"]) == (EXCHANGE, EXCHANGE, "/", POLICY)
    assert (row["type"], row["error"], row["bindings"], row["max_hops"]) == ("exchange", "", 1, 1)
    names = pair.ctl("-s", "list_connections", "name", "user").splitlines()
    assert f"{row['local_connection']}\tnone" in names
    upstreams = Ctl(pair.upstream.data_dir)
    assert row["upstream_queue"] in upstreams("-s", "list_queues", "name").splitlines()
    properties = upstreams("-s", "list_connections", "client_properties")
    assert f'{{"connection_name","Federation link (upstream: ewr, policy: {POLICY})"}}' in properties
    numbers = pair.ctl("metrics").splitlines()
    labels = f'vhost="/",exchange="{EXCHANGE}",upstream="ewr",id="{row["id"]}"'
    assert f"leveret_federation_link_messages_total{{{labels}}} 1" in numbers
    assert f"leveret_federation_link_up{{{labels}}} 1" in numbers
    assert 'rabbitmq_federation_links{status="running"} 1' in numbers


def test_a_restart_is_a_connection_anew_and_loses_nothing(pair: Pair) -> None:
    before = pair.until(status="running")
    assert pair.ctl("restart_federation_link", before["id"]).startswith(f"Restarting federation link {before['id']} on")
    after = pair.until(status="running", reconnects=before["reconnects"] + 1, unbound=0)
    assert after["id"] == before["id"]
    assert after["local_connection"] != before["local_connection"]
    pair.publish(b"behind it")
    assert pair.arrived() == b"behind it"


def test_a_pause_outlasts_a_restart_of_the_broker(pair: Pair) -> None:
    id = pair.until()["id"]
    pair.ctl("pause_federation_link", id)
    pair.until(status="paused")
    assert [row["id"] for row in pair.links("--only-down")] == [id]
    pair.publish(b"meanwhile")
    assert Ctl(pair.upstream.data_dir)("-s", "list_connections", "name").count("\n") == 1  # the publisher's
    pair.downstream.stop()
    pair.downstream.start()
    pair.until(status="paused")
    upstreams = Ctl(pair.upstream.data_dir)
    queues = json.loads(upstreams("list_queues", "name", "messages", "consumers", "--json"))
    assert [(queue["messages"], queue["consumers"]) for queue in queues] == [(1, 0)]
    pair.ctl("resume_federation_link", id)
    assert pair.arrived() == b"meanwhile"
    pair.until(status="running")


def test_what_a_link_remembers_is_no_definition(pair: Pair) -> None:
    """A file that is imported into another broker, or into RabbitMQ, has upstreams and policies, but no pause."""
    pair.ctl("pause_federation_link", pair.until()["id"])
    exported = json.loads(pair.ctl("export_definitions", "-"))
    assert [each["component"] for each in exported["parameters"]] == ["federation-upstream"]
    assert exported["parameters"][0]["value"]["uri"] == f"amqp://guest:guest@127.0.0.1:{pair.upstream.port}"
    assert [each["name"] for each in exported["policies"]] == [POLICY]
    del exported["parameters"], exported["policies"]
    assert "paused" not in json.dumps(exported)
    assert "suffix" not in json.dumps(exported)
    assert pair.until()["id"] not in json.dumps(exported)


def test_a_link_whose_connection_is_closed_comes_back(pair: Pair) -> None:
    before = pair.until(status="running")
    pair.ctl("close_connection", before["local_connection"], "an operator wanted it")
    after = pair.until(status="running", reconnects=before["reconnects"] + 1, unbound=0)
    assert after["local_connection"] != before["local_connection"]
    lines = [line for line in pair.downstream.output.splitlines() if f"federation link {before['id']} " in line]
    assert any("an operator wanted it" in line for line in lines)
    Ctl(pair.upstream.data_dir)("close_all_connections", "and another one")
    pair.until(status="running", reconnects=after["reconnects"] + 1, unbound=0)
    assert "and another one" in pair.downstream.output
    pair.publish(b"x")
    assert pair.arrived() == b"x"


@pytest.mark.parametrize("verb", ["restart", "pause", "resume"])
def test_a_link_that_is_not_there(shared: Pair, verb: str) -> None:
    assert shared.ctl.refused(69, f"{verb}_federation_link", "12345678") == (
        "Error:\nLink with the given ID was not found\n"
    )


def test_what_cannot_be_federated_is_told_and_is_not_down(pair: Pair) -> None:
    pair.channel(pair.downstream).exchange_declare("inner", "fanout", internal=True)
    pair.ctl("set_policy", "--apply-to", "exchanges", "all", "^(inner)?$", '{"federation-upstream": "ewr"}')

    def refused() -> dict[str, str]:
        return {row["exchange"]: row["error"] for row in pair.links() if row["status"] == "not_federated"}

    errors = until(lambda: found if len(found := refused()) == 2 else None)
    assert set(errors) == {"", "inner"}
    assert "default exchange" in errors[""]
    assert "internal exchange" in errors["inner"]
    assert pair.links("--only-down") == []


@pytest.mark.parametrize(("settings", "words"), [
    ({"uri": "amqp://guest:sesame@127.0.0.1:1"}, "refused"),
    ({"uri": "amqp://guest:sesame@nowhere.invalid"}, "nowhere.invalid"),
    ({"uri": []}, "URI"),
    ({"uri": "amqp://guest:sesame@127.0.0.1:{port}"}, "ACCESS_REFUSED"),
    ({"uri": "amqp://guest:guest@127.0.0.1:{port}/nowhere"}, "nowhere"),
    ({"message-ttl": -1}, "x-message-ttl"),
    ({"expires": 0}, "x-expires"),
    ({"exchange": "x" * 300}, "255"),
], ids=str)  # fmt: skip
def test_what_cannot_work_says_why(shared: Pair, settings: dict[str, Any], words: str) -> None:
    """leveret accepts such upstreams as RabbitMQ does; then the link has to report the error."""
    if isinstance(settings.get("uri"), str):
        settings = {"uri": settings["uri"].format(port=shared.upstream.port)}
    shared.federate("other", **{"exchange": "elsewhere"} | settings)
    until(lambda: any(words in row["error"] for row in shared.links("--only-down") if row["upstream"] == "other"))
    shared.until(status="running")  # a wrong upstream does not affect the others
    assert "Traceback" not in shared.downstream.output
    assert "sesame" not in shared.downstream.output
    assert "sesame" not in json.dumps(shared.links())
    shared.ctl("clear_parameter", "federation-upstream", "other")
    until(lambda: [row["upstream"] for row in shared.links()] == ["ewr"])


@pytest.mark.parametrize("settings", [
    {"prefetch-count": -1}, {"prefetch-count": 1 << 40}, {"max-hops": 1.5}, {"reconnect-delay": -1},
    {"max-hops": 1 << 40}, {"message-ttl": 60_000.7}, {"expires": 3_600_000.2},
], ids=str)  # fmt: skip
def test_odd_numbers_work_as_well_as_they_can(shared: Pair, settings: dict[str, Any]) -> None:
    shared.federate("ewr", **settings)
    shared.until(status="running", unbound=0)
    shared.publish(b"x")
    assert shared.arrived() == b"x"
    assert "Traceback" not in shared.downstream.output
    shared.federate("ewr")


def test_the_log_of_a_life(pair: Pair) -> None:
    """The log says when the link runs, when and why it does not, and that it runs again, once each."""
    id = pair.until(status="running")["id"]
    pair.close()
    pair.upstream.kill()
    pair.until(status="error")
    pair.upstream.start()
    pair.until(status="running", unbound=0)
    pair.publish(b"again")
    assert pair.arrived() == b"again"
    lines = [line.partition(f"federation link {id} ")[2] for line in pair.downstream.output.splitlines()]
    said = [line.partition("): ")[2] for line in lines if line]
    assert said[0] == said[-1] == "running"
    assert any("connection lost" in line or "closed the connection" in line for line in said[1:-1])
    assert len(said) == len(set(said)) + 1  # only "running" is logged twice
    assert f"(exchange '{EXCHANGE}' in vhost '/', upstream 'ewr')" in pair.downstream.output
    assert "guest:guest" not in pair.downstream.output


def test_a_dead_reply_to_name_is_told_once_for_each_link(pair: Pair) -> None:
    for body in (b"1", b"2"):
        pair.publish(body, REPLY_TO)
        assert pair.arrived() == body
    row = pair.until()
    pair.ctl("restart_federation_link", row["id"])
    pair.until(status="running", reconnects=row["reconnects"] + 1, unbound=0)
    pair.publish(b"3", REPLY_TO)
    assert pair.arrived() == b"3"
    pair.publish(b"4")
    assert pair.arrived() == b"4"
    told = [line for line in pair.downstream.output.splitlines() if REPLY_TO in line]
    assert len(told) == 1
    assert row["id"] in told[0]


def test_what_crosses_comes_into_a_stream_once(pair: Pair) -> None:
    """The link uses one connection, so the messages keep the order in which they were published."""
    channel = pair.channel(pair.downstream)
    channel.queue_declare("history", durable=True, arguments={"x-queue-type": "stream"})
    channel.queue_bind("history", EXCHANGE, "#")
    pair.until(status="running", unbound=0)
    publisher = pair.channel(pair.upstream)
    for number in range(50):
        publisher.basic_publish(EXCHANGE, "ewr.1", b"%d" % number, pika.BasicProperties(delivery_mode=2))
    channel.basic_qos(prefetch_count=10)
    arguments = {"x-stream-offset": "first"}
    found: list[tuple[int, bytes]] = []
    for method, properties, body in channel.consume("history", arguments=arguments):
        found.append((properties.headers["x-stream-offset"], body))
        assert "x-received-from" in properties.headers
        channel.basic_ack(method.delivery_tag)
        if len(found) == 50:
            break
    assert found == [(number, b"%d" % number) for number in range(50)]
    assert channel.queue_declare("history", passive=True).method.message_count == 50
