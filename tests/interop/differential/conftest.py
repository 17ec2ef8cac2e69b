"""Both brokers and their connections, once for the whole run."""

from collections.abc import Iterator

import pytest

from leveret.testing.processes import RabbitMQProcess

from .pair import Pair

PLUGINS = (
    "rabbitmq_consistent_hash_exchange", "rabbitmq_random_exchange", "rabbitmq_recent_history_exchange",
    "rabbitmq_sharding",
)  # fmt: skip


@pytest.fixture(scope="session")
def oracle() -> Iterator[str]:
    """The URL of a RabbitMQ whose processes take turns on one scheduler: so it seldom answers now so, now so."""
    if RabbitMQProcess.program() is None:
        pytest.fail("RabbitMQ is not installed: apt-get install rabbitmq-server", pytrace=False)
    node = RabbitMQProcess(plugins=PLUGINS)
    arguments = node.environment()["RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS"]
    node.extra_environment = {"RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": f"{arguments} +S 1:1 +sbwt none"}
    with node:
        yield node.url


@pytest.fixture(scope="session")
def pair(broker: str, oracle: str) -> Iterator[Pair]:
    """The two brokers."""
    both = Pair(broker, oracle)
    yield both
    both.leave()
