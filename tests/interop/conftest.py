"""Fixtures of the tests that run leveret's clients against a real RabbitMQ."""

import pytest


@pytest.fixture(params=["broker", pytest.param("rabbitmq", marks=pytest.mark.needs("rabbitmq"))])
def url(request: pytest.FixtureRequest) -> str:
    """The URL of a broker: leveret's own, then RabbitMQ."""
    return str(request.getfixturevalue(request.param))
