"""The methods that links send upstream and the headers that they set, octet by octet: RabbitMQ's and leveret's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from pika.exceptions import ChannelClosedByBroker

from ...waiting import until
from .node import LEVERET, RABBITMQ
from .site import Site, X
from .tap import Said, Tap

pytestmark = pytest.mark.needs("rabbitmq")

Pair = tuple[Site, Site]
Taps = Callable[[Site], Tap]
UPSTREAM = "x-federation-upstream"
# links may differ in the order of these methods, and in how many are under way at a time
DEEDS = (
    "basic.qos", "basic.consume", "queue.declare", "queue.bind", "queue.delete", "exchange.declare", "exchange.bind",
    "exchange.unbind", "exchange.delete",
)  # fmt: skip

# links may differ in waiting, and leveret's deletes an exchange only if it is unused
OWN = {"consumer_tag", "no_wait", "if_unused"}


def neutral(value: Any, names: dict[str, str]) -> Any:
    """Return a value with names of both ends replaced, and without the suffix A or B of an exchange."""
    if isinstance(value, dict):
        return {key: neutral(each, names) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [neutral(each, names) for each in value]
    if isinstance(value, str):
        for name, word in names.items():
            value = value.replace(name, word)
        return value[:-1] + "?" if value.endswith((" A", " B")) else value
    return value


def deeds(said: list[Said], up: Site, down: Site) -> list[tuple[str, Any]]:
    """Return what was done upstream, without repeats, sorted; a passive declaration does nothing."""
    names = {down.node.cluster: "CLUSTER", down.name: "DOWN", up.name: "UP"}
    found: list[tuple[str, Any]] = []
    for each in said:
        if each.fields.get("passive"):
            continue
        fields = {key: value for key, value in each.fields.items() if key not in OWN}
        if each.name == "queue.declare":  # only the values of a queue's numeric arguments count
            fields["arguments"] = {key: value for key, (_, value) in fields["arguments"].items()}
        deed = (each.name, neutral(fields, names))
        if deed not in found:
            found.append(deed)
    return sorted(found, key=repr)


def lifetime(up: Site, down: Site, tap: Tap) -> list[tuple[str, Any]]:
    """Record the life of a link: created with bindings, used, a binding added and removed, deleted."""
    down.exchange(arguments={"alternate-exchange": "amq.fanout"})
    inbox = down.inbox("a.*")
    inbox.bind("b", exchange=X, arguments={"n": 1, "s": "t"})
    settings: dict[str, object] = {"max_hops": 3, "message_ttl": 600000, "expires": 3600000, "prefetch_count": 50}
    down.upstream("u", up.uri(port=tap.port), **settings)
    down.policy(federation_upstream="u")
    down.running()
    inbox.bind("later", exchange=X)
    up.bound("a.*", "b", "later")
    up.publish("later", "m")
    inbox.expect("m")
    inbox.unbind("later", exchange=X)
    up.bound("a.*", "b")
    down.unpolicy()
    until(lambda: not up.queues() and not up.exchanges("federation: "), lambda: f"{up.queues()}, {up.exchanges()}")
    return deeds(tap.methods(*DEEDS), up, down)


def test_our_link_does_what_rabbitmqs_does(site: Callable[..., Site], tap: Taps) -> None:
    """To a RabbitMQ: the same declarations and bindings with the same arguments of the same types."""
    done = []
    for kind in (RABBITMQ, LEVERET):
        up = site(RABBITMQ, "up")
        done.append(lifetime(up, site(kind, "down"), tap(up)))
    theirs, ours = done
    assert ours == theirs


def test_a_link_finds_the_exchange_type_that_it_wants(pair: Pair, tap: Taps) -> None:
    """On either broker; it does not fall back to a fanout exchange."""
    up, down = pair
    down.exchange()
    inbox = down.inbox("k")
    down.upstream("u", up.uri(), max_hops=4)
    down.policy(federation_upstream="u")
    down.running()
    up.bound("k")
    (internal,) = up.exchanges("federation: ")
    assert (internal["type"], internal["durable"], internal["auto_delete"], internal["internal"]) == (
        UPSTREAM, True, True, True,
    )  # fmt: skip
    assert internal["arguments"] == {
        "x-internal-purpose": "federation", "x-max-hops": 4, "x-downstream-name": down.node.cluster,
        "x-downstream-vhost": down.name,
    }  # fmt: skip
    hop = {"cluster-name": "c", "vhost": "v"}
    own = {"cluster-name": down.node.cluster, "vhost": down.name}
    (queue,) = up.queues()

    def arrived() -> int:
        found = up.node.get(f"/queues/{up.name}/{queue['name'].replace(' ', '%20').replace('>', '%3E')}")
        return int(found.get("message_stats", {}).get("publish", 0))

    assert arrived() == 0
    up.publish("k", "too far", headers={"x-received-from": [hop] * 4})
    up.publish("k", "was here", headers={"x-received-from": [own]})
    up.publish("k", "crosses", headers={"x-received-from": [hop] * 3})
    inbox.expect("crosses")
    until(lambda: arrived() > 0, "statistics come")
    assert arrived() == 1


def test_a_step_is_noted_in_rabbitmqs_octets(pair: Pair, tap: Taps) -> None:
    """The header x-received-from as a consumer sees it."""
    up, down = pair
    for each in pair:
        each.exchange()
    down.channel.queue_declare("seen", durable=True)
    down.channel.queue_bind("seen", X, "#")
    down.federate(up, max_hops=3)
    down.running()
    up.bound("#")
    way = tap(down)
    hop = {"uri": "amqp://e", "exchange": "e", "redelivered": True, "cluster-name": "c", "vhost": "v"}
    up.publish("k", "plain")
    up.publish("k", "second", headers={"a": 1, "x-received-from": [hop], "z": "t"})
    down.through(way.port, "seen", 2)
    headers = [each.fields["headers"] for each in way.methods("header", is_up=False)]
    first = {
        "uri": ("S", up.uri().replace("guest:guest@", "")), "exchange": ("S", X), "redelivered": ("t", False),
        "cluster-name": ("S", up.node.cluster), "vhost": ("S", up.name),
    }  # fmt: skip
    before = {
        "uri": ("S", "amqp://e"), "exchange": ("S", "e"), "redelivered": ("t", True), "cluster-name": ("S", "c"),
        "vhost": ("S", "v"),
    }  # fmt: skip
    assert [list(each["x-received-from"][1][0][1]) for each in headers] == [list(first)] * 2
    assert headers == [
        {"x-received-from": ("A", [("F", first)])},
        {"a": ("I", 1), "x-received-from": ("A", [("F", first), ("F", before)]), "z": ("S", "t")},
    ]


RIGHTS = [
    ("", "", "", "queue"),
    ("^federation: .*", "", "", "queue"),
    ("^federation: .*", "^federation: .*", "^federation: .*", "exchange"),
]


def test_what_a_links_user_must_be_allowed(pair: Pair) -> None:
    """Permissions on the upstream, if the exchange exists there."""
    up, down = pair
    for each in pair:
        each.exchange()
    inbox = down.inbox("k")
    up.node.user("linked")
    down.upstream("u", up.uri("linked"), reconnect_delay=0.2)
    for configure, write, read, what in RIGHTS:
        down.unfederate()
        up.node.grant(up.name, "linked", configure, write, read)
        down.policy(federation_upstream="u")

        def refused(what: str = what) -> bool:
            return any(f"access to {what} '" in each.get("error", "") for each in down.links())

        until(refused, lambda: f"{down.links()}")
    up.node.grant(up.name, "linked", "^federation: .*", "^federation: .*", r"^(federation: .*|fed\.x)$")
    down.running()
    up.bound("k")
    up.publish("k", "m")
    inbox.expect("m")
    down.unfederate()
    until(lambda: not up.queues(), lambda: f"{up.queues()}")


@pytest.mark.parametrize("kind", [RABBITMQ, LEVERET])
def test_the_exchange_type_as_such(site: Callable[..., Site], kind: str) -> None:
    """The arguments that it requires, and the messages that it lets through."""
    here = site(kind, "here")
    full = {"x-max-hops": 2**40, "x-downstream-name": "dn", "x-downstream-vhost": "dv"}

    def refusal(name: str, arguments: dict[str, object]) -> str:
        with pytest.raises(ChannelClosedByBroker) as error:
            here.exchange(name, UPSTREAM, arguments=arguments)
        return f"{error.value.reply_code} {error.value.reply_text}"

    assert refusal("a", {}) == "406 PRECONDITION_FAILED - Argument x-max-hops missing"
    of_type = "406 PRECONDITION_FAILED - Argument x-max-hops must be of type long"
    for bad in ("1", 1):
        assert refusal("a", full | {"x-max-hops": bad}) == of_type
    for name, arguments in (("any", full), ("bare", {"x-max-hops": 2**40})):
        here.exchange(name, UPSTREAM, arguments=arguments)
    assert refusal("any", full | {"x-max-hops": 2**40 + 1}) == (
        f"406 PRECONDITION_FAILED - inequivalent arg 'x-max-hops' for exchange 'any' in vhost '{here.name}': "
        f"received '{2**40 + 1}' but current is '{2**40}'"
    )
    here.exchange("any", UPSTREAM, arguments=full | {"x-downstream-name": "another", "more": 1})
    inbox = here.inbox()
    inbox.bind("whatever", exchange="any", arguments={"z": 1})
    own = {"cluster-name": "dn", "vhost": "dv"}
    passing: list[object] = [
        None, "text", [], [own | {"vhost": "other"}], [{"cluster-name": "dn"}], own, [{"cluster-name": 1, "vhost": 2}],
        ["words"] * 9,
    ]  # fmt: skip
    for number, history in enumerate(passing):
        here.publish("k", f"passes {number}", "any", headers={} if history is None else {"x-received-from": history})
    here.publish("k", "no headers", "any")
    for history in ([own], [{}, own], [5, own]):
        here.publish("k", "stays", "any", headers={"x-received-from": history})
    inbox.expect(*(f"passes {number}" for number in range(len(passing))), "no headers")
