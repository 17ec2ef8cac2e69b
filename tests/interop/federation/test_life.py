"""Links that are created, changed and removed at run time by policies, upstreams, sets and exchanges."""

from __future__ import annotations

from collections.abc import Callable

from ...waiting import until
from .site import Site, X
from .tap import Tap

Pair = tuple[Site, Site]
Sites = Callable[..., Site]


def tidy(up: Site) -> None:
    """Wait until nothing of a link is left upstream."""
    until(lambda: not up.queues() and not up.exchanges("federation: "), lambda: f"{up.queues()}, {up.exchanges()}")


def crosses(up: Site, down: Site, exchange: str = X) -> None:
    """Check that a message crosses."""
    inbox = down.inbox("#", exchange=exchange)
    until(lambda: "#" in up.keys(exchange), f"{exchange} of {down} is bound to {up}")
    up.publish("k", "crosses", exchange=exchange)
    inbox.expect("crosses")
    inbox.delete()


def test_a_missing_upstream_exchange_is_declared(pair: Pair) -> None:
    """With the settings of the downstream one; it stays when the link goes."""
    up, down = pair
    arguments = {"alternate-exchange": "amq.fanout"}
    down.exchange(kind="headers", arguments=arguments)
    down.federate(up)
    down.running()

    def declared() -> list[tuple[object, ...]]:
        return [tuple(each[key] for key in ("type", "durable", "arguments")) for each in up.exchanges(X)]

    assert declared() == [("headers", True, arguments)]
    down.unpolicy()
    tidy(up)
    assert declared() == [("headers", True, arguments)]


def test_an_exchange_declared_after_its_policy_is_federated(pair: Pair) -> None:
    up, down = pair
    down.federate(up)
    assert down.links() == []
    down.exchange()
    down.running()
    crosses(up, down)
    down.channel.exchange_delete(X)
    until(lambda: not down.links(), "the link goes with its exchange")
    tidy(up)


def test_what_a_policy_may_match_and_what_not(pair: Pair) -> None:
    up, down = pair
    down.upstream("u", up.uri())
    down.policy(".*", federation_upstream="u")
    down.channel.exchange_declare("inner", "topic", durable=True, internal=True)
    down.exchange("mine")
    predeclared = {"amq.direct", "amq.fanout", "amq.headers", "amq.match", "amq.topic"}

    def linked() -> set[str]:
        return {each["exchange"] for each in down.links() if each["status"] == "running"}

    until(lambda: linked() == predeclared | {"mine"}, lambda: f"{down.links()}")
    crosses(up, down, "amq.topic")


def test_a_policy_that_goes_takes_its_links_along(pair: Pair) -> None:
    """federate_unfederate."""
    up, down = pair
    down.exchange()
    down.exchange("fed.y")
    down.exchange("other")
    down.federate(up)
    down.running(2)
    crosses(up, down)
    assert len(up.queues()) == 2
    down.policy("^fed.y$", federation_upstream_pattern="^to-")
    until(lambda: [each["exchange"] for each in down.links()] == ["fed.y"], lambda: f"{down.links()}")
    until(lambda: len(up.queues()) == 1, lambda: f"{up.queues()}")
    down.unpolicy()
    until(lambda: not down.links(), lambda: f"{down.links()}")
    tidy(up)
    down.policy(federation_upstream_pattern="^to-")
    down.running(2)
    crosses(up, down, "fed.y")


def test_upstreams_and_sets_change_at_run_time(site: Sites, pair: Pair) -> None:
    """dynamic_reconfiguration: what a policy names need not exist, and may come and go."""
    up, down = pair
    second = site(up.node.kind, "second")
    down.exchange()
    down.policy(federation_upstream_set="s")
    down.upstream_set("s", {"upstream": "one"}, {"upstream": "two", "exchange": "else"})
    assert down.links() == []
    down.upstream("one", up.uri())
    down.running(1)
    down.upstream("two", second.uri())
    links = {each["upstream"]: each["upstream_exchange"] for each in down.running(2)}
    assert links == {"one": X, "two": "else"}
    inbox = down.inbox("k")
    up.bound("k")
    second.bound("k", source="else")
    up.publish("k", "from one")
    second.publish("k", "from two", exchange="else")
    inbox.expect("from one", "from two")
    down.upstream_set("s", {"upstream": "two"})
    until(lambda: [each["upstream"] for each in down.links()] == ["two"], lambda: f"{down.links()}")
    tidy(up)
    until(lambda: second.keys(X) == {"k"}, lambda: f"{second.bindings()}")
    down.clear("s", "federation-upstream-set")
    until(lambda: not down.links(), lambda: f"{down.links()}")
    tidy(second)


