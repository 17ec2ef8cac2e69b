"""Which links result from policies and parameters, and what crosses them: the scenarios of RabbitMQ's suites.

(exchange_SUITE of its federation plugin, rewritten; LavinMQ's upstream_spec.)
"""

from __future__ import annotations

import pytest

from leveret.federation.status import ERROR, PAUSED, REFUSED, RUNNING
from leveret.wire import grammar
from leveret.wire.table import Value

from .links import Node, Reader, World


def pair(**settings: Value) -> tuple[World, Node, Node, Reader]:
    """Federate x at down with x at up, and bind a queue to it for all messages."""
    world = World()
    up, down = world.node("up"), world.node("down")
    down.exchange("x")
    reader = down.bind("x", "#")
    down.federate("x", "up", **settings)
    world.until(down.is_running)
    return world, up, down, reader


def run_all(world: World) -> None:
    world.until(lambda: all(node.is_running() for node in world.nodes.values() if node.federator.statuses()))


def federate_all(node: Node, *upstreams: str, **settings: Value) -> None:
    for upstream in upstreams:
        node.upstream(upstream, f"amqp://{upstream}", **settings)
    node.policy("^x$", {"federation-upstream-set": "all"})


def test_only_messages_with_a_binding_cross() -> None:
    world = World()
    up, down = world.node("up"), world.node("down")
    down.exchange("x")
    reader = down.bind("x", "a.*")
    down.federate("x", "up")
    world.until(down.is_running)
    up.publish("x", "b.b", b"no")
    up.publish("x", "a.b", b"yes")
    world.until(lambda: reader.take() == [b"yes"])
    assert up.keys("x") == ["a.*"]
    world.pass_time(6)
    status = down.status()
    assert (status.messages, status.lag, status.unacknowledged, status.bindings, status.unbound) == (1, 0, 0, 1, 0)
    assert (status.upstream_exchange, status.upstream_queue) == ("x", "federation: x -> down")
    assert (status.uri, status.policy, status.max_hops, status.error) == ("amqp://up", "fed", 1, "")


def test_what_is_published_here_does_not_go_upstream() -> None:
    world, up, down, reader = pair()
    theirs = up.bind("x", "#")
    down.publish("x", "k")
    world.until(lambda: len(reader.take()) == 1)
    world.pass_time(10)
    assert theirs.take() == []


def test_the_upstream_exchange_is_declared_like_the_federated_one() -> None:
    world = World()
    up, down = world.node("up"), world.node("down")
    down.exchange("x", "headers", arguments={"alternate-exchange": "other"})
    down.federate("x", "up")
    world.until(down.is_running)
    there = up.broker.vhosts["/"].exchanges["x"]
    assert (there.kind, there.durable, there.auto_delete, there.internal) == ("headers", True, False, False)
    assert there.arguments == {"alternate-exchange": "other"}


def test_what_a_link_declares_is_what_a_link_of_rabbitmq_declares() -> None:
    _world, up, _, _ = pair(expires=60000, message_ttl=30000, max_hops=3)
    host = up.broker.vhosts["/"]
    queue = host.queues["federation: x -> down"]
    expected = {"x-internal-purpose": "federation", "x-expires": 60000, "x-message-ttl": 30000}
    assert {key: value for key, value in queue.arguments.items() if key != "x-leveret-positions"} == expected
    assert (queue.is_journalled, queue.auto_delete, queue.owner) == (True, False, None)
    internal = host.exchanges["federation: x -> down A"]
    assert (internal.kind, internal.durable, internal.auto_delete, internal.internal) == (
        "x-federation-upstream", True, True, True,
    )  # fmt: skip
    assert internal.arguments == {
        "x-max-hops": 3, "x-downstream-name": "down", "x-downstream-vhost": "/", "x-internal-purpose": "federation",
    }  # fmt: skip
    assert [(binding.key, binding.destination) for binding in internal.every()] == [("", queue)]


def test_several_upstreams_and_a_pattern() -> None:
    world = World()
    for name in ("a1", "a2", "b1"):
        world.node(name)
    down = world.node("down")
    down.exchange("x")
    reader = down.bind("x", "#")
    for name in ("a1", "a2", "b1"):
        down.upstream(name, f"amqp://{name}")
    down.policy("^x$", {"federation-upstream-pattern": "^a"})
    world.until(down.is_running)
    assert [each.upstream for each in down.federator.statuses()] == ["a1", "a2"]
    down.policy("^x$", {"federation-upstream": "b1"})
    world.until(lambda: down.is_running() and [each.upstream for each in down.federator.statuses()] == ["b1"])
    world.until(lambda: world.nodes["a1"].names() == world.nodes["a2"].names() == [])
    down.policy("^x$", {"federation-upstream-set": "all"})
    world.until(lambda: down.is_running() and len(down.federator.statuses()) == 3)
    for name in ("a1", "a2", "b1"):
        world.nodes[name].publish("x", "k", name.encode())
    world.until(lambda: sorted(reader.take()) == [b"a1", b"a2", b"b1"])


