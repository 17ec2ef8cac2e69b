"""docs/guides/federation.md: each command and program in it runs, on real brokers, with the documented result."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import trustme
from click.testing import CliRunner

from leveret.cli.main import main
from leveret.client import BlockingConnection, Properties
from leveret.testing.processes import LeveretProcess, free_port

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "federation.md"
ID = "5b4e2d1c"
"""The id of a link in the guide; the real one replaces it."""

SECTIONS = {
    "A first federated exchange": 7,
    "Upstreams, sets, policies": 5,
    "Topologies": 1,
    "Pair": 2,
    "Complete graph": 6,
    "Fan-out tree": 3,
    "Ring": 6,
    "Hops and loops": 2,
    "Access, TLS": 4,
    "Status and repair": 6,
}
"""The sections with commands, and how many; a test here runs each."""


def section(title: str) -> str:
    """Return the text of a section, up to the next heading."""
    _, _, rest = GUIDE.read_text().partition(f"# {title}\n")
    assert rest, title
    return re.split(r"^#+ ", rest, maxsplit=1, flags=re.M)[0]


def commands(text: str) -> list[str]:
    return re.findall(r"^    leveret (.*)$", text, re.M)


class Brokers:
    """The guide's brokers, by their directories; its ports are replaced by the real ones."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self.running: dict[str, LeveretProcess] = {}
        self._folder = folder
        self._stack = stack
        self._ports: dict[str, int] = {}

    def start(self, name: str, port: int, *arguments: str) -> LeveretProcess:
        """Start a broker; `port` is the one in the guide."""
        broker = self._stack.enter_context(LeveretProcess(self._folder / name, arguments=arguments))
        self.running[name] = broker
        self._ports[str(port)] = broker.port
        return broker

    def stand(self, port: int, actual: int) -> None:
        """Map a port of the guide without a broker of its own."""
        self._ports[str(port)] = actual

    def here(self, text: str) -> str:
        """Return the guide's text with these brokers in it."""
        text = re.sub(r"(localhost|127\.0\.0\.1):(\d+)", lambda found: f"localhost:{self._ports[found[2]]}", text)
        text = text.replace("/etc/leveret/", f"{self._folder}/")
        return re.sub(r"\./(\w+)", lambda found: str(self._folder / found[1]), text)

    def run(self, command: str) -> str:
        """Run a command of the guide; return its output."""
        done = CliRunner().invoke(main, shlex.split(self.here(command)))
        assert done.exit_code == 0, f"{command}: {done.output}"
        return done.output

    def program(self, mark: str) -> dict[str, Any]:
        """Run the program of the guide that contains these words; return the names that it sets."""
        [found] = [text for text in re.findall(r"```python\n(.*?)```", GUIDE.read_text(), re.S) if mark in text]
        names: dict[str, Any] = {}
        exec(compile(self.here(found), str(GUIDE), "exec"), names)
        return names

    def links(self, name: str) -> list[dict[str, Any]]:
        """Return the status of a broker's links."""
        return list(json.loads(self.run(f"ctl --data-dir ./{name} --formatter json federation_status")))

    def until(self, name: str, holds: Callable[[list[dict[str, Any]]], bool]) -> list[dict[str, Any]]:
        """Poll a broker's links until this holds; return them."""
        while not holds(links := self.links(name)):
            pass  # each poll is a call of the broker
        return links

    def linked(self, name: str, upstreams: set[str]) -> None:
        """Return when exactly these are linked, with all bindings."""
        self.until(
            name,
            lambda links: (
                {link["upstream"] for link in links} == upstreams
                and all(link["status"] == "running" and link["bindings"] and not link["unbound"] for link in links)
            ),
        )

    def federate(self) -> None:
        """Set the policy of the topologies on each broker."""
        [command] = commands(section("Topologies"))
        for name in self.running:
            self.run(command.replace("BROKER", name))


@pytest.fixture
def brokers(tmp_path: Path) -> Iterator[Brokers]:
    with ExitStack() as stack:
        yield Brokers(tmp_path, stack)


