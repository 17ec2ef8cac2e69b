"""Two brokers for the run: a RabbitMQ with its management plugin, and the broker under test."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator
from urllib.parse import urlsplit

import pika
import pytest

from leveret.testing.processes import LeveretProcess, RabbitMQProcess, free_port

from .api import Api
from .pair import Broker, Pair
from .recording import IS_RECORDING, Recording, Tape

LIVE, RECORDED = "live", "recorded"
PLUGINS = ["rabbitmq_management", "rabbitmq_federation_management"]
ARGUMENTS = "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS"
KEEP_COUNTS = f"-rabbit core_metrics_gc_interval {24 * 3_600_000}"
"""Every two minutes RabbitMQ deletes what it has counted of channels that are gone and of queues that it does not find.

What it counted since it last collected statistics is then lost for ever: a test that publishes over HTTP, by a channel
that is closed at once, would wait in vain for its message to be counted. So it does that once a day.
"""


@pytest.fixture(scope="session")
def rabbitmq() -> Iterator[Broker]:
    """The reference: LEVERET_TEST_ORACLE_URL and LEVERET_TEST_ORACLE_API_URL, or a new RabbitMQ node."""
    if "LEVERET_TEST_ORACLE_URL" in os.environ:
        yield Broker(os.environ["LEVERET_TEST_ORACLE_URL"], os.environ["LEVERET_TEST_ORACLE_API_URL"])
        return
    port = free_port()
    # statistics every half second instead of every five: the tests wait for them
    settings = ["management.tcp.ip = 127.0.0.1", f"management.tcp.port = {port}", "collect_statistics_interval = 500"]
    node = RabbitMQProcess(plugins=PLUGINS, settings="\n".join(settings))
    node.extra_environment[ARGUMENTS] = f"{node.environment()[ARGUMENTS]} {KEEP_COUNTS}"
    with node as process:
        yield Broker(process.url, f"http://127.0.0.1:{port}")


@pytest.fixture(scope="session")
def subject() -> Iterator[Broker]:
    """The broker under test: LEVERET_TEST_URL with LEVERET_TEST_API_URL, or a new leveret."""
    if "LEVERET_TEST_API_URL" in os.environ:
        yield Broker(os.environ["LEVERET_TEST_URL"], os.environ["LEVERET_TEST_API_URL"])
        return
    with LeveretProcess(admin=True) as process:
        yield Broker(process.url, process.admin_url)


@pytest.fixture(scope="session", params=[pytest.param(LIVE, marks=pytest.mark.needs("rabbitmq")), RECORDED])
def against(request: pytest.FixtureRequest) -> str:
    """The broker under test is compared with a running RabbitMQ, or with its recorded answers.

    When recording, RabbitMQ's answers are written first.
    """
    return str(request.param)


@pytest.fixture(scope="session")
def brokers(request: pytest.FixtureRequest, against: str, subject: Broker) -> list[Broker]:
    """The brokers that run: RabbitMQ, if it is compared with, and the broker under test."""
    return [request.getfixturevalue("rabbitmq"), subject] if against == LIVE else [subject]


@pytest.fixture(scope="module")
def recording(request: pytest.FixtureRequest, against: str) -> Recording:
    return Recording(request.path.stem)


@pytest.fixture
def title(request: pytest.FixtureRequest) -> str:
    return re.sub(rf"(?<=\[)({LIVE}|{RECORDED})(-|(?=\]))", "", request.node.name, count=1)


@pytest.fixture
def both(
    brokers: list[Broker], subject: Broker, recording: Recording, title: str, unique: str
) -> Iterator[Pair]:
    """Both brokers' APIs as an administrator; at the end of the test their answers must be the same."""
    rabbitmq = Api(brokers[0].api) if len(brokers) > 1 else None
    with Pair(rabbitmq, Api(subject.api), Tape(recording, title, unique, IS_RECORDING and len(brokers) > 1)) as pair:
        yield pair
        pair.verify()


@pytest.fixture
def unique(request: pytest.FixtureRequest, title: str) -> str:
    """A name that no other test uses, and that is the same in each run, because it is recorded."""
    return f"t-{hashlib.sha256(f'{request.path.name}::{title}'.encode()).hexdigest()[:12]}"


@pytest.fixture
def vhost(both: Pair, unique: str) -> Iterator[str]:
    """A virtual host of this test on both brokers, in which guest has all permissions."""
    for api in both.apis:
        assert api.call("PUT", f"/api/vhosts/{unique}").status == 201
    yield unique
    for api in both.apis:
        api.call("DELETE", f"/api/vhosts/{unique}")


def within(broker: Broker, vhost: str) -> str:
    """Return the AMQP URL of a virtual host, whose name needs no escaping."""
    return urlsplit(broker.url)._replace(path=f"/{vhost}").geturl()


def serve(connection: pika.BlockingConnection) -> None:
    """Serve a connection until it is closed, when pika raises an exception."""
    while True:
        connection.process_data_events(0.1)