def test_a_set_says_otherwise_and_may_name_what_is_not_there_yet() -> None:
    world = World()
    up, late, down = world.node("up"), world.node("late"), world.node("down")
    down.exchange("x")
    down.upstream("up", "amqp://up")
    members: list[Value] = [
        {"upstream": "up", "exchange": "y", "max-hops": 4},
        {"upstream": "up", "exchange": "z"},
        {"upstream": "late"},
    ]
    down.parameter("federation-upstream-set", "mine", members)
    down.policy("^x$", {"federation-upstream-set": "mine"})
    world.until(down.is_running)
    found = [(each.upstream_exchange, each.max_hops) for each in down.federator.statuses()]
    assert found == [("y", 4), ("z", 1)]
    assert len({each.id for each in down.federator.statuses()}) == 2
    assert up.names() == sorted(f"federation: {name} -> down:x{end}" for name in "yz" for end in ("", " A"))
    down.upstream("late", "amqp://late")
    world.until(lambda: down.is_running() and len(down.federator.statuses()) == 3)
    assert "x" in late.broker.vhosts["/"].exchanges
    down.clear("mine", "federation-upstream-set")
    world.until(lambda: down.federator.statuses() == [] and up.names() == [] and late.names() == [])
    assert {"y", "z"} <= set(up.broker.vhosts["/"].exchanges)


def test_an_exchange_declared_later_is_federated_at_once() -> None:
    world = World()
    world.node("up")
    down = world.node("down")
    down.federate("x", "up")
    world.pass_time(1)
    assert down.federator.statuses() == []
    down.exchange("x")
    world.until(down.is_running)


def test_an_exchange_that_is_deleted_and_declared_anew() -> None:
    world, up, down, _ = pair()
    client = down.client()
    client.call(1, grammar.EXCHANGE_DELETE, exchange="x")
    client.call(1, grammar.EXCHANGE_DECLARE, exchange="x", type="direct", durable=True)
    client.queue("other", durable=True)
    client.call(1, grammar.QUEUE_BIND, queue="other", exchange="x", routing_key="new")
    world.until(lambda: down.is_running() and up.keys("x") == ["new"])
    client.call(1, grammar.EXCHANGE_DELETE, exchange="x")
    world.until(lambda: down.federator.statuses() == [] and up.names() == [])
    assert "x" in up.broker.vhosts["/"].exchanges


def test_predeclared_exchanges_are_federated_internal_ones_and_the_default_one_are_not() -> None:
    world = World()
    world.node("up")
    down = world.node("down")
    down.exchange("inside", internal=True)
    down.upstream("up", "amqp://up")
    down.policy(".*", {"federation-upstream": "up"})
    names = ["amq.direct", "amq.fanout", "amq.headers", "amq.match", "amq.topic"]
    world.until(lambda: [s.exchange for s in down.federator.statuses() if s.status == RUNNING] == names)
    refused = {each.exchange: each for each in down.federator.statuses() if each.status == REFUSED}
    assert sorted(refused) == ["", "amq.rabbitmq.trace", "inside"]
    assert "internal" in refused["inside"].error
    assert "default exchange" in refused[""].error
    assert all(each.id == "" for each in refused.values())
    assert not down.federator.restart("")


@pytest.mark.parametrize("end", ["policy", "upstream", "exchange", "vhost"])
def test_what_ends_a_link_deletes_its_queue_and_leaves_the_upstream_exchange(end: str) -> None:
    world = World()
    up, down = world.node("up"), world.node("down")
    for node in (up, down):
        node.vhost("v")
    down.exchange("x", vhost="v")
    down.upstream("up", "amqp://up", "v")
    down.policy("^x$", {"federation-upstream": "up"}, "v")
    world.until(down.is_running)
    assert up.names("v") == ["federation: x -> down", "federation: x -> down A"]
    if end == "policy":
        down.no_policy("v")
    elif end == "upstream":
        down.clear("up", vhost="v")
    elif end == "exchange":
        down.client("v").call(1, grammar.EXCHANGE_DELETE, exchange="x")
    else:
        for gate in list(down.gates):  # as a server does before it deletes a virtual host
            gate.peer.lost(world.now_us)
            down.gates.remove(gate)
            gate.user.shut("CONNECTION_FORCED - vhost 'v' is deleted")
        down.broker.delete_vhost("v")
    world.until(lambda: up.names("v") == [] and down.federator.statuses() == [])
    assert "x" in up.broker.vhosts["v"].exchanges
    assert not down.gates
    world.pass_time(1)
    assert not up.wires