def test_the_set_of_all(site: Sites, pair: Pair) -> None:
    up, down = pair
    second = site(up.node.kind, "second")
    down.exchange()
    down.policy(federation_upstream_set="all")
    down.upstream("one", up.uri())
    down.running(1)
    down.upstream("two", second.uri())
    down.running(2)
    inbox = down.inbox("k")
    for each in (up, second):
        each.bound("k")
        each.publish("k", each.name)
    inbox.expect(up.name, second.name)
    down.clear("two")
    until(lambda: [each["upstream"] for each in down.links()] == ["one"], lambda: f"{down.links()}")
    tidy(second)


def test_several_upstreams_by_pattern(site: Sites, pair: Pair) -> None:
    up, down = pair
    second, third = site(up.node.kind, "second"), site(up.node.kind, "third")
    down.exchange()
    for name, upstream in (("a-1", up), ("a-2", second), ("b-1", third)):
        down.upstream(name, upstream.uri())
    down.policy(federation_upstream_pattern="^a-")
    assert {each["upstream"] for each in down.running(2)} == {"a-1", "a-2"}
    inbox = down.inbox("k")
    for each in (up, second):
        each.bound("k")
        each.publish("k", each.name)
    inbox.expect(up.name, second.name)
    assert third.queues() == []


def test_several_downstreams(site: Sites, pair: Pair) -> None:
    up, down = pair
    second = site(down.node.kind, "second")
    inboxes = []
    for each in (down, second):
        each.exchange()
        inboxes.append(each.inbox("both", each.name))
        each.federate(up)
        each.running()
    until(lambda: len(up.bindings()) == 4, lambda: f"{up.bindings()}")
    for key in ("both", down.name, second.name):
        up.publish(key, key)
    inboxes[0].expect("both", down.name)
    inboxes[1].expect("both", second.name)


def test_a_link_tries_its_uris_until_one_works(pair: Pair) -> None:
    up, down = pair
    down.exchange()
    down.upstream("u", ["amqp://127.0.0.1:1", up.uri(), "amqp://127.0.0.1:2/x"], reconnect_delay=0.1)
    down.policy(federation_upstream="u")
    (link,) = down.running()
    assert link["uri"] == up.uri().replace("guest:guest@", "")
    crosses(up, down)


def test_a_bad_upstream_does_not_disturb_the_others(pair: Pair) -> None:
    up, down = pair
    down.exchange()
    down.upstream("bad", "amqp://127.0.0.1:1")
    down.upstream("none", up.uri().rpartition("/")[0] + "/nosuch")
    down.upstream("stranger", up.uri("stranger"), exchange="else")
    down.upstream("good", up.uri())
    down.policy(federation_upstream_pattern=".*")

    def states() -> dict[str, str]:
        return {each["upstream"]: each["status"] for each in down.links()}

    wanted = {"bad": "error", "none": "error", "stranger": "error", "good": "running"}
    until(lambda: states() == wanted, lambda: f"{states()}")
    assert all(each["error"] and "stranger@" not in str(each) for each in down.links() if each["upstream"] != "good")
    crosses(up, down)


def test_a_changed_upstream_starts_its_links_anew(pair: Pair, tap: Callable[[Site], Tap]) -> None:
    """Only its own links: a change to the same values changes nothing."""
    up, down = pair
    ways = [tap(up), tap(up)]
    down.exchange()
    down.upstream("one", up.uri(port=ways[0].port))
    down.upstream("two", up.uri(port=ways[1].port), exchange="else")
    down.policy(federation_upstream_pattern=".*")
    down.running(2)
    down.upstream("one", up.uri(port=ways[0].port), message_ttl=600000, expires=3600000)

    def arguments() -> list[dict[str, object]]:
        return [each["arguments"] for each in up.queues(f"federation: {X}")]

    changed = {"x-internal-purpose": "federation", "x-message-ttl": 600000, "x-expires": 3600000}
    until(lambda: [changed.items() <= each.items() for each in arguments()] == [True], lambda: f"{arguments()}")
    down.running(2)
    crosses(up, down)
    assert len({each.connection for each in ways[1].methods("queue.declare")}) == 1


def test_one_exchange_name_in_two_virtual_hosts(site: Sites, pair: Pair) -> None:
    """delete_federated_exchange_upstream: clearing one does not stop the other."""
    up, down = pair
    other = site(down.node.kind, "other")
    for each in (down, other):
        each.exchange()
        each.federate(up)
        each.running()
    down.clear(f"to-{up.name}")
    until(lambda: not down.links() and len(up.queues()) == 1, lambda: f"{down.links()} {up.queues()}")
    crosses(up, other)


