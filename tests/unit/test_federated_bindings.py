"""Bindings on their way upstream: grouped, bounded, pipelined, swapped, and restored after deletion."""

from __future__ import annotations

import struct
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from leveret.broker.exchanges.binding import Binding
from leveret.broker.exchanges.exchange import Exchange
from leveret.federation.bindings import BindingReceiver, Grouped
from leveret.wire import grammar
from leveret.wire.table import Value, decode_table, encode_table

from .links import Node, Reader, Wire, World, methods_of
from .support import Bench, Client

ENTRY: dict[str, Value] = {"cluster-name": "far", "vhost": "/", "exchange": "/:x A", "hops": 3}


def bound_from(bounds: BindingReceiver, arguments: dict[str, Value]) -> Value:
    data = bounds.upstream_arguments(encode_table(arguments))
    return None if data is None else decode_table(data, 0)[0]["x-bound-from"]


def test_who_wants_a_binding_is_written_as_rabbitmq_writes_it() -> None:
    bounds = BindingReceiver("hq", "v", "x", "B", 5, ("up", "/"))
    data = bounds.upstream_arguments(encode_table({"x-match": "all", "a": 1}))
    entry = encode_table({"cluster-name": "hq", "vhost": "v", "exchange": "v:x B"})[4:] + b"\x04hopss\x00\x05"
    array = b"F" + struct.pack(">I", len(entry)) + entry
    field = b"\x0cx-bound-fromA" + struct.pack(">I", len(array)) + array
    body = encode_table({"x-match": "all", "a": 1})[4:] + field
    assert data == struct.pack(">I", len(body)) + body


@pytest.mark.parametrize(
    ("max_hops", "before", "hops"),
    [(5, 3, 2), (1, 3, 1), (5, 1, None), (5, 0, None), (5, -1, None), (0, 3, None), (99999, 32767, 32766)],
)
def test_hops_shrink(max_hops: int, before: int, hops: int | None) -> None:
    bounds = BindingReceiver("hq", "v", "x", "A", max_hops, ("up", "/"))
    found = bound_from(bounds, {"x-bound-from": [{**ENTRY, "hops": before}]})
    expected = [{"cluster-name": "hq", "vhost": "v", "exchange": "v:x A", "hops": hops}, {**ENTRY, "hops": before}]
    assert found == (None if hops is None else expected)


def test_hops_begin_with_max_hops() -> None:
    assert BindingReceiver("hq", "v", "x", "A", 0, ("up", "/")).upstream_arguments(encode_table({})) is None
    (entry,) = bound_from(BindingReceiver("hq", "v", "x", "A", 1 << 20, ("up", "/")), {})  # type: ignore[misc]
    assert entry["hops"] == 32767


def test_a_binding_does_not_go_back_to_where_it_has_been() -> None:
    older: dict[str, Value] = {**ENTRY, "cluster-name": "older"}
    arguments: dict[str, Value] = {"x-bound-from": [ENTRY, older]}
    for place in (("far", "/"), ("older", "/")):
        assert BindingReceiver("hq", "v", "x", "A", 9, place).upstream_arguments(encode_table(arguments)) is None
    for place in (("far", "v"), ("elsewhere", "/")):
        assert BindingReceiver("hq", "v", "x", "A", 9, place).upstream_arguments(encode_table(arguments)) is not None


