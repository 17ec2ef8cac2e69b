"""How the broker closes its clients' connections: before a stop, and during maintenance."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from http.client import HTTPConnection
from pathlib import Path

import pytest

from ..conformance.administration import ControlAdministration
from ..conformance.raw import RawClient
from ..waiting import until
from .service import Service

DRAINED = (320, "CONNECTION_FORCED - Node was put into maintenance mode", 0, 0)
SHUTDOWN = (320, "CONNECTION_FORCED - broker forced connection closure with reason 'shutdown'", 0, 0)


@pytest.fixture
def patient(tmp_path: Path) -> Iterator[Service]:
    """A service that waits for its consumers longer than any test takes."""
    with Service(tmp_path, "drain_timeout_ms = 3600000") as service:
        yield service


def consuming(service: Service, count: int) -> RawClient:
    """A consumer that has received one of `count` messages."""
    client = RawClient.open(service.url)
    client.call("queue.declare", queue="work", durable=True)
    client.call("basic.qos", prefetch_count=1)
    client.call("confirm.select")
    for number in range(count):
        client.publish(b"%d" % number, routing_key="work", delivery_mode=2)
        client.read("basic.ack")
    client.call("basic.consume", queue="work")
    client.read("basic.deliver")
    return client


def test_consumers_acknowledge_what_they_have_and_get_nothing_new(patient: Service) -> None:
    with consuming(patient, 3) as client, RawClient.open(patient.url) as publisher:
        publisher.call("confirm.select")
        patient.terminate()
        patient.said("stopping: consumers have 3600000 ms to acknowledge their messages")
        publisher.publish(b"late", routing_key="work", delivery_mode=2)
        publisher.read("basic.ack")  # connected clients are still served
        with pytest.raises(ConnectionRefusedError):
            RawClient(patient.url)
        client.send("basic.ack", delivery_tag=1)
        assert client.closed(0) == SHUTDOWN  # and no other delivery before
        assert publisher.closed(0) == SHUTDOWN
    assert patient.end() == 0
    assert "unacknowledged" not in patient.output
    patient.start()
    with RawClient.open(patient.url) as client:
        bodies = [client.call("basic.get", queue="work").body for _ in range(3)]
        assert bodies == [b"1", b"2", b"late"]
        client.send("basic.ack", delivery_tag=3, multiple=True)
        client.quiet()
    patient.config.write_text("")


def test_a_second_signal_hurries(patient: Service) -> None:
    with consuming(patient, 1) as client:
        patient.terminate()
        patient.said("to acknowledge their messages")
        patient.terminate()
        assert client.read()["reply_text"] == SHUTDOWN[1]  # the broker does not wait for close-ok
        assert patient.end() == 0


def test_the_time_is_over(tmp_path: Path) -> None:
    with Service(tmp_path, "drain_timeout_ms = 1") as service, consuming(service, 1) as client:
        service.terminate()
        assert client.closed(0) == SHUTDOWN
        assert service.end() == 0
        assert "1 deliveries are unacknowledged: they will be redelivered after the next start" in service.output


class Site:
    """A broker with an HTTP API and a command line."""

    def __init__(self, service: Service) -> None:
        self.service = service

    def check(self, name: str) -> int:
        """Return the status of a health check."""
        connection = HTTPConnection("127.0.0.1", self.service.admin_port, timeout=60)
        connection.request("GET", f"/api/health/checks/{name}", headers={"Authorization": "Basic Z3Vlc3Q6Z3Vlc3Q="})
        status = connection.getresponse().status
        connection.close()
        return status

    def upgrade(self, *arguments: str) -> str:
        """Return the output of a link called rabbitmq-upgrade."""
        program = "import sys; from leveret.cli.main import main; sys.argv[0] = 'rabbitmq-upgrade'; main()"
        environment = {**os.environ, **self.service.environment(), "LEVERET_DATA_DIR": str(self.service.data_dir)}
        command = [sys.executable, "-c", program, *arguments]
        return subprocess.run(command, check=True, capture_output=True, text=True, timeout=60, env=environment).stdout


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with Service(tmp_path_factory.mktemp("site"), admin=True) as service:
        yield Site(service)


def test_maintenance(site: Site) -> None:
    service = site.service
    checks = ("is-in-service", "ready-to-serve-clients", f"port-listener/{service.port}", "protocol-listener/amqp091")
    assert [site.check(name) for name in checks] == [200] * 4
    with RawClient.open(service.url) as client:
        said = site.upgrade("drain")
        assert said.startswith("Will put node ")
        assert said.strip().endswith("into maintenance mode. The node will no longer serve any client traffic!")
        assert client.closed(0) == DRAINED
    with pytest.raises(ConnectionRefusedError):
        RawClient(service.url)
    assert [site.check(name) for name in checks] == [503] * 4
    assert site.check("alarms") == 200  # it is healthy all the same
    ask = ControlAdministration(str(service.data_dir)).call
    assert ask("status")["is_under_maintenance"] is True
    assert list(ask("cluster_status")["maintenance_status"].values()) == ["marked for maintenance"]
    site.upgrade("drain")  # it is drained already
    assert "back into regular operating mode" in site.upgrade("revive")
    site.upgrade("revive")
    assert [site.check(name) for name in checks] == [200] * 4
    with RawClient.open(service.url) as client:
        client.quiet()
    assert list(ask("cluster_status")["maintenance_status"].values()) == ["not under maintenance"]
    assert site.upgrade("await_online_quorum_plus_one") == ""
    audited = [line for line in service.output.splitlines() if '"drain_node"' in line]
    assert json.loads(audited[0].partition(" audit ")[2])["outcome"] == "ok"


def test_a_service_that_leaves_is_not_ready(tmp_path: Path) -> None:
    """A load balancer must not send new clients while consumers finish."""
    with Service(tmp_path, "drain_timeout_ms = 3600000", admin=True) as service, consuming(service, 1) as client:
        site = Site(service)
        assert until(lambda: site.check("is-in-service")) == 200
        service.terminate()
        service.said("to acknowledge their messages")
        assert site.check("is-in-service") == 503
        client.send("basic.ack", delivery_tag=1)
        assert client.closed(0) == SHUTDOWN
        assert service.end() == 0
