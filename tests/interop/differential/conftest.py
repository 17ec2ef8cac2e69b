"""Both brokers and their connections, once for the whole run."""

from collections.abc import Iterator

import pytest

from leveret.testing.processes import RabbitMQProcess

from .pair import Pair
from .player import Player
from .recording import Recording

PLUGINS = (
    "rabbitmq_consistent_hash_exchange", "rabbitmq_random_exchange", "rabbitmq_recent_history_exchange",
    "rabbitmq_sharding",
)  # fmt: skip


@pytest.fixture(scope="session")
def oracle() -> Iterator[str]:
    """The URL of a RabbitMQ with one scheduler, so that the order of its processes, and its answers, seldom vary."""
    node = RabbitMQProcess(plugins=PLUGINS)
    arguments = node.environment()["RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS"]
    node.extra_environment = {"RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": f"{arguments} +S 1:1 +sbwt none"}
    with node:
        yield node.url


@pytest.fixture(scope="session")
def leveret(broker: str) -> Iterator[Player]:
    """A player on the run's leveret broker."""
    player = Player(broker)
    yield player
    player.leave()


@pytest.fixture(scope="session")
def rabbitmq_player(oracle: str) -> Iterator[Player]:
    """A player on that RabbitMQ."""
    player = Player(oracle)
    yield player
    player.leave()


@pytest.fixture
def live(leveret: Player, rabbitmq_player: Player) -> Iterator[Pair]:
    """Leveret and a RabbitMQ."""
    with Pair(leveret, rabbitmq_player) as pair:
        yield pair


@pytest.fixture(scope="session")
def recording() -> Recording:
    """The recorded answers of RabbitMQ."""
    return Recording.load()


@pytest.fixture
def recorded(leveret: Player, recording: Recording) -> Iterator[Pair]:
    """Leveret and the recorded answers of RabbitMQ."""
    with Pair(leveret, recording) as pair:
        yield pair


@pytest.fixture(params=[pytest.param("live", marks=pytest.mark.needs("rabbitmq")), "recorded"])
def pair(request: pytest.FixtureRequest) -> Pair:
    """Each of these pairs."""
    found = request.getfixturevalue(request.param)
    assert isinstance(found, Pair)
    return found