@pytest.mark.parametrize("nonsense", ["text", 7, [], ["a", 1], [{"hops": "many"}], {"a": 1}, None])
def test_nonsense_in_x_bound_from_is_no_harm(nonsense: Value) -> None:
    found = bound_from(BindingReceiver("hq", "v", "x", "A", 4, ("up", "/")), {"x-bound-from": nonsense})
    assert isinstance(found, list)
    assert found[0]["hops"] == 4  # type: ignore[call-overload, index]
    assert found[1:] == (nonsense if isinstance(nonsense, list) else [])


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 5), st.integers(0, 2)), max_size=60))
def test_groups_are_what_the_bindings_say(steps: list[tuple[bool, int, int]]) -> None:
    """Checked against a list of all bindings: only the first and the last binding of a group are reported."""
    bench = Bench()
    source = Exchange("x", "topic", True, False, False, {}, lambda count: b"")
    ends = [Exchange(str(number), "fanout", True, False, False, {}, lambda count: b"") for number in range(3)]
    del bench
    there: list[Binding] = []
    grouped = Grouped(())
    told: set[str] = set()
    for is_bound, key, end in steps:
        same = [each for each in there if each.key == str(key) and each.destination is ends[end]]
        if is_bound and not same:
            binding = Binding(source, ends[end], str(key), encode_table({}))
            there.append(binding)
            if grouped.add(binding):
                assert str(key) not in told
                told.add(str(key))
        elif not is_bound and same:
            there.remove(same[0])
            if grouped.remove(same[0]):
                told.remove(str(key))
        assert told == {each.key for each in there} == {group[0] for group in grouped.groups()}
    assert not grouped.remove(Binding(source, ends[0], "never", encode_table({})))


def linked(latency_us: int = 1000, **values: Value) -> tuple[World, Node, Node]:
    world = World(latency_us)
    up, down = world.node("up"), world.node("down")
    down.exchange("x")
    down.federate("x", "up", **values)
    world.until(down.is_running)
    return world, up, down


def test_bindings_come_and_go_with_the_first_and_the_last_of_their_group() -> None:
    world, up, down = linked()
    down.bind("x", "a", "one")
    world.until(lambda: up.keys("x") == ["a"])
    down.bind("x", "a", "two")
    down.bind("x", "b", "two")
    world.until(lambda: up.keys("x") == ["a", "b"])
    down.unbind("x", "a", "one")
    world.pass_time(1)
    assert up.keys("x") == ["a", "b"]
    down.client().call(1, grammar.QUEUE_DELETE, queue="two")
    world.until(lambda: up.keys("x") == [])
    world.until(lambda: (down.status().bindings, down.status().unbound) == (0, 0))


def test_the_same_key_with_other_arguments_is_another_binding() -> None:
    world = World()
    up, down = world.node("up"), world.node("down")
    down.exchange("x", "headers")
    down.federate("x", "up")
    world.until(down.is_running)
    down.bind("x", "k", "q", color="red")
    down.bind("x", "k", "q", color="blue")
    world.until(lambda: up.keys("x") == ["k", "k"])
    colors = [decode_table(b.arguments, 0)[0]["color"] for b in up.broker.vhosts["/"].exchanges["x"].every()]
    assert sorted(colors, key=str) == ["blue", "red"]
    reader = down.bind("x", "k", "q", color="red")
    up.publish("x", "any", b"red", headers={"color": "red"})
    up.publish("x", "any", b"green", headers={"color": "green"})
    world.until(lambda: reader.take() == [b"red"])


def test_a_binding_to_an_exchange_counts() -> None:
    world, up, down = linked()
    down.exchange("inner")
    reader = down.bind("inner", "#")
    down.client().call(1, grammar.EXCHANGE_BIND, destination="inner", source="x", routing_key="e2e")
    world.until(lambda: up.keys("x") == ["e2e"])
    up.publish("x", "e2e")
    world.until(lambda: reader.take() == [b"x"])


def test_bindings_go_through_a_chain_and_no_further_than_their_hops() -> None:
    world = World()
    names = ["a", "b", "c", "d"]
    nodes = [world.node(name) for name in names]
    for node in nodes:
        node.exchange("x")
    for before, node in zip(names, nodes[1:], strict=False):
        node.federate("x", before, max_hops=2)
    world.until(lambda: all(node.is_running() for node in nodes[1:]))
    reader = nodes[3].bind("x", "k")
    world.until(lambda: nodes[1].keys("x") == ["k"])
    world.pass_time(10)
    assert [node.keys("x") for node in nodes] == [[], ["k"], ["k"], ["k"]]
    (binding,) = nodes[1].broker.vhosts["/"].exchanges["x"].every()
    found = decode_table(binding.arguments, 0)[0]["x-bound-from"]
    assert isinstance(found, list)
    entries = [(each["cluster-name"], each["exchange"], each["hops"]) for each in found if isinstance(each, dict)]
    assert entries == [("c", "/:x A", 1), ("d", "/:x A", 2)]
    nodes[1].publish("x", "k")
    world.until(lambda: reader.take() == [b"x"])


