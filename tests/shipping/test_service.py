"""A systemd service with a notify socket of the test: readiness, reload, watchdog, stop; and the unit file."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
from collections.abc import Iterator
from configparser import RawConfigParser
from pathlib import Path

import pytest

from ..conformance.administration import ControlAdministration
from .service import Manager, Service

DEPLOY = Path(__file__).parents[2] / "deploy"
UNIT = DEPLOY / "systemd" / "leveret.service"


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[Manager]:
    heard = Manager(tmp_path / "notify")
    yield heard
    heard.close()


def test_the_life_of_a_service(tmp_path: Path, manager: Manager) -> None:
    service = Service(tmp_path)
    service.extra_environment = {"NOTIFY_SOCKET": manager.path, "WATCHDOG_USEC": "300000"}
    with service:
        ready = manager.hear()
        assert ready == {"READY": "1", "STATUS": f"serving {service.data_dir}"}
        socket.create_connection(("127.0.0.1", service.port)).close()
        for _ in range(3):
            assert manager.hear() == {"WATCHDOG": "1"}
        service.reload("heartbeat_s = 5")
        assert int(manager.hear_of("RELOADING")["MONOTONIC_USEC"]) > 0
        assert manager.hear_of("READY")["STATUS"] == "reloaded"
        service.reload("heartbeat_s = ")
        manager.hear_of("RELOADING")
        manager.hear_of("READY")  # a bad file changes nothing, and the service is ready
        ControlAdministration(str(service.data_dir)).call("stop_app")
        assert "start_app" in manager.hear_of("STATUS")["STATUS"]
        manager.hear_of("WATCHDOG")  # it is healthy, although it has no clients
        ControlAdministration(str(service.data_dir)).call("start_app")
        manager.hear_of("READY")
        manager.hear_of("WATCHDOG")
        service.terminate()
        manager.hear_of("STOPPING")
        assert service.end() == 0


def test_it_is_not_ready_before_it_listens(tmp_path: Path, manager: Manager) -> None:
    """If the address is in use, the broker ends and has never reported readiness."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        service = Service(tmp_path)
        service.port = taken.getsockname()[1]
        command = [str(each) for each in service.command()]
        environment = {**os.environ, **service.environment(), "NOTIFY_SOCKET": manager.path}
        ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 4, ended.stderr
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as last:
        last.sendto(b"LAST=1", manager.path)
    assert manager.hear() == {"LAST": "1"}


def test_a_broker_that_hangs_is_not_alive(tmp_path: Path, manager: Manager) -> None:
    """A stopped process sends no watchdog messages; systemd then restarts it."""
    service = Service(tmp_path)
    service.extra_environment = {"NOTIFY_SOCKET": manager.path, "WATCHDOG_USEC": "30000"}
    with service:
        manager.hear_of("WATCHDOG")
        os.kill(service.pid, signal.SIGSTOP)
        os.waitid(os.P_PID, service.pid, os.WSTOPPED | os.WNOWAIT)
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as mark:
            mark.sendto(b"STOPPED=1", manager.path)
        manager.hear_of("STOPPED")
        with pytest.raises(TimeoutError):
            manager.hear_within(0.3)
        os.kill(service.pid, signal.SIGCONT)
        manager.hear_of("WATCHDOG")


def unit() -> RawConfigParser:
    parser = RawConfigParser(strict=True)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read_string(UNIT.read_text())
    return parser


def test_the_unit_says_what_the_broker_does() -> None:
    service = unit()["Service"]
    assert service["Type"] == "notify"
    assert service["ExecReload"] == "/bin/kill -HUP $MAINPID"
    assert service["ExecStart"].split()[1:] == ["serve", "--config", "/etc/leveret/leveret.toml"]
    assert service["Environment"] == f"LEVERET_DATA_DIR=/var/lib/{service['StateDirectory']}"
    assert int(service["LimitNOFILE"]) >= 65536
    for name in ("NoNewPrivileges", "PrivateTmp", "ProtectHome", "ProtectKernelTunables", "RestrictSUIDSGID"):
        assert service[name] == "yes"
    assert service["ProtectSystem"] == "strict"
    assert service["RestartPreventExitStatus"].split() == ["2", "3", "6"]


@pytest.mark.needs("systemd")
def test_systemd_finds_nothing_wrong_with_the_unit(tmp_path: Path) -> None:
    copy = tmp_path / "leveret.service"
    copy.write_text(UNIT.read_text().replace("/opt/leveret/bin/leveret", "/bin/true"))
    command = ["systemd-analyze", "verify", str(copy)]
    found = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (found.returncode, found.stderr) == (0, "")
