"""`leveret doctor` on a real RabbitMQ with its management plugin: findings for the same mistakes, and for its own."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from click.testing import CliRunner

from leveret.cli.doctor.check import Diagnosis, diagnose
from leveret.cli.doctor.checks import CHECKS
from leveret.cli.doctor.command import command, observe
from leveret.cli.doctor.source import HttpStateSource
from leveret.testing.processes import RabbitMQProcess, free_port

from ..waiting import until
from . import sick
from .sick import SICK, Patient

pytestmark = pytest.mark.needs("rabbitmq")

# Statistics are off by up to this much; RabbitMQ's default is 5,000.
INTERVAL_MS = 250
# RabbitMQ would need a plugin that loses its own queue, or version 4.0
NOT_HERE = {"federation-same-cluster", "federation-loop", "persistent-in-transient"}
MISTAKES = {name: doing for name, doing in SICK.items() if name not in NOT_HERE}


@pytest.fixture(scope="module")
def ill() -> Iterator[Patient]:
    port = free_port()
    settings = (
        f"management.tcp.port = {port}\nmanagement.tcp.ip = 127.0.0.1\ncollect_statistics_interval = {INTERVAL_MS}"
    )
    plugins = ["rabbitmq_management", "rabbitmq_federation", "rabbitmq_federation_management"]
    with RabbitMQProcess(plugins=plugins, settings=settings) as process:
        patient = Patient(process.url, f"http://127.0.0.1:{port}")
        with patient.open:
            sick.done(patient, MISTAKES)
            yield patient


def looked(patient: Patient) -> Diagnosis:
    checks = list(CHECKS.values())
    return diagnose(observe(HttpStateSource(patient.api_url), checks, 1.0), checks)


def test_the_same_mistakes_are_found(ill: Patient) -> None:
    def missed() -> set[str]:
        return set(MISTAKES) - {finding.check.id for finding in looked(ill).findings}

    until(lambda: not missed())


def test_what_leveret_alone_has_is_not_made(ill: Patient) -> None:
    assert set(looked(ill).unmade) == {"deprecated-feature", "delayed-parked"}


def test_evidence_and_remedies(ill: Patient) -> None:
    result = CliRunner().invoke(command, ["--url", ill.api_url, "--once", "--json"])
    assert result.exit_code == 1
    document = json.loads(result.output)
    assert document["broker"]["product"] == "RabbitMQ"
    found = {finding["id"]: finding for finding in document["findings"]}
    assert {"object": "queue 'orphan' in '/'", "evidence": "3 messages waiting, no consumer"} in (
        found["queue-without-consumers"]["objects"]
    )
    assert found["mirrored-queues"]["severity"] == "warning"
    assert "`rabbitmqctl clear_policy -p / mirrors`" in found["mirrored-queues"]["remedy"]
    (link,) = found["federation-link-down"]["objects"]
    assert "econnrefused" in link["evidence"]
    assert "connection-churn" in document["not_made"]
