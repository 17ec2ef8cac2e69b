"""Two brokers for the run: a RabbitMQ with its management plugin, and the one under test."""

from __future__ import annotations

import os
from collections.abc import Iterator
from urllib.parse import urlsplit

import pika
import pytest

from leveret.testing.processes import LeveretProcess, RabbitMQProcess, free_port

from .api import Api
from .pair import Broker, Pair

PLUGINS = ["rabbitmq_management", "rabbitmq_federation_management"]


@pytest.fixture(scope="session")
def rabbitmq() -> Iterator[Broker]:
    """The oracle: LEVERET_TEST_ORACLE_URL and LEVERET_TEST_ORACLE_API_URL, or a node of our own."""
    if "LEVERET_TEST_ORACLE_URL" in os.environ:
        yield Broker(os.environ["LEVERET_TEST_ORACLE_URL"], os.environ["LEVERET_TEST_ORACLE_API_URL"])
        return
    port = free_port()
    # Statistics every half second instead of five: the tests wait for them.
    settings = ["management.tcp.ip = 127.0.0.1", f"management.tcp.port = {port}", "collect_statistics_interval = 500"]
    with RabbitMQProcess(plugins=PLUGINS, settings="\n".join(settings)) as process:
        yield Broker(process.url, f"http://127.0.0.1:{port}")


@pytest.fixture(scope="session")
def subject() -> Iterator[Broker]:
    """The broker under test: LEVERET_TEST_URL with LEVERET_TEST_API_URL, or a leveret of our own."""
    if "LEVERET_TEST_API_URL" in os.environ:
        yield Broker(os.environ["LEVERET_TEST_URL"], os.environ["LEVERET_TEST_API_URL"])
        return
    with LeveretProcess(admin=True) as process:
        yield Broker(process.url, process.admin_url)


@pytest.fixture
def both(rabbitmq: Broker, subject: Broker) -> Iterator[Pair]:
    """Both brokers' APIs as an administrator; at the end of the test they must have answered alike."""
    with Pair(Api(rabbitmq.api), Api(subject.api)) as pair:
        yield pair
        pair.verify()


@pytest.fixture
def vhost(both: Pair, unique: str) -> Iterator[str]:
    """A virtual host of the test's own on both brokers; guest may do all in it."""
    for api in (both.rabbitmq, both.subject):
        assert api.call("PUT", f"/api/vhosts/{unique}").status == 201
    yield unique
    for api in (both.rabbitmq, both.subject):
        api.call("DELETE", f"/api/vhosts/{unique}")


def within(broker: Broker, vhost: str) -> str:
    """The AMQP URL of a virtual host, whose name needs no escaping."""
    return urlsplit(broker.url)._replace(path=f"/{vhost}").geturl()


def serve(connection: pika.BlockingConnection) -> None:
    """Serves a connection until it is closed, which pika raises."""
    while True:
        connection.process_data_events(0.1)
