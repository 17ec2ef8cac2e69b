"""Fixtures of the conformance tests; README.md describes how to run them on another broker."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from urllib.parse import urlsplit

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel

from leveret.testing.processes import LeveretProcess

from .administration import Administration, ControlAdministration, HttpAdministration
from .raw import RawClient


@pytest.fixture
def url(request: pytest.FixtureRequest) -> str:
    """The AMQP URL of the broker under test: LEVERET_TEST_URL, or the leveret of this run."""
    given = os.environ.get("LEVERET_TEST_URL")
    return given or str(request.getfixturevalue("broker"))


@pytest.fixture
def administration(request: pytest.FixtureRequest) -> Administration:
    """Sets up the broker under test; with LEVERET_TEST_URL by the HTTP API of that host, at LEVERET_TEST_API_PORT."""
    given = os.environ.get("LEVERET_TEST_URL")
    if given:
        port = int(os.environ.get("LEVERET_TEST_API_PORT", "15672"))
        return HttpAdministration(urlsplit(given).hostname or "127.0.0.1", port)
    process = request.getfixturevalue("leveret_process")
    assert isinstance(process, LeveretProcess)
    return ControlAdministration(str(process.data_dir))


@pytest.fixture
def raw(url: str) -> Iterator[RawClient]:
    """A raw connection with channels 1 and 2 open."""
    with RawClient.open(url, channels=2) as client:
        yield client


@pytest.fixture
def other(url: str) -> Iterator[RawClient]:
    """A second raw connection with channels 1 and 2 open, to observe the first one's effects."""
    with RawClient.open(url, channels=2) as client:
        yield client


@pytest.fixture
def on_rabbitmq(raw: RawClient) -> bool:
    """Whether the broker is RabbitMQ 3.10, the reference; use it only where leveret differs on purpose."""
    return str(raw.server_properties["version"]).startswith("3.10.")


@pytest.fixture
def channel(url: str) -> Iterator[BlockingChannel]:
    """A pika channel on its own connection."""
    with pika.BlockingConnection(pika.URLParameters(url)) as connection:
        yield connection.channel()


@pytest.fixture
def unique() -> str:
    """A name that no other test uses, so that tests can share one broker."""
    return f"t-{uuid.uuid4().hex[:12]}"