@pytest.fixture
def pair(brokers: Brokers) -> Brokers:
    """East and west, with a federated exchange in the west that is bound to everything."""
    brokers.start("east", 5672)
    brokers.start("west", 5673)
    declare(brokers.running["west"])
    return brokers


def declare(broker: LeveretProcess) -> None:
    with BlockingConnection(broker.url, reconnect=False) as connection:
        channel = connection.channel()
        channel.declare_exchange("orders", kind="topic")
        channel.declare_queue("all")
        channel.bind_queue("all", "orders", "#")


def publish(broker: LeveretProcess, message_id: str) -> None:
    with BlockingConnection(broker.url, reconnect=False) as connection:
        channel = connection.channel()
        channel.confirm_select()
        channel.publish(b"x", "orders", "order", Properties(message_id=message_id), mandatory=True)
        channel.wait_for_confirms()


def taken(broker: LeveretProcess, until: set[str]) -> list[str]:
    """Return the ids of the queue's messages, once these have arrived."""
    ids: list[str] = []
    with BlockingConnection(broker.url, reconnect=False) as connection:
        channel = connection.channel()
        channel.consume("all", no_ack=True)
        while not until <= set(ids):
            ids += [delivery.properties.message_id or "" for delivery in channel.deliveries(100)]
    return ids


def test_every_command_of_the_guide_is_run_here() -> None:
    """A new command needs a test."""
    found = {title: len(commands(section(title))) for title in SECTIONS}
    assert found == SECTIONS
    assert sum(found.values()) == len(commands(GUIDE.read_text()))
    assert GUIDE.read_text().count("```python\n") == 2


def test_what_it_points_to_is_there() -> None:
    headings = re.findall(r"^#+ (.*)$", GUIDE.read_text(), re.M)
    anchors = {heading.lower().replace(" ", "-") for heading in headings}
    targets = set(re.findall(r"\]\(([\w./-]*)(?:#([\w-]+))?\)", GUIDE.read_text()))
    assert len(targets) >= 4
    for name, anchor in targets:
        assert not name or (GUIDE.parent / name).exists()
        assert not anchor or anchor in anchors


def test_every_parameter_is_in_the_table_with_its_default() -> None:
    from leveret.control.validation import federation_rules
    from leveret.federation.upstream import upstream_of

    rows = dict(re.findall(r"^\| `([\w-]+)` \| ([^|]+) \|", section("Upstreams, sets, policies"), re.M))
    unused = set(re.findall(r"`([\w-]+)`", GUIDE.read_text().partition("are accepted without effect")[0][-60:]))
    assert unused == {"ha-policy", "consumer-tag", "queue"}
    assert rows.keys() | unused == federation_rules._SHARED.keys() | {"uri"}
    defaults = upstream_of("u", {"uri": "amqp://localhost"}, "the same name")
    for name, said in rows.items():
        if name == "uri":
            continue
        field = {"reconnect-delay": "reconnect_delay_s", "expires": "expires_ms", "message-ttl": "message_ttl_ms"}
        value = getattr(defaults, field.get(name, name.replace("-", "_")))
        shown = {None: "none", False: "false"}.get(value, str(value) if name == "exchange" else f"{value}")
        assert said.strip("` ") == (f"{value:g}" if isinstance(value, float) else shown), name


def test_a_first_federated_exchange(brokers: Brokers) -> None:
    serve_east, serve_west, *rest = commands(section("A first federated exchange"))
    for serve in (serve_east, serve_west):
        data_dir, port = re.fullmatch(r"serve --data-dir \./(\w+) --port (\d+)", serve).groups()  # type: ignore[union-attr]
        brokers.start(data_dir, int(port))
    upstream, policy, status, queues, clear = rest
    brokers.run(upstream)
    brokers.run(policy)
    brokers.program('west.bind_queue("orders.eu"')
    brokers.linked("west", {"east"})
    assert "running" in brokers.run(status)
    names = brokers.program("it does not cross")
    assert names["delivery"].body == b"tea"
    assert names["delivery"].properties.headers["x-received-from"][0]["exchange"] == "orders"
    assert names["west"].next_delivery(0.1) is None
    assert "federation: orders" in brokers.run(queues)
    # messages published meanwhile wait in the east, and arrive afterwards
    brokers.running["west"].stop()
    with BlockingConnection(brokers.running["east"].url, reconnect=False) as connection:
        channel = connection.channel()
        channel.confirm_select()
        channel.publish(b"milk", "orders", "order.eu.19", Properties(delivery_mode=2), mandatory=True)
        channel.wait_for_confirms()
    brokers.running["west"].start()
    with BlockingConnection(brokers.running["west"].url, reconnect=False) as connection:
        channel = connection.channel()
        channel.consume("orders.eu", no_ack=True)
        delivery = channel.next_delivery()
        assert delivery is not None
        assert delivery.body == b"milk"
    brokers.run(clear)
    assert brokers.until("west", lambda links: links == []) == []
    while "federation: orders" in brokers.run(queues):
        pass


