"""kombu's and Celery's own integration tests on leveret's transport, in the place of py-amqp's.

The baselines are those of py-amqp on RabbitMQ: what passes there must pass here.
"""

import dataclasses
from pathlib import Path

import pytest

from .broker import LEVERET, RABBITMQ
from .outcome import Outcome
from .run import TARGET, Run
from .suite import Suite

SOURCE = Path(__file__).parents[2] / "src"


def on_the_transport(name: str) -> Suite:
    """Return the suite of a package as a run on leveret's transport."""
    [suite] = [each for each in Suite.load() if each.name == name]
    return dataclasses.replace(
        suite,
        arguments=[*suite.arguments, "-p", "leveret_transport"],
        environment={**suite.environment, "PYTHONPATH": f"{TARGET}:{SOURCE}"},
    )


@pytest.mark.needs("suites", "rabbitmq")
@pytest.mark.timeout(900)
@pytest.mark.parametrize("kind", [LEVERET, RABBITMQ])
def test_kombu(kind: str) -> None:
    outcome = Outcome.of(Run(on_the_transport("kombu"), kind), tries_again=False)
    assert outcome.problems == {}
    assert outcome.passed == outcome.expected > 0
