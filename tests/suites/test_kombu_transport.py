"""kombu's own integration tests on leveret's transport, in the place of py-amqp's.

The baseline is that of py-amqp on RabbitMQ: what passes there must pass here. `python -m tests.suites --transport
celery` runs Celery's, which takes a quarter of an hour.
"""

import pytest

from .broker import LEVERET, RABBITMQ
from .outcome import Outcome
from .run import Run, on_transport
from .suite import Suite


@pytest.mark.needs("suites", "rabbitmq")
@pytest.mark.timeout(900)
@pytest.mark.parametrize("kind", [LEVERET, RABBITMQ])
def test_kombu(kind: str) -> None:
    [suite] = [each for each in Suite.load() if each.name == "kombu"]
    outcome = Outcome.of(Run(on_transport(suite), kind), tries_again=False)
    assert outcome.problems == {}
    assert outcome.passed == outcome.expected > 0