def test_a_single_channel_will_do(pair: Pair, tap: Callable[[Site], Tap]) -> None:
    up, down = pair
    way = tap(up)
    down.exchange()
    inbox = down.inbox("before")
    down.upstream("u", up.uri(port=way.port), channel_use_mode="single")
    down.policy(federation_upstream="u")
    down.running()
    inbox.bind("after", exchange=X)
    up.bound("before", "after")
    up.publish("after", "m")
    inbox.expect("m")
    assert len({each.channel for each in way.methods("exchange.bind", "basic.consume")}) == 1


def test_bindings_need_no_answer(pair: Pair, tap: Callable[[Site], Tap]) -> None:
    """bind-nowait."""
    up, down = pair
    way = tap(up)
    down.exchange()
    inbox = down.inbox("before")
    down.upstream("u", up.uri(port=way.port), bind_nowait=True)
    down.policy(federation_upstream="u")
    down.running()
    inbox.bind("after", exchange=X)
    up.bound("before", "after")
    inbox.unbind("after", exchange=X)
    up.bound("before")
    said = [each for each in way.methods("exchange.bind", "exchange.unbind") if each.fields["source"] == X]
    assert len(said) == 3
    assert all(each.fields["no_wait"] for each in said)


def test_what_never_cleans_up_stays(pair: Pair) -> None:
    """resource-cleanup-mode."""
    up, down = pair
    down.exchange()
    inbox = down.inbox("k")
    down.federate(up, resource_cleanup_mode="never")
    down.running()
    up.bound("k")
    down.unpolicy()
    until(lambda: not down.links(), lambda: f"{down.links()}")
    [queue] = up.queues()
    # RabbitMQ stops listing a link before its consumer is gone, which might still get the message
    until(lambda: not up.channel.queue_declare(queue["name"], passive=True).method.consumer_count, "still consumed")
    up.publish("k", "meanwhile")
    assert len(up.queues()) == 1
    down.policy(federation_upstream_pattern="^to-")
    inbox.expect("meanwhile")


def test_an_operator_starts_a_link_anew(pair: Pair, tap: Callable[[Site], Tap]) -> None:
    up, down = pair
    way = tap(up)
    down.exchange()
    down.upstream("u", up.uri(port=way.port))
    down.policy(federation_upstream="u")
    (link,) = down.running()
    path = f"/federation-links/vhost/{down.name}/{{}}/{link['node']}/restart"
    assert down.node.call("DELETE", path.format(link["id"])).status == 204
    assert down.node.call("DELETE", path.format("deadbeef"), None, 404).status == 404
    until(lambda: len(way.methods("basic.consume")) == 2, lambda: f"{way.said}")
    assert [each["id"] for each in down.running()] == [link["id"]]
    crosses(up, down)


def test_what_somebody_deletes_upstream_comes_back(pair: Pair) -> None:
    """The broker cancels the link's consumer at once."""
    up, down = pair
    down.exchange()
    down.federate(up)
    down.running()
    crosses(up, down)
    queue = up.queues()[0]["name"]
    up.channel.queue_delete(queue)
    until(lambda: [each["name"] for each in up.queues()] == [queue], lambda: f"{up.queues()}")
    down.running()
    crosses(up, down)


def test_exchanges_of_other_types_mix(pair: Pair) -> None:
    """Unusual, but allowed: the upstream's type decides which messages cross."""
    up, down = pair
    up.exchange(kind="fanout")
    down.exchange(kind="direct")
    inbox = down.inbox("k")
    down.federate(up)
    down.running()
    up.bound("k")
    up.publish("other", "is not routed downstream")
    up.publish("k", "is")
    inbox.expect("is")


def test_a_uri_without_a_virtual_host_means_one_of_our_name(pair: Pair, site: Sites) -> None:
    up, down = pair
    here = site(up.node.kind, "", down.name) if up.node is not down.node else down
    down.exchange("fed.own", "fanout")
    down.upstream("u", f"amqp://guest:guest@127.0.0.1:{up.node.process.port}", exchange="source")
    down.policy(federation_upstream="u")
    (link,) = down.running()
    assert link["uri"] == f"amqp://127.0.0.1:{up.node.process.port}"
    inbox = down.inbox("k", exchange="fed.own")
    here.bound("k", source="source")
    here.publish("k", "m", exchange="source")
    inbox.expect("m")
    assert [each["name"] for each in here.queues()] == [f"federation: source -> {down.node.cluster}:fed.own"]
    down.unpolicy()
    tidy(here)
