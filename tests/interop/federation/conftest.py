"""Brokers for the tests of federation: one of each kind for the whole run, and virtual hosts for each test."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from .node import FEDERATING, LEVERET, PLAIN, RABBITMQ, Node
from .site import Site
from .tap import Tap

# pika logs a dozen lines for each attempt to reach a broker that is down.
logging.getLogger("pika").setLevel(logging.CRITICAL)

WITHOUT = "without"
# (upstream, downstream)
PAIRS = [(RABBITMQ, RABBITMQ), (LEVERET, RABBITMQ), (RABBITMQ, LEVERET), (LEVERET, LEVERET)]


@pytest.fixture(scope="session")
def nodes() -> Iterator[Callable[[str], Node]]:
    """Brokers by kind, started on first use; "leveret 2" is a second one of that kind, and "rabbitmq without" one
    without the federation plugin."""
    running: dict[str, Node] = {}
    with ExitStack() as stack:

        def node(kind: str) -> Node:
            if kind not in running:
                kind_alone, _, rest = kind.partition(" ")
                running[kind] = started = Node(kind_alone, PLAIN if rest == WITHOUT else FEDERATING)
                stack.enter_context(started.process)
            return running[kind]

        yield node


@pytest.fixture
def site(nodes: Callable[[str], Node]) -> Iterator[Callable[..., Site]]:
    """Create virtual hosts: on that kind of broker, with its purpose in its name, or with a given name.

    The last one is removed first: a downstream created after its upstream can then clean up there.
    """
    made: list[Site] = []

    def make(kind: str, role: str, name: str = "") -> Site:
        made.append(nodes(kind).site(name or f"{role}-{uuid.uuid4().hex[:6]}"))
        return made[-1]

    yield make
    for each in reversed(made):
        each.remove()


LIVE = pytest.mark.needs("rabbitmq")


@pytest.fixture(params=[pytest.param(pair, id="-to-".join(pair), marks=LIVE) for pair in PAIRS])
def pair(request: pytest.FixtureRequest, site: Callable[..., Site]) -> tuple[Site, Site]:
    """An upstream and a downstream, of all kinds of brokers. RabbitMQ with itself shows that the test is right."""
    upstream, downstream = request.param
    return site(upstream, "up"), site(downstream, "down")


@pytest.fixture
def tap() -> Iterator[Callable[[Site], Tap]]:
    """Create a tap between links and a site's broker."""
    with ExitStack() as stack:
        yield lambda to: stack.enter_context(Tap(to.node.process.port))
