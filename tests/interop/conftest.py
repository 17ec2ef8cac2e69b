"""Fixtures of the tests that run our clients against a real RabbitMQ."""

from collections.abc import Iterator

import pytest

from leveret.testing.processes import RabbitMQProcess


@pytest.fixture(scope="session")
def rabbitmq() -> Iterator[str]:
    """The URL of a private RabbitMQ node. Where RabbitMQ is missing the tests fail: they would prove nothing."""
    if RabbitMQProcess.program() is None:
        pytest.fail("RabbitMQ is not installed: apt-get install rabbitmq-server", pytrace=False)
    with RabbitMQProcess() as node:
        yield node.url


@pytest.fixture(params=["broker", pytest.param("rabbitmq", marks=pytest.mark.rabbitmq)])
def url(request: pytest.FixtureRequest) -> str:
    """The URL of a broker: leveret's own, then RabbitMQ."""
    return str(request.getfixturevalue(request.param))