def test_never_keeps_the_queue_when_a_link_goes() -> None:
    world, up, down, _ = pair(resource_cleanup_mode="never")
    down.no_policy()
    world.until(lambda: down.federator.statuses() == [])
    world.pass_time(60)
    assert up.names() == ["federation: x -> down", "federation: x -> down A"]


def test_a_stop_of_the_broker_keeps_the_queue() -> None:
    world, up, down, _ = pair()
    down.federator.stop()
    world.pass_time(60)
    assert up.names() == ["federation: x -> down", "federation: x -> down A"]
    assert not up.wires
    assert not down.gates


def test_only_links_whose_settings_changed_start_anew() -> None:
    world = World()
    world.node("one")
    world.node("two")
    down = world.node("down")
    down.exchange("x")
    federate_all(down, "one", "two")
    world.until(down.is_running)
    dialled = len(down.dialled)
    down.upstream("one", "amqp://one", prefetch_count=10)
    world.pass_time(5)
    assert [wire.node for wire in down.dialled[dialled:]] == [world.nodes["one"]]
    assert down.is_running()
    down.upstream("unused", "amqp://two", "/")
    down.clear("unused")
    world.pass_time(5)
    assert len(down.dialled) == dialled + 1


def test_clearing_one_upstream_leaves_another_exchange_of_the_same_name_alone() -> None:
    world = World()
    up, down = world.node("up"), world.node("down")
    for vhost in ("one", "two"):
        up.vhost(vhost)
        down.vhost(vhost)
        down.exchange("x", vhost=vhost)
        down.upstream("up", "amqp://up", vhost)
        down.policy("^x$", {"federation-upstream": "up"}, vhost)
    reader = down.bind("x", "#", vhost="two")
    world.until(down.is_running)
    down.clear("up", vhost="one")
    world.until(lambda: up.names("one") == [])
    up.publish("x", "k", b"still", vhost="two")
    world.until(lambda: reader.take() == [b"still"])


def test_another_vhost_or_another_name_on_the_upstream() -> None:
    world = World()
    up, down = world.node("up"), world.node("down")
    up.vhost("there")
    down.exchange("x")
    reader = down.bind("x", "#")
    down.upstream("up", "amqp://up/there", exchange="y")
    down.policy("^x$", {"federation-upstream": "up"})
    world.until(down.is_running)
    assert up.names("there") == ["federation: y -> down:/:x", "federation: y -> down:/:x A"]
    up.publish("y", "k", vhost="there")
    world.until(lambda: reader.take() == [b"x"])


def test_another_cluster_name_is_another_queue() -> None:
    world, up, down, reader = pair()
    down.rename("hq")
    world.until(lambda: up.names() == ["federation: x -> hq", "federation: x -> hq A"] and down.is_running())
    up.publish("x", "k")
    world.until(lambda: reader.take() == [b"x"])


def test_two_exchanges_that_federate_each_other_do_not_loop() -> None:
    world = World()
    one, two = world.node("one"), world.node("two")
    readers = []
    for node, other in ((one, two), (two, one)):
        node.exchange("x")
        readers.append(node.bind("x", "#"))
        federate_all(node, other.name, max_hops=10)
    run_all(world)
    world.pass_time(6)
    one.publish("x", "k", b"1")
    two.publish("x", "k", b"2")
    world.pass_time(6)
    assert [sorted(reader.take()) for reader in readers] == [[b"1", b"2"], [b"1", b"2"]]


@pytest.mark.parametrize(("hops", "reach"), [(1, 2), (2, 3), (3, 4), (9, 4)])
def test_a_ring_and_how_far_messages_come_in_it(hops: int, reach: int) -> None:
    world = World()
    names = ["n1", "n2", "n3", "n4"]
    readers: list[Reader] = []
    for name in names:
        node = world.node(name)
        node.exchange("x")
        readers.append(node.bind("x", "#"))
    for name, before in zip(names, [names[-1], *names], strict=False):
        federate_all(world.nodes[name], before, max_hops=hops)
    run_all(world)
    world.pass_time(6)
    world.nodes["n1"].publish("x", "k")
    world.pass_time(6)
    assert [reader.take() for reader in readers] == [[b"x"]] * reach + [[]] * (4 - reach)