def test_sets_and_policies(pair: Brokers) -> None:
    pair.start("north", 5674)
    [upstream_of_start] = [each for each in commands(section("A first federated exchange")) if "set_parameter" in each]
    pair.run(upstream_of_start)
    north, near, *policies = commands(section("Upstreams, sets, policies"))
    pair.run(north)
    pair.run(near)
    for policy, upstreams in zip(policies, [{"east", "north"}, {"east"}, {"east", "north"}], strict=True):
        pair.run(policy)
        pair.linked("west", upstreams)


@pytest.mark.parametrize(
    ("title", "ports", "upstreams", "reach"),
    [
        ("Pair", {"east": 5672, "west": 5673}, {"east": "west", "west": "east"}, None),
        (
            "Complete graph",
            {"east": 5672, "west": 5673, "north": 5674},
            {"east": "west north", "west": "east north", "north": "east west"},
            None,
        ),
        (
            "Fan-out tree",
            {"root": 5672, "branch": 5673, "twig": 5675, "leaf": 5676},
            {"branch": "root", "twig": "root", "leaf": "branch"},
            {"root": "root branch twig leaf", "branch": "branch leaf", "twig": "twig", "leaf": "leaf"},
        ),
        (
            "Ring",
            {"one": 5671, "two": 5672, "three": 5673, "four": 5674, "five": 5675, "six": 5676},
            {"one": "six", "two": "one", "three": "two", "four": "three", "five": "four", "six": "five"},
            None,
        ),
    ],
)
def test_topologies(
    brokers: Brokers, title: str, ports: dict[str, int], upstreams: dict[str, str], reach: dict[str, str] | None
) -> None:
    """Every message arrives exactly once in each queue that it must reach, and in no other."""
    for name, port in ports.items():
        declare(brokers.start(name, port))
    for command in commands(section(title)):
        brokers.run(command)
    brokers.federate()
    for name, wanted in upstreams.items():
        brokers.linked(name, set(wanted.split()))
    reached = {name: (reach[name].split() if reach else list(ports)) for name in ports}
    due: dict[str, set[str]] = {name: set() for name in ports}
    came: dict[str, list[str]] = {name: [] for name in ports}
    # bindings spread hop by hop: a first message of each that arrives everywhere shows that they are complete
    for source in ports:
        spread(brokers, source, reached[source], came)
    for number in range(5):
        for source in ports:
            publish(brokers.running[source], f"{source}-{number}")
            for name in reached[source]:
                due[name].add(f"{source}-{number}")
    for name in ports:
        came[name] += taken(brokers.running[name], due[name])
    for name in ports:
        brokers.until(name, lambda links: all(not (link["lag"] or link["unacknowledged"]) for link in links))
    for name in ports:
        came[name] += taken(brokers.running[name], set())
        messages = [message_id for message_id in came[name] if not message_id.startswith("first")]
        assert sorted(messages) == sorted(due[name]), name


def spread(brokers: Brokers, source: str, reached: list[str], came: dict[str, list[str]]) -> None:
    """Publish until a message of this broker has arrived everywhere it must."""
    left, number = set(reached), 0
    while left:
        publish(brokers.running[source], f"first-{source}-{number}")
        number += 1
        for name in sorted(left):
            came[name] += waiting(brokers.running[name])
            if any(message_id.startswith(f"first-{source}-") for message_id in came[name]):
                left.discard(name)


