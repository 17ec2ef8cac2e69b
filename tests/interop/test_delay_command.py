"""``leveret delay`` against a leveret and a RabbitMQ, each with its HTTP API."""

from __future__ import annotations

import asyncio
import json
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from urllib.parse import urlsplit

import pytest
from click.testing import CliRunner, Result
from tests.conftest import OWN
from tests.shared import virtual_host

from leveret.cli.main import main
from leveret.client import BlockingConnection
from leveret.delay import NSERVICEBUS, Layout
from leveret.testing.processes import LeveretProcess

SMALL = "nservicebus,prefix=cli,levels=5"


@dataclass(frozen=True)
class Place:
    """A broker: its AMQP URL and its HTTP API's."""

    url: str
    api: str

    @property
    def vhost(self) -> str:
        """The virtual host, as it is written in URLs."""
        return urlsplit(self.url).path[1:]

    def put(self, path: str, body: dict[str, object]) -> None:
        request = urllib.request.Request(f"{self.api}/api/{path}", json.dumps(body).encode(), method="PUT")
        request.add_header("Authorization", "Basic Z3Vlc3Q6Z3Vlc3Q=")
        request.add_header("Content-Type", "application/json")
        with urllib.request.urlopen(request, timeout=30):
            pass


@pytest.fixture(scope="module")
def our_place() -> Iterator[Place]:
    with LeveretProcess(admin=True) as process:
        process.said("the HTTP API is on")
        yield Place(process.url, process.admin_url)


@pytest.fixture(scope="module")
def rabbit_place(rabbitmq_api: str) -> Iterator[Place]:
    """A virtual host of its own: elsewhere NServiceBus's levels hold delayed messages of other tests."""
    with virtual_host(f"{OWN}-delay-command") as url:
        yield Place(url, rabbitmq_api)


@pytest.fixture(params=["our_place", pytest.param("rabbit_place", marks=pytest.mark.needs("rabbitmq"))])
def place(request: pytest.FixtureRequest) -> Iterator[Place]:
    found = request.getfixturevalue(request.param)
    assert isinstance(found, Place)
    yield found
    with BlockingConnection(found.url, reconnect=False) as connection, connection.channel() as channel:
        for prefix in ("cli", "cli2"):
            for name in (*(f"{prefix}.delay-level-{level:02d}" for level in range(5)), f"{prefix}.delay-delivery"):
                channel.delete_queue(name)
                channel.delete_exchange(name)
        for name in ("cli.orders", "delays-migrate-poison-messages"):
            channel.delete_queue(name)


def leveret(*arguments: str) -> Result:
    result = CliRunner().invoke(main, ["delay", *arguments])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result


def states(result: Result) -> dict[str, str]:
    """Return item -> state of a verification."""
    found = {}
    for line in result.output.splitlines():
        for state in ("ok", "missing", "different", "warning", "unknown"):
            what, separator, _ = line.partition(f"  {state}")
            if separator and what.strip() not in found:
                found[what.strip()] = state
    return found


def test_a_layout_is_created_twice_and_is_complete(place: Place) -> None:
    for _ in range(2):
        created = leveret("create", "--url", place.url, "--layout", SMALL)
        assert created.exit_code == 0
        assert "cli.delay-level-04 to cli.delay-level-00, then cli.delay-delivery" in created.output
    for more in ([], ["--api", place.api]):
        verified = leveret("verify", "--url", place.url, "--layout", SMALL, *more)
        assert verified.exit_code == 0, verified.output
        assert "the layout is complete" in verified.output
        assert set(states(verified).values()) <= {"ok", "warning", "unknown"}


def test_options_change_a_layout(place: Place) -> None:
    options = ["--layout", "milliseconds", "--prefix", "cli", "--levels", "3", "--unit-ms", "10"]
    assert leveret("create", "--url", place.url, *options).exit_code == 0
    with BlockingConnection(place.url, reconnect=False) as connection, connection.channel() as channel:
        Layout("cli", unit_ms=10, levels=3).declare_blocking(channel)