def test_a_binding_that_goes_round_a_ring_ends_where_it_began() -> None:
    world = World()
    names = ["a", "b", "c"]
    for name in names:
        world.node(name).exchange("x")
    for name, before in zip(names, ["c", "a", "b"], strict=True):
        world.nodes[name].federate("x", before, max_hops=9)
    world.until(lambda: all(node.is_running() for node in world.nodes.values()))
    world.nodes["a"].bind("x", "k")
    world.pass_time(10)
    assert [world.nodes[name].keys("x") for name in names] == [["k"], ["k"], ["k"]]


def bind_many(down: Node, count: int) -> Client:
    """Bind a queue to the federated exchange this many times."""
    client = down.client()
    client.queue("q")
    for number in range(count):
        client.send(1, grammar.QUEUE_BIND, queue="q", exchange="x", routing_key=f"k{number}", no_wait=True)
    return client


def publish_until_it_runs(world: World, up: Node, down: Node, key: str) -> list[bytes]:
    """Publish a message upstream twice in each latency, until the link runs; return the bodies."""
    sent: list[bytes] = []
    while not down.is_running():
        sent.append(b"body %d" % len(sent))
        up.publish("x", key, sent[-1])
        world.pass_time(world.latency_us / 2e6)
    return sent


def test_many_bindings_take_a_few_round_trips() -> None:
    """With a round trip of 100 ms; one after the other they would take a quarter of an hour."""
    world = World(50_000)
    up, down = world.node("up"), world.node("down")
    down.exchange("x", "direct")
    bind_many(down, 10_000)
    began_us = world.now_us
    down.federate("x", "up")
    world.until(down.is_running, 2)
    assert len(up.keys("x")) == 10_000
    assert world.now_us - began_us < 2_000_000
    down.unbind("x", "k7")
    world.until(lambda: len(up.keys("x")) == 9_999, 0.2)


def test_a_reconnect_rebuilds_the_bindings_beside_the_old_ones() -> None:
    """Bindings change while the line is down: no message is lost meanwhile, and stale bindings go."""
    world, up, down = linked()
    reader = down.bind("x", "stays")
    down.bind("x", "goes", "other")
    world.until(lambda: up.keys("x") == ["goes", "stays"])
    up.cut()
    down.unbind("x", "goes", "other")
    down.bind("x", "comes")
    up.publish("x", "stays", b"1")
    up.mend()
    world.until(lambda: down.is_running() and up.keys("x") == ["comes", "stays"])
    assert up.names() == ["federation: x -> down", "federation: x -> down B"]
    up.publish("x", "comes", b"2")
    world.until(lambda: sorted(reader.take()) == [b"1", b"2"])
    up.cut()
    up.mend()
    world.until(lambda: down.is_running() and up.names() == ["federation: x -> down", "federation: x -> down A"])


@settings(deadline=None, max_examples=30)
@given(
    st.lists(st.tuples(st.sampled_from(["bind", "unbind", "publish", "cut", "wait"]), st.integers(0, 3)), max_size=25),
    st.integers(1, 30_000),
)
def test_whatever_happens_while_links_come_and_go(steps: list[tuple[str, int]], latency_us: int) -> None:
    """A binding that stays gets every message once; in the end the upstream has the wanted bindings."""
    world = World(latency_us)
    up, down = world.node("up"), world.node("down")
    down.exchange("x")
    reader = down.bind("x", "always.*")
    down.federate("x", "up")
    world.until(down.is_running)
    sent: list[bytes] = []
    wanted: set[str] = set()
    for what, number in steps:
        if what == "bind":
            down.bind("x", f"k{number}", "other")
            wanted.add(f"k{number}")
        elif what == "unbind" and f"k{number}" in wanted:
            down.unbind("x", f"k{number}", "other")
            wanted.discard(f"k{number}")
        elif what == "publish":
            sent.append(b"%d" % len(sent))
            up.publish("x", f"always.{number}", sent[-1])
        elif what == "cut":
            up.cut()
            up.mend()
        else:
            world.pass_time(number * latency_us / 500_000)
    world.until(lambda: down.is_running() and up.keys("x") == sorted(wanted | {"always.*"}))
    world.until(lambda: sorted(reader.take()) == sorted(sent))
    world.pass_time(30)
    assert sorted(reader.take()) == sorted(sent)
    assert len(up.names()) == 2