def waiting(broker: LeveretProcess) -> list[str]:
    """Consume the queue's current messages; return their ids."""
    ids = []
    with BlockingConnection(broker.url, reconnect=False) as connection:
        channel = connection.channel()
        while (delivery := channel.get("all", no_ack=True)) is not None:
            ids.append(delivery.properties.message_id or "")
    return ids


def test_a_cluster_name(pair: Brokers) -> None:
    rename, show = commands(section("Hops and loops"))
    pair.run(rename)
    assert "west" in pair.run(show)
    with BlockingConnection(pair.running["west"].url, reconnect=False) as connection:
        assert connection.server_properties["cluster_name"] == "west"


def test_cluster_names_differ_unless_somebody_sets_them(pair: Brokers) -> None:
    names = set()
    for broker in pair.running.values():
        with BlockingConnection(broker.url, reconnect=False) as connection:
            names.add(connection.server_properties["cluster_name"])
    assert len(names) == 2


def test_permissions_are_enough_and_needed(pair: Brokers) -> None:
    add_user, permissions, upstream, _ = commands(section("Access, TLS"))
    policy = next(each for each in commands(section("A first federated exchange")) if "set_policy" in each)
    pair.run(add_user)
    pair.run(permissions.replace("'^(federation: .*|orders)$'", "'^federation: '"))
    pair.run(upstream)
    pair.run(policy)
    [link] = pair.until("west", lambda links: any(link.get("error") for link in links))
    assert "ACCESS_REFUSED" in link["error"]
    assert "secret" not in json.dumps(link)
    pair.run(permissions)
    pair.linked("west", {"east"})
    publish(pair.running["east"], "m")
    assert taken(pair.running["west"], {"m"}) == ["m"]


def test_tls(brokers: Brokers, tmp_path: Path) -> None:
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    certificate = authority.issue_cert("localhost")
    certificate.private_key_pem.write_to_path(tmp_path / "key.pem")
    certificate.cert_chain_pems[0].write_to_path(tmp_path / "cert.pem")
    port = free_port()
    files = ("--tls-cert", str(tmp_path / "cert.pem"), "--tls-key", str(tmp_path / "key.pem"))
    brokers.start("east", 5672, "--tls-port", str(port), *files)
    brokers.stand(5671, port)
    declare(brokers.start("west", 5673))
    *_, upstream = commands(section("Access, TLS"))
    policy = next(each for each in commands(section("A first federated exchange")) if "set_policy" in each)
    brokers.run(policy)
    brokers.run(upstream.replace("?cacertfile=/etc/leveret/ca.pem", ""))
    [link] = brokers.until("west", lambda links: any(link.get("error") for link in links))
    assert "certificate" in link["error"]
    brokers.run(upstream)
    brokers.linked("west", {"east"})
    publish(brokers.running["east"], "m")
    assert taken(brokers.running["west"], {"m"}) == ["m"]


def test_status_and_repair(pair: Brokers) -> None:
    for command in commands(section("A first federated exchange")):
        if "set_p" in command:
            pair.run(command)
    pair.linked("west", {"east"})
    status, down, as_json, restart, pause, resume = commands(section("Status and repair"))
    assert "running" in pair.run(status)
    assert "east" not in pair.run(down)
    [link] = json.loads(pair.run(as_json))
    pair.run(restart.replace(ID, link["id"]))
    pair.linked("west", {"east"})
    pair.run(pause.replace(ID, link["id"]))
    pair.until("west", lambda links: [link["status"] for link in links] == ["paused"])
    publish(pair.running["east"], "m")
    assert waiting(pair.running["west"]) == []
    pair.run(resume.replace(ID, link["id"]))
    assert taken(pair.running["west"], {"m"}) == ["m"]


def test_the_states_of_a_link_are_told() -> None:
    from leveret.federation import status

    told = re.findall(r"^\| `(\w+)` \|", section("Status and repair"), re.M)
    assert told[0] == "status"
    assert set(told[1:]) == {status.STARTING, status.RUNNING, status.ERROR, status.PAUSED, status.REFUSED}
