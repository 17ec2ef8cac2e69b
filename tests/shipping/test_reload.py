"""SIGHUP: settings that change in the running broker, that wait for the next start, and errors that change nothing."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from leveret.testing.processes import free_port

from ..conformance.administration import ControlAdministration
from ..conformance.raw import RawClient
from ..conformance.secured import Authority
from .service import Service


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    directory = tmp_path_factory.mktemp("reload")
    with Service(directory) as running:
        yield running


@pytest.fixture
def broker(service: Service) -> Iterator[Service]:
    """A broker with the default settings before and after the test."""
    yield service
    reloaded(service, "")


def reloaded(service: Service, settings: str) -> list[str]:
    """Return the lines that a reload logs. The last one is of the table's last setting, which each call changes."""
    origin = f"http://{free_port()}"
    seen = len(service.output.splitlines())
    service.reload(f'cors_origins = ["{origin}"]\n{settings}')
    service.said(f"cors_origins: none -> {origin} takes effect at the next start")
    return [line.partition(" reload: ")[2] for line in service.output.splitlines()[seen:] if " reload: " in line]


def test_what_clients_are_offered_changes_for_new_connections(broker: Service) -> None:
    with RawClient.open(broker.url) as before:
        lines = reloaded(
            broker,
            "heartbeat_s = 7\nchannel_max = 3\nmax_message_octets = 1000\nconnection_max = 2\nqueue_max_per_vhost = 0",
        )
        assert "heartbeat_s: 60 -> 7" in lines
        assert "connection_max: -1 -> 2" in lines
        with RawClient.open(broker.url) as after:
            assert (after.tune["heartbeat"], after.tune["channel_max"]) == (7, 3)
            assert "queue limit in vhost '/' (0) is reached" in after.fail("queue.declare", queue="q")[1]
            after.publish(b"x" * 1001, routing_key="nowhere")
            assert "larger than configured max size 1000" in after.closed()[1]
            with pytest.raises(AssertionError, match=r"node connection limit \(2\) is reached"):
                RawClient.open(broker.url)
        before.publish(b"x" * 1001, routing_key="nowhere")
        before.quiet()


def test_a_consumer_timeout_is_for_what_has_been_delivered_too(broker: Service) -> None:
    with RawClient.open(broker.url) as client:
        client.call("queue.declare", queue="slow", exclusive=True)
        client.call("basic.consume", queue="slow")
        client.publish(b"x", routing_key="slow")
        client.read("basic.deliver")
        reloaded(broker, "consumer_timeout_ms = 10")
        assert "Timeout value used: 10 ms" in client.closed()[1]


def test_limits_of_disk_and_memory(broker: Service) -> None:
    ask = ControlAdministration(str(broker.data_dir)).call
    reloaded(broker, 'disk_free_limit = "2MB"\nmemory_high_watermark = "3GiB"')
    status = ask("status")
    assert (status["disk_free_limit"], status["vm_memory_high_watermark_limit"]) == (2_000_000, 3 << 30)


def test_what_ctl_has_changed_stays_until_the_file_says_something_new(broker: Service) -> None:
    ask = ControlAdministration(str(broker.data_dir)).call
    ask("set_disk_free_limit", limit="1MB")
    reloaded(broker, "heartbeat_s = 8")
    assert ask("status")["disk_free_limit"] == 1_000_000
    reloaded(broker, 'disk_free_limit = "4MB"')
    assert ask("status")["disk_free_limit"] == 4_000_000


def test_who_may_log_in_from_here_only(broker: Service) -> None:
    lines = reloaded(broker, "loopback_users = []")
    assert "loopback_users: guest -> none" in lines


def test_the_form_of_the_log(broker: Service) -> None:
    reloaded(broker, 'log_format = "json"')
    with RawClient.open(broker.url) as client:
        line = broker.said('"user": "guest"')
        found = json.loads(line)
        assert found["event"].endswith("user 'guest' connected to vhost '/'")
        assert found["vhost"] == "/"
        assert found["connection"].endswith(f" -> 127.0.0.1:{broker.port}")
        client.quiet()
    reloaded(broker, 'log_level = "error"')


def test_what_can_not_change_while_it_runs_is_named(broker: Service) -> None:
    port = free_port()
    # the port is a command line option here, which has precedence
    wanted = f'host = "::1"\nport = {port}\nframe_max = 8192\n'
    lines = reloaded(broker, wanted)
    assert "frame_max: 131072 -> 8192 takes effect at the next start" in lines
    assert not any(line.startswith(("port", "host")) for line in lines)
    with RawClient.open(broker.url) as client:
        assert client.tune["frame_max"] == 131072
    again = reloaded(broker, wanted)  # it has not changed since
    assert "frame_max: 131072 -> 8192 takes effect at the next start" in again


@pytest.mark.parametrize(("settings", "reason"), [
    ("heartbeat_s = 5\nheartbeats = 5", "unknown setting 'heartbeats'; did you mean 'heartbeat_s'?"),
    ('heartbeat_s = 5\ntls_cert = "x"', "--tls-cert has no effect without --tls-port"),
    ("heartbeat_s = ", "Invalid value"),
])  # fmt: skip
def test_a_bad_file_changes_nothing(broker: Service, settings: str, reason: str) -> None:
    broker.reload(settings)
    line = broker.said(reason)
    assert "reload failed, nothing was changed: " in line
    with RawClient.open(broker.url) as client:
        assert client.tune["heartbeat"] == 60


def test_the_same_settings_again(broker: Service) -> None:
    broker.reload("heartbeat_s = 60")
    broker.said("reload: no setting has changed")


def test_a_certificate_that_can_not_be_used_changes_nothing_at_all(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    certificate, key = authority.server()
    other, other_key = authority.server("other")
    tls = f'tls_port = {free_port()}\ntls_cert = "{certificate}"\ntls_key = "{key}"\n'
    with Service(tmp_path, tls) as service:
        service.reload(tls.replace(str(key), str(other_key)) + "heartbeat_s = 5")
        service.said("reload failed, nothing was changed")
        assert "does not belong to the certificate" in service.output
        with RawClient.open(service.url) as client:
            assert client.tune["heartbeat"] == 60
        service.reload(tls.replace(str(certificate), str(other)).replace(str(key), str(other_key)) + "heartbeat_s = 5")
        service.said(f"reload: tls_cert: {certificate} -> {other}")
        assert "reload: heartbeat_s: 60 -> 5" in service.output


def test_after_stop_app_the_settings_are_read_again(tmp_path: Path) -> None:
    with Service(tmp_path) as service:
        ask = ControlAdministration(str(service.data_dir)).call
        ask("stop_app")
        service.said("stopped; start the broker again with start_app")
        service.reload("heartbeat_s = 11")
        service.said("the settings will be read again at start_app")
        ControlAdministration(str(service.data_dir)).call("start_app")
        service.said("recovered from")
        while service.output.count("listening on") < 2:
            service.said("listening on")
        with RawClient.open(service.url) as client:
            assert client.tune["heartbeat"] == 11