def test_a_swap_that_was_cut_off_is_begun_anew_and_nothing_is_missed() -> None:
    """Wherever the line breaks or the broker crashes, some internal exchange always has all bindings."""
    for step in range(1, 60):
        world, up, down = linked()
        down.bind("x", "k")
        world.until(lambda up=up: up.keys("x") == ["k"])  # type: ignore[misc]
        up.cut()
        up.mend()
        for _ in range(step):
            world.step()
        up.publish("x", "k", b"1")
        assert up.keys("x") in (["k"], ["k", "k"])
        up.cut()
        again = down.revive() if step % 2 else down
        down.is_cut = False
        up.mend()
        sent = [b"1", *publish_until_it_runs(world, up, again, "k")]
        reader = Reader(again, "q", "/")
        world.until(lambda reader=reader, sent=sent: len(reader.take()) >= len(sent))  # type: ignore[misc]
        world.pass_time(10)
        assert reader.take() == sent
        assert up.keys("x") == ["k"]


@pytest.mark.parametrize("crashes", [False, True])
def test_a_swap_whose_end_was_not_heard_counts_when_the_next_one_is_cut_off(crashes: bool) -> None:
    """Both internal exchanges are there, and the last one that the link has heard of is the empty one."""
    world, up, down = linked()
    down.bind("x", "k")
    world.until(lambda: up.keys("x") == ["k"])
    queue, old, new = up.names()[0], *(f"{up.names()[0]} {suffix}" for suffix in "AB")
    for names in ([queue, new], [queue, old, new]):
        up.cut()
        up.mend()
        world.until(lambda names=names: up.names() == names)  # type: ignore[misc]
    up.cut()
    again = down.revive() if crashes else down
    down.is_cut = False
    up.mend()
    sent = publish_until_it_runs(world, up, again, "k")
    reader = Reader(again, "q", "/")
    world.until(lambda: reader.take() == sent)


def test_no_binding_waits_for_an_answer_where_bind_nowait_says_so() -> None:
    for no_wait in (False, True):
        world, up, down = linked(bind_nowait=no_wait)
        world.pass_time(1)
        wire = up.wires[0]
        before = len(wire.sent)
        down.bind("x", "k")
        world.until(lambda up=up: up.keys("x") == ["k"])  # type: ignore[misc]
        said = methods_of(wire.sent[before:])
        assert [each.name for each in said] == ["exchange.bind"] + ["queue.bind"] * (not no_wait)
        assert said[0].flag("no_wait")


@pytest.mark.parametrize("what", ["binding", "exchange", "internal", "queue"])
def test_what_somebody_deletes_on_the_upstream_comes_back(what: str) -> None:
    world, up, down = linked()
    reader = down.bind("x", "k")
    world.until(lambda: up.keys("x") == ["k"])
    client = up.client()
    queue = "federation: x -> down"
    if what == "binding":
        host = up.broker.vhosts["/"]
        host.unbind(next(iter(host.exchanges["x"].every())))
    elif what == "exchange":
        client.call(1, grammar.EXCHANGE_DELETE, exchange="x")
    elif what == "internal":
        client.call(1, grammar.EXCHANGE_DELETE, exchange=f"{queue} A")
    else:
        client.call(1, grammar.QUEUE_DELETE, queue=queue)
    world.pass_time(11)
    assert down.is_running()
    assert up.keys("x") == ["k"]
    up.publish("x", "k")
    world.until(lambda: reader.take() == [b"x"])


