"""Several brokers, one logical exchange: every consumer gets every message once, with the right path in its headers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import permutations

import pytest

from .inbox import Inbox
from .node import LEVERET, RABBITMQ
from .site import Site, X

pytestmark = pytest.mark.needs("rabbitmq")

Sites = Callable[..., Site]
SECOND = "leveret 2"
MIXES = [
    (RABBITMQ, RABBITMQ, RABBITMQ),  # RabbitMQ alone shows that the test is right
    (LEVERET, RABBITMQ, SECOND),
    (RABBITMQ, LEVERET, RABBITMQ),
    (LEVERET, SECOND, LEVERET),
]
mixed = pytest.mark.parametrize("kinds", MIXES, ids=["-".join(each).replace(" ", "") for each in MIXES])


def build(
    site: Sites, kinds: Sequence[str], links: Sequence[tuple[int, int]], max_hops: int
) -> tuple[list[Site], list[Inbox]]:
    """Return sites with an exchange and a consumer of everything, and link them as (upstream, downstream)."""
    sites = [site(kind, f"n{number}") for number, kind in enumerate(kinds)]
    for each in sites:
        each.exchange()
    inboxes = [each.inbox("#") for each in sites]
    for number, down in enumerate(sites):
        upstreams = [sites[up] for up, to in links if to == number]
        if upstreams:
            down.federate(*upstreams, max_hops=max_hops)
            down.running(len(upstreams))
    return sites, inboxes


def publish_everywhere(sites: list[Site], inboxes: list[Inbox]) -> None:
    """Publish from each site, and check that all get each message once. A duplicate would arrive before messages
    published later on the same path, so as many rounds as a path has steps reveal it."""
    bodies: list[str] = []
    for number in range(2 * len(sites)):
        for each in sites:
            bodies.append(f"{number} of {each.name}")
            each.publish("k", bodies[-1])
        for inbox in inboxes:
            inbox.expect(*bodies)


def ways(inbox: Inbox) -> dict[str, list[tuple[str, str]]]:
    """Return source of messages -> the sites on their path, as (cluster, vhost), the last one first."""
    found: dict[str, list[tuple[str, str]]] = {}
    for each in inbox.got:
        history = (each.properties.headers or {}).get("x-received-from", [])
        way = [(hop["cluster-name"], hop["vhost"]) for hop in history]
        assert found.setdefault(each.body.decode().rpartition(" ")[2], way) == way
    return found


def identity(site: Site) -> tuple[str, str]:
    """The name of a site in the headers of its messages."""
    return site.node.cluster, site.name


def each_saw(sites: list[Site], inboxes: list[Inbox], way: Callable[[int, int], list[int]]) -> None:
    """Check paths; `way` returns the expected path of messages from one to another, the last site first."""
    for to, inbox in enumerate(inboxes):
        expected = {
            each.name: [identity(sites[step]) for step in way(number, to)] for number, each in enumerate(sites)
        }
        assert ways(inbox) == expected


def all_bound(sites: list[Site], links: Sequence[tuple[int, int]], counts: int) -> None:
    """Wait until each upstream has `counts` bindings for each of its links."""
    for number, each in enumerate(sites):
        degree = sum(up == number for up, _ in links)
        each.bound(*["#"] * degree * counts)


@mixed
@pytest.mark.parametrize("max_hops", [1, 10])
def test_a_pair_both_ways(site: Sites, kinds: Sequence[str], max_hops: int) -> None:
    """no_loop; if max-hops exceeds the number of brokers, the history ends the cycle (message_cycle_detection)."""
    links = [(0, 1), (1, 0)]
    sites, inboxes = build(site, kinds[:2], links, max_hops)
    all_bound(sites, links, 1)
    publish_everywhere(sites, inboxes)
    each_saw(sites, inboxes, lambda of, to: [] if of == to else [of])


@mixed
def test_a_complete_graph(site: Sites, kinds: Sequence[str]) -> None:
    links = list(permutations(range(3), 2))
    sites, inboxes = build(site, kinds, links, 1)
    all_bound(sites, links, 1)
    publish_everywhere(sites, inboxes)
    each_saw(sites, inboxes, lambda of, to: [] if of == to else [of])


@mixed
def test_a_ring(site: Sites, kinds: Sequence[str]) -> None:
    """max_hops."""
    links = [(0, 1), (1, 2), (2, 0)]
    sites, inboxes = build(site, kinds, links, 2)
    all_bound(sites, links, 2)  # of the neighbour and, passed on, of the one behind it
    publish_everywhere(sites, inboxes)
    each_saw(sites, inboxes, lambda of, to: [(to - step) % 3 for step in range(1, (to - of) % 3 + 1)])


@mixed
def test_a_chain(site: Sites, kinds: Sequence[str]) -> None:
    """Messages go down as far as max-hops allows, and never up (message_cycle_detection_case2)."""
    sites, inboxes = build(site, kinds, [(0, 1), (1, 2)], 2)
    sites[0].bound("#", "#")
    sites[1].bound("#")
    bodies: list[str] = []
    seen: list[list[str]] = [[], [], []]
    for number in range(6):
        for place, each in enumerate(sites):
            bodies.append(f"{number} of {each.name}")
            each.publish("k", bodies[-1])
            for below in range(place, 3):
                seen[below].append(bodies[-1])
        for inbox, expected in zip(inboxes, seen, strict=True):
            inbox.expect(*expected)


@mixed
def test_hops_end(site: Sites, kinds: Sequence[str]) -> None:
    """A chain with links of one hop: messages of the first do not reach the last."""
    sites, inboxes = build(site, kinds, [(0, 1), (1, 2)], 1)
    sites[0].bound("#")
    sites[1].bound("#")
    sites[0].publish("k", "far")
    inboxes[1].expect("far")
    sites[1].publish("k", "near")
    inboxes[2].expect("near")
    inboxes[1].expect("far", "near")


def test_a_federated_exchange_has_many_downstreams(site: Sites) -> None:
    """A tree of both kinds: all leaves get the messages published at the root, which needs no federation itself."""
    kinds = (LEVERET, RABBITMQ, SECOND, RABBITMQ, LEVERET, SECOND, RABBITMQ)
    links = [(0, 1), (0, 2), (1, 3), (1, 4), (2, 5), (2, 6)]
    sites = [site(kind, f"n{number}") for number, kind in enumerate(kinds)]
    for each in sites:
        each.exchange(kind="fanout")
    inboxes = {number: sites[number].inbox("") for number in (3, 4, 5, 6)}
    for up, down in links:
        sites[down].federate(sites[up], max_hops=2)
        sites[down].running()
    for number, count in ((0, 4), (1, 2), (2, 2)):  # the leaves' bindings are passed on to the root
        sites[number].bound(*[""] * count)
    bodies = [str(number) for number in range(20)]
    for body in bodies:
        sites[0].publish("", body, exchange=X)
    for inbox in inboxes.values():
        inbox.expect(*bodies)
