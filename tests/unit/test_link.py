"""The life of a link: cuts, crashes, changed parameters, upstreams that misbehave, and its log."""

from __future__ import annotations

import logging

import pytest

from leveret.broker.exchange_types.table import KINDS
from leveret.federation.names import UPSTREAM_KIND
from leveret.federation.status import ERROR, RUNNING
from leveret.federation.upstream import places, without_credentials
from leveret.wire import grammar
from leveret.wire.table import Value

from .links import Node, Reader, World, methods_of

QUEUE = "federation: x -> down"


def linked(own_version: str = "1", **values: Value) -> tuple[World, Node, Node, Reader]:
    world = World()
    up, down = world.node("up", own_version), world.node("down")
    down.exchange("x")
    reader = down.bind("x", "#")
    down.federate("x", "up", **values)
    world.until(down.is_running)
    return world, up, down, reader


def test_what_is_published_while_the_line_is_down_comes_later() -> None:
    world, up, down, reader = linked()
    up.cut()
    assert down.status().status == ERROR
    assert "connection reset" in down.status().error
    for number in range(10):
        up.publish("x", "k", b"%d" % number)
    world.pass_time(60)
    up.mend()
    world.until(down.is_running)
    world.until(lambda: reader.take() == [b"%d" % number for number in range(10)])
    assert down.status().reconnects == 1


@pytest.mark.parametrize("who", ["up", "down", "both"])
def test_every_message_comes_once_whenever_a_broker_crashes(who: str) -> None:
    for step in range(1, 40, 2):
        world, up, down, _ = linked()
        for number in range(5):
            up.publish("x", "k", b"%d" % number)
        for _ in range(step):
            world.step()
        for name in ("up", "down"):
            if who in (name, "both"):
                world.nodes[name].revive()
        up, down = world.nodes["up"], world.nodes["down"]
        world.until(down.is_running)
        for number in range(5, 10):
            up.publish("x", "k", b"%d" % number)
        world.pass_time(10)
        assert Reader(down, "q", "/").take() == [b"%d" % number for number in range(10)]


@pytest.mark.parametrize("own_version", ["1", ""])
def test_other_arguments_for_the_upstream_queue_lose_nothing(own_version: str) -> None:
    """leveret changes them in place; on other brokers the queue is drained, deleted and declared again."""
    world, up, down, reader = linked(own_version)
    sent = [b"%d" % number for number in range(30)]
    for gate in down.gates:
        gate.user.held(True)  # messages stay in the upstream queue
    for body in sent[:10]:
        up.publish("x", "k", body)
    world.pass_time(1)
    down.upstream("up", "amqp://up", message_ttl=60000, expires=600000)
    for body in sent[10:]:
        up.publish("x", "k", body)
        world.step()
    world.until(lambda: "x-message-ttl" in up.broker.vhosts["/"].queues[QUEUE].arguments)
    world.until(down.is_running)
    up.publish("x", "k", b"last")
    world.until(lambda: reader.take() == [*sent, b"last"])
    world.pass_time(10)
    assert down.status().reconnects == 1
    assert len(up.names()) == 2
    assert up.keys("x") == ["#"]
    assert reader.take() == [*sent, b"last"]


@pytest.mark.parametrize("channels", ["multiple", "single"])
def test_the_queue_is_replaced_while_messages_come_all_the_time(channels: str) -> None:
    for pause in range(1, 25):
        world, up, down, reader = linked("", channel_use_mode=channels)
        down.upstream("up", "amqp://up", message_ttl=60000, channel_use_mode=channels)
        sent: list[bytes] = []

        def is_renewed(up: Node = up) -> bool:
            return "x-message-ttl" in up.broker.vhosts["/"].queues[QUEUE].arguments

        for number in range(400):
            for _ in range(pause):
                world.step()
            sent.append(b"%d" % number)
            up.publish("x", "k", sent[-1])
            if is_renewed():
                break
        world.until(is_renewed)
        world.until(down.is_running)
        world.pass_time(10)
        assert sorted(reader.take()) == sorted(sent)


def test_an_upstream_without_our_exchange_type_gets_a_fanout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(KINDS, UPSTREAM_KIND)
    world, up, down, reader = linked()
    internal = up.broker.vhosts["/"].exchanges[f"{QUEUE} A"]
    assert (internal.kind, internal.internal, internal.arguments) == (
        "fanout", True, {"x-internal-purpose": "federation"},
    )  # fmt: skip
    up.publish("x", "k")
    world.until(lambda: reader.take() == [b"x"])
    dialled = len(down.dialled)
    up.cut()
    up.mend()
    world.until(down.is_running)
    assert len(down.dialled) == dialled + 1  # it already knows