def test_a_conflict_names_the_queue_and_what_differs(place: Place) -> None:
    assert leveret("create", "--url", place.url, "--layout", SMALL).exit_code == 0
    refused = leveret("create", "--url", place.url, "--layout", SMALL, "--unit-ms", "10")
    assert refused.exit_code == 1
    assert "queue 'cli.delay-level-04' already exists with other properties: PRECONDITION_FAILED" in refused.output
    assert "x-message-ttl" in refused.output
    assert "another prefix" in refused.output
    verified = leveret("verify", "--url", place.url, "--layout", SMALL, "--unit-ms", "10")
    assert verified.exit_code == 1
    assert {states(verified)[f"queue 'cli.delay-level-{level:02d}'"] for level in range(5)} == {"different"}
    assert states(verified)["exchange 'cli.delay-level-00'"] == "ok"


def test_to_verify_what_is_not_there_creates_nothing(place: Place) -> None:
    for _ in range(2):
        verified = leveret("verify", "--url", place.url, "--layout", SMALL)
        assert verified.exit_code == 1
        found = states(verified)
        assert [found[f"{kind} 'cli.delay-level-00'"] for kind in ("exchange", "queue")] == ["missing", "missing"]
        assert found["exchange 'cli.delay-delivery'"] == "missing"


def test_a_binding_between_levels_is_missed_by_a_probe(place: Place) -> None:
    leveret("create", "--url", place.url, "--layout", SMALL)
    with BlockingConnection(place.url, reconnect=False) as connection, connection.channel() as channel:
        channel.unbind_exchange("cli.delay-level-01", "cli.delay-level-02", "*.*.0.#")
    verified = leveret("verify", "--url", place.url, "--layout", SMALL)
    assert verified.exit_code == 1
    assert states(verified)["bindings between levels"] == "missing"
    assert "exchange 'cli.delay-level-02'" in verified.output
    leveret("create", "--url", place.url, "--layout", SMALL)
    assert leveret("verify", "--url", place.url, "--layout", SMALL).exit_code == 0


def test_bindings_and_policies_are_told_by_the_api(place: Place) -> None:
    leveret("create", "--url", place.url, "--layout", SMALL)
    with BlockingConnection(place.url, reconnect=False) as connection, connection.channel() as channel:
        channel.declare_queue("cli.orders")
        channel.bind_queue("cli.orders", "cli.delay-delivery", "#.cli.orders")
        channel.bind_queue("cli.orders", "cli.delay-level-03", "#")
        channel.unbind_queue("cli.delay-level-03", "cli.delay-level-03", "*.1.#")
    verified = leveret("verify", "--url", place.url, "--layout", SMALL, "--api", place.api)
    assert verified.exit_code == 1
    found = states(verified)
    assert found["the binding of queue 'cli.delay-level-03' to 'cli.delay-level-03' with '*.1.#'"] == "missing"
    assert found["the binding of queue 'cli.orders' to 'cli.delay-level-03' with '#'"] == "warning"
    assert "cli.orders" in next(line for line in verified.output.splitlines() if line.startswith("destinations"))


def test_a_policy_that_makes_messages_early_is_told(place: Place) -> None:
    leveret("create", "--url", place.url, "--layout", SMALL)
    policy = {"pattern": "^cli\\.", "definition": {"message-ttl": 1000}, "apply-to": "queues"}
    place.put(f"policies/{place.vhost}/cli-short", dict(policy))
    try:
        async def told() -> Result:
            async with asyncio.timeout(60):  # RabbitMQ's API knows policies later than its queues
                while True:
                    verified = await asyncio.to_thread(
                        leveret, "verify", "--url", place.url, "--layout", SMALL, "--api", place.api
                    )
                    if verified.exit_code:
                        return verified

        verified = asyncio.run(told())
        assert states(verified)["policy of queue 'cli.delay-level-04'"] == "different"
        assert "messages may come early" in verified.output
    finally:
        request = urllib.request.Request(f"{place.api}/api/policies/{place.vhost}/cli-short", method="DELETE")
        request.add_header("Authorization", "Basic Z3Vlc3Q6Z3Vlc3Q=")
        urllib.request.urlopen(request, timeout=30).close()