def test_an_exchange_that_was_deleted_and_declared_anew_on_the_upstream_is_bound_again() -> None:
    world, up, down = linked()
    reader = down.bind("x", "k")
    world.until(lambda: up.keys("x") == ["k"])
    client = up.client()
    client.call(1, grammar.EXCHANGE_DELETE, exchange="x")
    client.call(1, grammar.EXCHANGE_DECLARE, exchange="x", type="topic", durable=True)
    world.pass_time(6)
    up.publish("x", "k")
    world.until(lambda: reader.take() == [b"x"])
    assert down.status().reconnects == 0


def test_no_binding_waits_and_no_turn_is_long() -> None:
    world = World(50_000)
    world.node("up")
    down = world.node("down")
    down.exchange("x", "direct")
    bind_many(down, 3000)
    down.federate("x", "up")
    written: list[int] = []
    world.until(lambda: bool(down.dialled))
    (wire,) = down.dialled
    write = wire.write

    def counted(data: bytes) -> None:
        written.append(sum(each.name == "exchange.bind" for each in methods_of(data)))
        write(data)

    wire.write = counted  # type: ignore[method-assign]
    world.until(down.is_running)
    assert [count for count in written if count] == [1024, 1024, 952]


def after_the_first_slice(wire: Wire, call: Callable[[], None]) -> None:
    """Make a call when a swap has sent its first bindings."""
    write = wire.write

    def watched(data: bytes) -> None:
        write(data)
        if any(each.name == "exchange.bind" for each in methods_of(data)):
            wire.write = write  # type: ignore[method-assign]
            call()

    wire.write = watched  # type: ignore[method-assign]


def test_bindings_that_come_and_go_between_the_slices_of_a_swap() -> None:
    world = World(50_000)
    up, down = world.node("up"), world.node("down")
    down.exchange("x", "direct")
    client = bind_many(down, 3000)
    down.federate("x", "up")
    world.until(lambda: bool(down.dialled))

    def meddle() -> None:
        for key in ("k5", "k2999"):  # one was sent already, the other was not
            client.send(1, grammar.QUEUE_UNBIND, queue="q", exchange="x", routing_key=key)
        client.send(1, grammar.QUEUE_BIND, queue="q", exchange="x", routing_key="new", no_wait=True)

    after_the_first_slice(down.dialled[0], meddle)
    world.until(down.is_running)
    world.until(lambda: down.status().unbound == 0)
    assert down.status().bindings == 2999
    assert up.keys("x") == sorted({*(f"k{number}" for number in range(3000)), "new"} - {"k5", "k2999"})


def test_a_binding_that_comes_between_the_slices_of_a_swap_is_kept_if_the_swap_fails() -> None:
    """The old internal exchange has it, too, and serves until another swap has made it again."""
    world = World(50_000)
    up, down = world.node("up"), world.node("down")
    down.exchange("x", "direct")
    client = bind_many(down, 3000)
    reader = Reader(down, "q", "/")
    down.federate("x", "up")
    world.until(down.is_running)
    assert down.federator.restart(down.status().id)
    world.until(lambda: len(down.dialled) == 2)
    new = {"queue": "q", "exchange": "x", "routing_key": "new"}
    after_the_first_slice(down.dialled[1], lambda: client.send(1, grammar.QUEUE_BIND, **new, no_wait=True))
    world.until(lambda: "new" in up.keys("x"))
    up.cut()
    up.mend()
    sent = publish_until_it_runs(world, up, down, "new")
    world.until(lambda: sorted(reader.take()) == sorted(sent))


def test_the_old_internal_exchange_serves_until_the_new_one_has_all_bindings() -> None:
    world = World(50_000)
    up, down = world.node("up"), world.node("down")
    down.exchange("x", "direct")
    reader = down.bind("x", "k0")
    client = down.client()
    for number in range(1, 2500):
        client.send(1, grammar.QUEUE_BIND, queue="q", exchange="x", routing_key=f"k{number}", no_wait=True)
    down.federate("x", "up")
    world.until(down.is_running)
    assert down.federator.restart(down.status().id)
    sent: list[bytes] = []
    while not down.is_running():
        sent.append(b"%d" % len(sent))
        up.publish("x", "k2499", sent[-1])
        world.step()
    world.until(lambda: sorted(reader.take()) == sorted(sent))
    assert len(up.keys("x")) == 2500