def test_what_the_own_broker_refuses_is_tried_again() -> None:
    world = World()
    up, down = world.node("up"), world.node("down")
    down.exchange("x")
    client = down.client()
    arguments = {"x-max-length": 1, "x-overflow": "reject-publish"}
    client.queue("q", durable=True, arguments=arguments)
    client.call(1, grammar.QUEUE_BIND, queue="q", exchange="x", routing_key="#")
    down.federate("x", "up")
    world.until(down.is_running)
    for number in range(3):
        up.publish("x", "k", b"%d" % number)
    world.pass_time(20)
    assert down.status().unacknowledged > 0
    reader = Reader(down, "q", "/")
    world.until(lambda: sorted(reader.take()) == [b"0", b"1", b"2"])
    world.until(lambda: down.status().unacknowledged == 0)


def test_a_broker_that_is_behind_does_not_listen_and_says_that_it_lives() -> None:
    world, up, down, reader = linked()
    (gate,) = down.gates
    gate.user.held(True)
    up.publish("x", "k")
    world.pass_time(300)
    assert down.is_running()
    assert reader.take() == []
    assert down.status().reconnects == 0
    gate.user.held(False)
    world.until(lambda: reader.take() == [b"x"])


def test_a_silent_upstream_is_given_up() -> None:
    world, up, down, _ = linked()
    (wire,) = up.wires
    up.wires.remove(wire)  # nothing comes any more, without an error
    world.until(lambda: down.status().status == ERROR)
    assert "heartbeats" in down.status().error


def test_an_upstream_that_never_answers_is_given_up() -> None:
    world = World()
    up, down = world.node("up"), world.node("down")
    up.is_mute = True
    down.exchange("x")
    down.federate("x", "up")
    world.until(lambda: down.federator.statuses() != [] and down.status().status == ERROR)
    assert "did not answer" in down.status().error


def test_an_upstream_that_does_not_speak_amqp() -> None:
    world = World()
    up, down = world.node("up"), world.node("down")
    up.greeting = b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n"
    down.exchange("x")
    down.federate("x", "up")
    world.until(lambda: down.federator.statuses() != [] and down.status().status == ERROR)
    assert "AMQP" in down.status().error or "frame" in down.status().error
    world.pass_time(60)
    up.greeting = b""
    world.until(down.is_running)


def test_an_operator_who_closes_its_connection_here_makes_it_connect_anew() -> None:
    world, up, down, reader = linked()
    (gate,) = down.gates
    down.gates.remove(gate)
    gate.peer.lost(world.now_us)
    gate.user.shut("CONNECTION_FORCED - closed by an operator")
    assert "closed by an operator" in down.status().error
    world.until(down.is_running)
    up.publish("x", "k")
    world.until(lambda: reader.take() == [b"x"])


def test_an_operator_who_closes_its_connection_there_makes_it_connect_anew() -> None:
    world, up, down, reader = linked()
    (wire,) = up.wires
    assert wire.peer is not None
    wire.peer.close(320, "closed by an operator")
    world.until(lambda: down.status().status == ERROR)
    assert "closed by an operator" in down.status().error
    world.until(down.is_running)
    up.publish("x", "k")
    world.until(lambda: reader.take() == [b"x"])


def test_waits_grow_up_to_the_reconnect_delay_and_differ() -> None:
    world = World()
    down = world.node("down")
    down.exchange("x")
    down.federate("x", "nowhere", reconnect_delay=20)
    world.pass_time(2)
    assert len(down.dialled) >= 4  # at once, after about 0.1 s, 0.2 s, 0.4 s ...
    world.pass_time(600)
    began_us, before = world.now_us, len(down.dialled)
    world.pass_time(3600)
    waits = (world.now_us - began_us) / 1_000_000 / (len(down.dialled) - before)
    assert 10 < waits < 20
    assert len({wire.began_us % 1_000_000 for wire in down.dialled[-20:]}) > 10


def test_the_log_says_what_changed_once_and_no_password(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "leveret.federation")
    world = World()
    up, down = world.node("up"), world.node("down")
    down.exchange("x")
    down.upstream("up", "amqp://guest:guest@up")
    down.policy("^x$", {"federation-upstream": "up"})
    world.until(down.is_running)

    def said() -> list[str]:
        return [record.message.partition("): ")[2] for record in caplog.records]

    assert said() == ["running"]
    up.cut()
    world.pass_time(600)
    assert len(said()) == 3  # how it broke, and that it can't connect
    up.mend()
    world.until(down.is_running)
    assert said()[-1] == "running"
    assert down.federator.pause(down.status().id)
    assert said()[-1] == "paused"
    assert down.federator.resume(down.status().id)
    world.until(down.is_running)
    assert said()[-1] == "running"
    count = len(said())
    for _ in range(50):
        up.cut()
        up.mend()
        world.until(down.is_running)
        world.pass_time(0.2)
    assert len(said()) <= count + 2
    assert said()[-1] == "running"
    down.no_policy()
    world.until(lambda: said()[-1] == "removed")
    where = "federation link 8dde8b63 (exchange 'x' in vhost '/', upstream 'up'): "
    assert all(record.message.startswith(where) for record in caplog.records)
    assert "guest" not in caplog.text