def test_migrate_says_what_it_would_do_and_does_it(place: Place) -> None:
    source = Layout("cli", levels=5, queue_arguments=NSERVICEBUS.queue_arguments, delay_header=NSERVICEBUS.delay_header)
    with BlockingConnection(place.url, reconnect=False) as connection, connection.channel() as channel:
        channel.confirm_select()
        source.declare_blocking(channel)
        channel.declare_queue("cli.orders")
        for _ in range(20):
            source.publish_blocking(channel, b"x", "cli.orders", 31)
        channel.publish(b"y", "cli.delay-level-04", "1.1.1.1.1.cli.orders")
        source.publish_blocking(channel, b"z", "cli.nobody", 30)
        channel.wait_for_confirms(60)  # a RabbitMQ queue does not count messages that are still under way
    arguments = ["migrate", "--url", place.url, "--from", SMALL, "--to", SMALL.replace("cli", "cli2")]
    dry = leveret(*arguments, "--dry-run")
    assert "20 would be moved" in dry.output
    done = leveret(*arguments)
    assert done.exit_code == 1
    assert "20 moved, 0 of them already due" in done.output
    assert "for cli.orders" in done.output
    assert "1 put into delays-migrate-poison-messages" in done.output
    assert "1 left where they are: the destination 'cli.nobody' does not exist" in done.output


@pytest.mark.needs("rabbitmq")
def test_transfer_from_rabbitmq_to_leveret(our_place: Place, rabbit_place: Place) -> None:
    """An endpoint moves with its delayed messages, from NServiceBus's first layout to its second."""
    for home in (our_place, rabbit_place):
        with BlockingConnection(home.url, reconnect=False) as connection, connection.channel() as channel:
            channel.declare_queue("cli.orders")
            if home is rabbit_place:
                channel.confirm_select()
                NSERVICEBUS.declare_blocking(channel)
                for _ in range(100):
                    NSERVICEBUS.publish_blocking(channel, b"x", "cli.orders", 1000)
                channel.wait_for_confirms()
    done = leveret("transfer", "--url", rabbit_place.url, "--to", our_place.url, "--to-layout", "nservicebus-v2")
    assert done.exit_code == 0, done.output
    assert "100 moved" in done.output
    verified = leveret("verify", "--url", our_place.url, "--layout", "nservicebus-v2", "--api", our_place.api)
    assert verified.exit_code == 0
    lines = verified.output.splitlines()
    assert "100 waiting" in next(line for line in lines if line.startswith("queue 'nsb.v2.delay-level-09'"))


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["create", "--url", "http://localhost"], "begins with amqp://"),
        (["create", "--layout", "kafka"], "unknown layout 'kafka'"),
        (["create", "--layout", "nservicebus,depth=3"], "unknown field 'depth'"),
        (["create", "--layout", "nservicebus,levels=x"], "levels must be a number"),
        (["create", "--levels", "29"], "1 to 28"),
        (["create", "--unit-ms", "60000"], "brokers take no more"),
        (["verify", "--api", "localhost:15672"], "begins with http://"),
        (["migrate", "--to", "nservicebus"], "nothing to move"),
        (["transfer", "--to", "amqp://127.0.0.1"], "the same broker"),
        (["transfer"], "Missing option '--to'"),
        (["create", "--url", "amqp://127.0.0.1:1"], "cannot connect to 127.0.0.1:1"),
    ],
)
def test_what_can_not_be_done_is_said(arguments: list[str], says: str) -> None:
    result = leveret(*arguments)
    assert result.exit_code == 2
    assert says in result.output
    assert "Traceback" not in result.output