def test_a_chain_of_vhosts_of_one_broker() -> None:
    world = World()
    node = world.node("one")
    readers = []
    for vhost in ("a", "b", "c"):
        node.vhost(vhost)
        node.exchange("x", vhost=vhost)
        readers.append(node.bind("x", "#", vhost=vhost))
    for vhost, before in (("b", "a"), ("c", "b")):
        node.upstream("up", f"amqp://one/{before}", vhost, max_hops=10)
        node.policy("^x$", {"federation-upstream": "up"}, vhost)
    world.until(node.is_running)
    world.pass_time(1)
    node.publish("x", "k", vhost="a")
    world.pass_time(6)
    assert [reader.take() for reader in readers] == [[b"x"], [b"x"], [b"x"]]


def test_who_published_is_told_only_if_trusted() -> None:
    for is_trusted in (False, True):
        world, up, _, reader = pair(trust_user_id=is_trusted)
        up.publish("x", "k", user_id="guest", app_id="mine")
        world.until(lambda reader=reader: reader.take() == [b"x"])  # type: ignore[misc]
        (properties,) = reader.properties
        assert properties.user_id == ("guest" if is_trusted else None)
        assert properties.app_id == "mine"
        assert properties.headers == {
            "x-received-from": [
                {"uri": "amqp://up", "exchange": "x", "redelivered": False, "cluster-name": "up", "vhost": "/"}
            ]
        }


@pytest.mark.parametrize("mode", ["on-confirm", "on-publish", "no-ack"])
@pytest.mark.parametrize("channels", ["multiple", "single"])
def test_every_mode(mode: str, channels: str) -> None:
    world, up, down, reader = pair(ack_mode=mode, channel_use_mode=channels, bind_nowait=channels == "single")
    world.pass_time(1)
    for number in range(20):
        up.publish("x", "k", b"%d" % number)
    world.until(lambda: len(reader.take()) == 20)
    assert reader.bodies == [b"%d" % number for number in range(20)]
    world.until(lambda: down.status().lag == 0 and down.status().unacknowledged == 0)
    (wire,) = up.wires
    assert wire.peer is not None
    assert len(wire.peer.channels) == (1 if channels == "single" else 2)
    (queue,) = [queue for queue in up.broker.vhosts["/"].queues.values() if queue.name.startswith("federation: ")]
    (consumer,) = queue.consumers.all()
    assert consumer.no_ack == (mode == "no-ack")


def test_a_pause_outlasts_the_broker_and_loses_nothing() -> None:
    world, up, down, reader = pair()
    id = down.status().id
    assert down.federator.pause(id)
    assert down.status().status == PAUSED
    up.publish("x", "k", b"1")
    world.pass_time(60)
    assert reader.take() == []
    assert not up.wires
    down.federator.stop()
    again = down.revive()
    world.pass_time(60)
    assert again.status().status == PAUSED
    assert not up.wires
    assert again.federator.resume(id)
    world.until(again.is_running)
    world.until(lambda: Reader(again, "q", "/").take() == [b"1"])
    assert not again.federator.pause("no such")


def test_restart_connects_anew_and_keeps_the_queue() -> None:
    world, up, down, reader = pair()
    queue = up.broker.vhosts["/"].queues["federation: x -> down"]
    assert down.federator.restart(down.status().id)
    up.publish("x", "k")
    world.until(down.is_running)
    world.until(lambda: reader.take() == [b"x"])
    assert down.status().reconnects == 1
    assert up.broker.vhosts["/"].queues["federation: x -> down"] is queue
    assert not down.federator.restart("no such")