def test_a_link_that_goes_while_its_upstream_is_away_looks_for_it_a_few_times() -> None:
    world, up, down, _ = linked()
    up.cut()
    down.no_policy()
    world.pass_time(0.2)
    up.mend()
    world.until(lambda: up.names() == [])
    world, up, down, _ = linked()
    up.cut()
    down.no_policy()
    world.pass_time(60)
    dialled = len(down.dialled)
    assert dialled <= 6
    world.pass_time(600)
    assert len(down.dialled) == dialled
    up.mend()
    down.policy("^x$", {"federation-upstream": "up"})
    world.until(down.is_running)


def test_bindings_that_change_while_a_link_goes_are_of_no_interest() -> None:
    world, up, down, _ = linked()
    client = down.client()
    client.queue("other")
    client.send(1, grammar.QUEUE_BIND, queue="other", exchange="x", routing_key="before")
    down.no_policy()
    for number in range(20):
        world.step()
        client.send(1, grammar.QUEUE_BIND, queue="other", exchange="x", routing_key=f"k{number}")
    world.until(lambda: up.names() == [] and not up.wires)


def test_a_paused_link_that_goes_cleans_up() -> None:
    world, up, down, _ = linked()
    id = down.status().id
    assert down.federator.pause(id)
    world.pass_time(1)
    down.no_policy()
    world.until(lambda: up.names() == [] and down.federator.statuses() == [])
    down.policy("^x$", {"federation-upstream": "up"})
    world.until(down.is_running)  # a new link, which is not paused


def test_a_direct_reply_to_name_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    world, up, _down, reader = linked()
    for _ in range(3):
        up.publish("x", "k", reply_to="amq.rabbitmq.reply-to.g1h2AA==")
    world.until(lambda: len(reader.take()) == 3)
    up.cut()
    up.mend()
    up.publish("x", "k", reply_to="amq.rabbitmq.reply-to.g1h2AA==")
    world.until(lambda: len(reader.take()) == 4)
    assert len([record for record in caplog.records if "does not work across federation links" in record.message]) == 1


def test_the_connection_has_the_name_that_rabbitmq_gives_it() -> None:
    _, up, down, _ = linked()
    (wire,) = up.wires
    (start,) = (each for each in methods_of(wire.sent) if each.spec is grammar.CONNECTION_START_OK)
    assert start.table("client_properties")["connection_name"] == "Federation link (upstream: up, policy: fed)"
    assert down.status().connection == down.gates[0].peer.number


def test_the_line_ends_with_a_close() -> None:
    world, up, down, _ = linked()
    (wire,) = up.wires
    down.federator.stop()
    assert methods_of(wire.sent)[-1].name == "connection.close"
    world.pass_time(1)


@pytest.mark.parametrize(
    ("uri", "shown"),
    [
        ("amqp://host", "amqp://host"),
        ("amqp://u:p@host:1/v%2Fw?heartbeat=5", "amqp://host:1/v%2Fw?heartbeat=5"),
        ("amqps://u:p@host?password=secret&verify=verify_none", "amqps://host?verify=verify_none"),
        ("amqps://u@host?verify=verify_none&password=secret", "amqps://host?verify=verify_none"),
        ("amqps://host?password=secret", "amqps://host"),
        ("amqp://u:p@ss@host", "amqp://host"),
        ("amqp://u:p/ss@host", "amqp://host"),
        ("nonsense", "nonsense"),
    ],
)
def test_a_uri_is_shown_without_credentials(uri: str, shown: str) -> None:
    assert without_credentials(uri) == shown


def test_a_uri_without_vhost_leads_to_the_vhost_of_the_federated_exchange() -> None:
    found, trouble = places(("amqp://a", "amqp://b/", "amqp://c/w", "amqp://d/%2F", "bad://e"), "v")
    assert [place.address.vhost for place in found] == ["v", "v", "w", "/"]
    assert trouble.startswith("bad://e: ")


def test_statuses_say_since_when() -> None:
    world, up, down, _ = linked()
    since_us = down.status().since_us
    world.pass_time(100)
    assert (down.status().since_us, down.status().status) == (since_us, RUNNING)
    up.cut()
    assert down.status().since_us == world.now_us
    world.pass_time(100)
    assert down.status().since_us < world.now_us - 90_000_000  # the retries do not change it
