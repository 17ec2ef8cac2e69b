"""Cut connections, brokers that are stopped and killed: no message is lost; only messages under way may be doubled."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ...waiting import until
from .node import LEVERET, RABBITMQ
from .site import Site, X
from .stream import Stream
from .tap import Tap

pytestmark = pytest.mark.needs("rabbitmq")

Pair = tuple[Site, Site]
Sites = Callable[..., Site]
Taps = Callable[[Site], Tap]
PREFETCH = 100
SECOND = "leveret 2"
UPSTREAM, DOWNSTREAM = "upstream", "downstream"
STOP, KILL = "stop", "kill"
# upstream and downstream are separate processes; so RabbitMQ is not its own downstream
APART = [(LEVERET, RABBITMQ), (RABBITMQ, LEVERET), (LEVERET, SECOND)]
apart = pytest.mark.parametrize("kinds", APART, ids=["-to-".join(each).replace(" ", "") for each in APART])

# RabbitMQ is only killed: a stop takes it from 7 s to more than a minute
ABSENCES = [
    (kinds, which, how)
    for kinds in APART for which in (UPSTREAM, DOWNSTREAM) for how in (STOP, KILL)
    if how == KILL or kinds[which == DOWNSTREAM] != RABBITMQ
]  # fmt: skip


def linked(up: Site, down: Site, port: int | None = None) -> None:
    """Link for a stream, with a durable downstream queue without consumers."""
    for each in (up, down):
        each.exchange()
    down.channel.queue_declare("all", durable=True)
    down.channel.queue_bind("all", X, "k")
    down.upstream("u", up.uri(port=port), prefetch_count=PREFETCH, reconnect_delay=0.2)
    down.policy(federation_upstream="u")
    down.running()
    up.bound("k")


def copies_max(up: Site, down: Site, faults: int) -> int:
    """Return the permitted number of duplicates: none between two leveret brokers."""
    return 0 if up.node.kind == down.node.kind == LEVERET else PREFETCH * faults


def test_a_line_that_is_cut_again_and_again(pair: Pair, tap: Taps) -> None:
    up, down = pair
    way = tap(up)
    linked(up, down, way.port)
    faults = 3
    with Stream(up) as stream:
        for _ in range(faults):
            stream.more(150)
            way.cut()
            stream.more(50)
            way.mend()
            down.running()
        stream.more(100)
    lost, copies = stream.check(down, "all")
    assert lost == 0
    assert copies <= copies_max(up, down, faults)


def test_bindings_that_change_while_the_line_is_cut(pair: Pair, tap: Taps) -> None:
    """New bindings work, old ones are gone, and messages published meanwhile are delivered (restart_upstream)."""
    up, down = pair
    way = tap(up)
    for each in pair:
        each.exchange()
    inbox = down.inbox("stays", "goes")
    down.upstream("u", up.uri(port=way.port), reconnect_delay=0.2)
    down.policy(federation_upstream="u")
    down.running()
    up.bound("stays", "goes")
    (before,) = up.exchanges("federation: ")
    way.cut()
    until(lambda: not any(each["status"] == "running" for each in down.links()), lambda: f"{down.links()}")
    up.publish("stays", "meanwhile")
    inbox.unbind("goes", exchange=X)
    inbox.bind("new", exchange=X)
    way.mend()
    down.running()
    up.bound("stays", "new")
    inbox.expect("meanwhile")
    up.publish("goes", "not wanted")
    up.publish("new", "wanted")
    inbox.expect("meanwhile", "wanted")
    (after,) = up.exchanges("federation: ")
    assert {before["name"][-2:], after["name"][-2:]} == {" A", " B"}


@pytest.mark.parametrize(
    ("kinds", "which", "how"), ABSENCES, ids=["-".join(("-to-".join(kinds), *rest)) for kinds, *rest in ABSENCES]
)
def test_a_broker_that_goes_and_comes_back(site: Sites, kinds: tuple[str, str], which: str, how: str) -> None:
    up, down = (site(kind, "fault") for kind in kinds)
    linked(up, down)
    node = (up if which == UPSTREAM else down).node
    with Stream(up) as stream:
        stream.more(300)
        node.away(how)
        if which == DOWNSTREAM:
            stream.more(200)
            if node.kind == RABBITMQ:
                # A killed RabbitMQ may have forgotten which of the two internal exchanges its link uses, because mnesia
                # writes with a delay of up to 2 s. Then the link deletes that one and declares it anew, and loses what
                # is published between this and its bindings.
                stream.pause()
        node.back()
        for each in (up, down):
            each.leave()
        down.running()
        up.bound("k")
        stream.go_on()
        stream.more(300)
    lost, copies = stream.check(down, "all")
    assert lost == 0
    assert copies <= copies_max(up, down, 1)


@apart
def test_the_name_of_a_reply_is_dead_on_the_other_side(site: Sites, kinds: tuple[str, str]) -> None:
    """It crosses unchanged, and a reply from there reaches nobody."""
    up, down = (site(kind, "reply") for kind in kinds)
    for each in (up, down):
        each.exchange()
    inbox = down.inbox("k")
    down.federate(up)
    down.running()
    up.bound("k")
    answers = up.replies()
    up.publish("k", "request", reply_to="amq.rabbitmq.reply-to")
    request = inbox.next()
    name = request.properties.reply_to
    assert name.startswith("amq.rabbitmq.reply-to.")
    down.publish(name, "lost", exchange="")
    up.publish(name, "answer", exchange="")
    answers.expect("answer")
