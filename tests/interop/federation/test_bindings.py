"""Bindings that come and go downstream, and their effect upstream."""

from __future__ import annotations

from collections.abc import Callable

from .site import Site, X

Pair = tuple[Site, Site]
Sites = Callable[..., Site]


def federated(pair: Pair, kind: str = "topic", **settings: object) -> Pair:
    """Declare the exchange on both, and wait until the link runs."""
    up, down = pair
    for each in pair:
        each.exchange(kind=kind)
    down.federate(up, **settings)
    down.running()
    return pair


def test_bindings_come_and_go(pair: Pair) -> None:
    up, down = federated(pair)
    inbox = down.inbox("a", "b")
    up.bound("a", "b")
    inbox.unbind("a", exchange=X)
    up.bound("b")
    up.publish("a", "no more")
    up.publish("b", "still")
    inbox.expect("still")
    inbox.bind("a", exchange=X)
    up.bound("a", "b")
    up.publish("a", "again")
    inbox.expect("still", "again")


def test_bindings_made_while_a_link_starts(pair: Pair) -> None:
    up, down = pair
    down.exchange()
    inbox = down.inbox("before")
    down.federate(up)
    for number in range(20):
        inbox.bind(f"while {number}", exchange=X)
    inbox.unbind("before", exchange=X)
    down.running()
    keys = [f"while {number}" for number in range(20)]
    up.bound(*keys)
    for key in keys:
        up.publish(key, key)
    inbox.expect(*keys)


def test_equal_bindings_are_one(pair: Pair) -> None:
    """It is removed with the last of them, in whatever way that is removed."""
    up, down = federated(pair)
    first, second = down.inbox("a", "same"), down.inbox("same")
    up.bound("a", "same")
    up.publish("same", "one")
    first.expect("one")
    second.expect("one")
    first.delete()
    up.bound("same")
    second.unbind("same", exchange=X)
    up.bound()


def test_arguments_tell_bindings_apart(pair: Pair) -> None:
    up, down = federated(pair)
    inbox = down.inbox()
    inbox.bind("k", exchange=X, arguments={"n": 1})
    inbox.bind("k", exchange=X, arguments={"n": 2})
    up.bound("k", "k")
    found = sorted(each["arguments"]["n"] for each in up.bindings())
    assert found == [1, 2]
    inbox.unbind("k", exchange=X, arguments={"n": 1})
    up.bound("k")
    assert up.bindings()[0]["arguments"]["n"] == 2


def test_a_binding_tells_where_it_comes_from(pair: Pair) -> None:
    up, down = federated(pair, max_hops=3)
    down.inbox("k")
    up.bound("k")
    binding = up.bindings()[0]
    (origin,) = binding["arguments"]["x-bound-from"]
    assert binding["destination"][-2:] in {" A", " B"}
    assert origin == {
        "cluster-name": down.node.cluster, "vhost": down.name,
        "exchange": f"{down.name}:{X}{binding['destination'][-2:]}", "hops": 3,
    }  # fmt: skip


def test_bindings_of_exchanges_count(pair: Pair) -> None:
    """e2e: bindings from a federated exchange, to a queue or an exchange."""
    up, down = federated(pair)
    down.exchange("behind", "topic")
    inbox = down.inbox("#", exchange="behind")
    down.channel.exchange_bind("behind", X, "k.*")
    up.bound("k.*")
    up.publish("k.1", "through")
    up.publish("other", "not through")
    up.publish("k.2", "through, too")
    inbox.expect("through", "through, too")
    down.channel.exchange_delete("behind")
    up.bound()


def test_a_federated_exchange_behind_another(pair: Pair) -> None:
    """Messages that cross to the first go on to the second; each link wants its own bindings."""
    up, down = pair
    for name in ("fed.1", "fed.2"):
        up.exchange(name)
        down.exchange(name)
    down.federate(up)
    down.running(2)
    inbox = down.inbox("#", exchange="fed.2")
    down.channel.exchange_bind("fed.2", "fed.1", "k")
    up.bound("k", source="fed.1")
    up.bound("#", source="fed.2")
    up.publish("k", "by the first", exchange="fed.1")
    up.publish("any", "by the second", exchange="fed.2")
    inbox.expect("by the first", "by the second")


def test_many_bindings(pair: Pair) -> None:
    up, down = pair
    for each in pair:
        each.exchange(kind="direct")
    keys = [str(number) for number in range(300)]
    inbox = down.inbox(*keys[:150])
    down.federate(up)
    down.running()
    inbox.bind(*keys[150:], exchange=X)
    up.bound(*keys)
    for key in keys[::10]:
        up.publish(key, key)
    inbox.expect(*keys[::10])
    inbox.unbind(*keys[::2], exchange=X)
    up.bound(*keys[1::2])


def test_bindings_cross_as_many_hops_as_messages(site: Sites, pair: Pair) -> None:
    """A chain of three: with max-hops 1 the second link does not pass on what the third wants (binding_propagation)."""
    up, middle = pair
    down = site(middle.node.kind, "last")
    for each in (up, middle, down):
        each.exchange()
    middle.federate(up, max_hops=2)
    middle.running()
    down.federate(middle, max_hops=2)
    down.running()
    middle_box, last_box = middle.inbox("middle"), down.inbox("last")
    up.bound("middle", "last")
    passed = next(each for each in up.bindings() if each["routing_key"] == "last")["arguments"]["x-bound-from"]
    assert [(each["vhost"], each["hops"]) for each in passed] == [(middle.name, 1), (down.name, 2)]
    up.publish("last", "far")
    up.publish("middle", "near")
    last_box.expect("far")
    middle_box.expect("near")
    history = last_box.got[0].properties.headers["x-received-from"]
    assert [(each["vhost"], each["cluster-name"]) for each in history] == [
        (middle.name, middle.node.cluster), (up.name, up.node.cluster),
    ]  # fmt: skip
    down.upstream(f"to-{middle.name}", middle.uri(), max_hops=1)
    up.bound("middle")


def test_a_binding_tells_how_far_it_may_still_go(pair: Pair) -> None:
    """A binding with no hops left stays, others are passed on with one hop less, and none returns to its origin."""
    up, down = federated(pair, max_hops=5)
    inbox = down.inbox()

    def bind(key: str, hops: int, cluster: str, vhost: str) -> None:
        origin = {"cluster-name": cluster, "vhost": vhost, "exchange": f"{vhost}:x A", "hops": hops}
        inbox.bind(key, exchange=X, arguments={"x-bound-from": [origin]})

    for hops in (1, 3, 9):
        bind(f"hops.{hops}", hops, "elsewhere", "v")
    bind("back", 9, up.node.cluster, up.name)
    bind("a neighbour", 9, up.node.cluster, f"not-{up.name}")
    inbox.bind("last", exchange=X)
    left = {"hops.3": 2, "hops.9": 5, "a neighbour": 5, "last": 5}
    up.bound(*left)
    assert {each["routing_key"]: each["arguments"]["x-bound-from"][0]["hops"] for each in up.bindings()} == left