@pytest.mark.parametrize(
    ("uri", "settings", "says"),
    [
        ([], {}, "no URI"),
        ("amqp://up/no such vhost", {}, "vhost"),
        ("amqp://guest:verysecret@up", {}, "Login was refused"),
        ("amqp://nowhere", {}, "connection refused"),
        ("amqp://up", {"exchange": "e" * 300}, "octets"),
        ("amqp://up", {"exchange": "e" * 240}, "octets"),
        ("amqp://up", {"expires": 0}, "x-expires"),
        ("amqp://up", {"message-ttl": -5}, "x-message-ttl"),
        ("amqp://up", {"queue-type": "quorum", "exchange": ""}, ""),
    ],
)
def test_what_cannot_be_is_said_without_the_password_and_disturbs_nobody(
    uri: Value, settings: dict[str, Value], says: str
) -> None:
    world, up, down, reader = pair()
    down.exchange("y")
    down.parameter("federation-upstream", "bad", {"uri": uri, **settings})
    down.policy("^y$", {"federation-upstream": "bad"}, name="other")
    world.pass_time(300)
    good, bad = down.federator.statuses()
    assert (good.status, bad.status) == (RUNNING, ERROR)
    assert says in bad.error
    assert bad.error
    assert "verysecret" not in repr(bad)
    up.publish("x", "k")
    world.until(lambda: reader.take() == [b"x"])
    assert len(down.dialled) < 300  # the reconnect delay grows
    down.no_policy(name="other")
    world.until(lambda: len(down.federator.statuses()) == 1)


@pytest.mark.parametrize(
    "settings",
    [
        {"prefetch-count": -1}, {"prefetch-count": 10**9}, {"max-hops": 1.5}, {"max-hops": 10**12},
        {"reconnect-delay": -1}, {"expires": 10**12},
    ],
)  # fmt: skip
def test_numbers_that_no_field_can_hold_are_taken_for_the_nearest(settings: dict[str, Value]) -> None:
    world = World()
    up, down = world.node("up"), world.node("down")
    down.exchange("x")
    reader = down.bind("x", "#")
    down.parameter("federation-upstream", "up", {"uri": "amqp://up", **settings})
    down.policy("^x$", {"federation-upstream": "up"})
    world.until(down.is_running)
    up.publish("x", "k")
    world.until(lambda: reader.take() == [b"x"])


def test_one_of_several_uris_is_taken_and_another_one_when_it_is_of_no_use() -> None:
    world = World()
    up, other = world.node("up"), world.node("other")
    down = world.node("down")
    down.exchange("x")
    reader = down.bind("x", "#")
    down.upstream("up", ["http://nonsense", "amqp://up", "amqp://other"])
    down.policy("^x$", {"federation-upstream": "up"})
    world.until(down.is_running)
    first, second = (up, other) if up.wires else (other, up)
    first.cut()
    world.until(lambda: bool(second.wires) and down.is_running())
    second.publish("x", "k")
    world.until(lambda: reader.take() == [b"x"])


def test_an_exchange_of_another_type_is_warned_of_once(caplog: pytest.LogCaptureFixture) -> None:
    world = World()
    up, down = world.node("up"), world.node("down")
    up.exchange("x", "fanout")
    down.exchange("x", "topic")
    down.federate("x", "up")
    world.until(down.is_running)
    assert down.status().error == ""
    assert "'fanout'" in down.status().warning
    down.federator.restart(down.status().id)
    world.pass_time(20)
    assert len([record for record in caplog.records if "'fanout'" in record.message]) == 1


def test_a_set_wins_over_its_upstream() -> None:
    world = World()
    world.node("up")
    down = world.node("down")
    down.exchange("x")
    down.upstream("up", "amqp://up", max_hops=2, exchange="theirs")
    down.parameter("federation-upstream-set", "mine", [{"upstream": "up", "max-hops": 5}])
    down.policy("^x$", {"federation-upstream-set": "mine"})
    world.until(down.is_running)
    assert (down.status().max_hops, down.status().upstream_exchange) == (5, "theirs")


def test_two_upstreams_with_one_queue_have_one_link() -> None:
    world, up, down, reader = pair()
    down.upstream("same", ["amqp://elsewhere", "amqp://up"])
    down.policy("^x$", {"federation-upstream-set": "all"})
    world.pass_time(30)
    same, theirs = down.federator.statuses()
    assert (same.upstream, same.status, theirs.upstream, theirs.status) == ("same", REFUSED, "up", RUNNING)
    assert "'up'" in same.error
    assert (len(up.wires), theirs.reconnects) == (1, 0)
    down.upstream("up", "amqp://guest:wrong@up")
    world.until(lambda: [each.status for each in down.federator.statuses()] == [RUNNING, ERROR])
    up.publish("x", "k", b"by the other one")
    world.until(lambda: reader.take() == [b"by the other one"])
    down.clear("same")
    down.upstream("up", "amqp://up")
    world.until(lambda: len(down.federator.statuses()) == 1 and down.is_running())
    up.publish("x", "k")
    world.until(lambda: reader.take() == [b"by the other one", b"x"])
    down.upstream("same", "amqp://guest:wrong@up")
    world.pass_time(30)
    down.no_policy()
    world.until(lambda: up.names() == [] and down.federator.statuses() == [])
