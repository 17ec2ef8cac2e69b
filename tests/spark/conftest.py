"""Fixtures of the Spark tests: one session for all of them, tuned for small amounts; a broker, a channel, a queue."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.sql import SparkSession

from leveret import spark as leveret_spark
from leveret.client import BlockingChannel, BlockingConnection
from leveret.spark.java import short_lived
from leveret.testing.processes import LeveretProcess

from ..waiting import until
from . import sealed

SETTINGS = {
    # a task that fails is tried twice, as clusters retry tasks several times
    "spark.master": "local[2, 2]",
    "spark.driver.memory": "1g",
    # a test run is too short for the second compiler and a parallel collector to pay off
    "spark.driver.extraJavaOptions": short_lived(),
    "spark.sql.shuffle.partitions": 1,
    "spark.sql.adaptive.enabled": False,
    # compiling a plan's code takes longer than running it over a few rows
    "spark.sql.codegen.wholeStage": False,
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.streaming.noDataMicroBatches.enabled": False,
}


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """The session of the run, which all tests share; they start and stop queries of their own."""
    session = leveret_spark.session("leveret-tests", **SETTINGS)
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()


@pytest.fixture(params=["broker", pytest.param("rabbitmq", marks=pytest.mark.needs("rabbitmq"))])
def url(request: pytest.FixtureRequest) -> str:
    """The URL of a broker: leveret, then RabbitMQ."""
    return str(request.getfixturevalue(request.param))


@pytest.fixture
def channel(url: str) -> Iterator[BlockingChannel]:
    with BlockingConnection(url, reconnect=False) as connection:
        channel = connection.channel()
        channel.confirm_select()
        yield channel


@pytest.fixture
def queue(channel: BlockingChannel) -> Iterator[str]:
    name = f"spark.{uuid.uuid4().hex[:12]}"
    channel.declare_queue(name)
    yield name
    channel.delete_queue(name)


@pytest.fixture
def stream(channel: BlockingChannel) -> Iterator[str]:
    name = f"spark.{uuid.uuid4().hex[:12]}"
    channel.declare_queue(name, arguments={"x-queue-type": "stream"})
    yield name
    channel.delete_queue(name)


@pytest.fixture(scope="session")
def sealed_broker() -> Iterator[LeveretProcess]:
    """A leveret broker with an HTTP API and a completely sealed stream, in several files; tests do not change it."""
    with LeveretProcess(admin=True) as process:
        with BlockingConnection(process.url, reconnect=False) as connection:
            channel = connection.channel()
            sealed.fill(channel)
            until(lambda: channel.stream_facts(sealed.STREAM)["sealed_offset"] == sealed.COUNT)
        process.said("the HTTP API is on")
        yield process


@pytest.fixture(scope="session")
def sealed_facts(sealed_broker: LeveretProcess) -> dict[str, Any]:
    """The facts that the broker reports of its stream."""
    with BlockingConnection(sealed_broker.url, reconnect=False) as connection:
        return connection.channel().stream_facts(sealed.STREAM)
