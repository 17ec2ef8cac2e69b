"""The HTTP API's process beside its broker: where it listens, and that it lives as long as the broker."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
import trustme

from leveret.admin import process as admin_process
from leveret.testing.processes import LeveretProcess, free_port

from ..no_tls import NO_TLS
from ..waiting import until

SOURCE = str(Path(__file__).parents[2] / "src")
GUEST = ("guest", "guest")


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[LeveretProcess]:
    with LeveretProcess(tmp_path, admin=True) as process:
        yield process


def whoami(broker: LeveretProcess) -> str:
    return str(httpx.get(f"{broker.admin_url}/api/whoami", auth=GUEST, timeout=30, verify=NO_TLS).json()["name"])


def children(pid: int) -> list[int]:
    text = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    return [int(each) for each in text.split()]


def is_there(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


def serve(*arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
    """Run a `leveret serve` that must refuse to start."""
    environment = os.environ | {"PYTHONPATH": os.environ.get("PYTHONPATH", SOURCE)} | more
    environment.pop("LEVERET_ADMIN_PORT", None)
    command = [sys.executable, "-m", "leveret.cli.main", "serve", "--port", "0", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, env=environment, check=False)


def test_a_client_that_comes_at_once_waits_for_the_process(broker: LeveretProcess) -> None:
    """The socket is bound before the broker reports that it is ready; the process may still be starting."""
    assert whoami(broker) == "guest"
    assert f"the HTTP API is on {broker.admin_url}" in broker.output


def test_it_stops_with_the_broker(broker: LeveretProcess) -> None:
    assert whoami(broker) == "guest"
    (child,) = children(broker.pid)
    assert broker.stop() == 0
    assert not is_there(child)
    with pytest.raises(httpx.ConnectError):
        whoami(broker)
    broker.start()
    assert whoami(broker) == "guest"


def test_it_ends_when_the_broker_is_killed(broker: LeveretProcess) -> None:
    assert whoami(broker) == "guest"
    (child,) = children(broker.pid)
    os.kill(broker.pid, signal.SIGKILL)  # only the broker, not its process group
    assert until(lambda: not is_there(child))
    broker.kill()
    broker.start()
    assert whoami(broker) == "guest"


def test_a_broker_that_starts_after_a_kill_waits_for_the_port_of_the_one_before(broker: LeveretProcess) -> None:
    assert whoami(broker) == "guest"
    (child,) = children(broker.pid)
    os.kill(child, signal.SIGSTOP)  # keeps the port in use while the broker is gone
    os.kill(broker.pid, signal.SIGKILL)
    command = [str(each) for each in broker.command()]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=broker.environment()) as again:
        assert again.stderr is not None
        assert any("probably still by the previous broker process" in line for line in again.stderr)
        os.kill(child, signal.SIGCONT)
        assert any(f"the HTTP API is on {broker.admin_url}" in line for line in again.stderr)
        assert whoami(broker) == "guest"
        again.terminate()
        again.stderr.read()
    assert again.returncode == 0
    broker.kill()


def test_it_is_started_again_when_it_dies(broker: LeveretProcess) -> None:
    assert whoami(broker) == "guest"
    (child,) = children(broker.pid)
    os.kill(child, signal.SIGKILL)
    assert until(lambda: not is_there(child))
    assert whoami(broker) == "guest"  # a client that connected in between has waited
    (again,) = children(broker.pid)
    assert again != child
    assert "the HTTP API's process ended by signal 9; restarting in 0.2 s" in broker.output


def test_there_is_none_at_port_0(tmp_path: Path) -> None:
    with LeveretProcess(tmp_path) as broker:
        assert children(broker.pid) == []
        assert "HTTP API" not in broker.output


def test_a_port_that_was_asked_for_and_is_taken(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        refused = serve("--admin-port", str(port), "--data-dir", str(tmp_path))
    assert refused.returncode == 4
    assert f"can't listen on 127.0.0.1 port {port}: Address already in use" in refused.stderr
    assert "Traceback" not in refused.stderr


def test_a_port_of_the_configuration_that_is_taken(tmp_path: Path) -> None:
    config = tmp_path / "leveret.toml"
    with socket.create_server(("127.0.0.1", 0)) as taken:
        config.write_text(f"admin_port = {taken.getsockname()[1]}")
        refused = serve("--config", str(config), "--data-dir", str(tmp_path / "data"))
    assert refused.returncode == 4


def test_the_default_port_is_taken(tmp_path: Path) -> None:
    """One log line reports it, and the broker keeps serving."""
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(OSError):  # fails if another process already has the port
            stack.enter_context(socket.create_server((admin_process.HOST, admin_process.PORT)))
        process = LeveretProcess(tmp_path)
        process.extra_environment["LEVERET_ADMIN_PORT"] = ""
        with process as broker:
            assert broker.output.count("HTTP API is disabled: can't listen on 127.0.0.1 port 15672") == 1
            assert children(broker.pid) == []


@pytest.mark.parametrize(("text", "reason"), [
    ("admin_port = 65536", "admin_port must be a whole number from 0 to 65535, not 65536"),
    ('admin_port = "15672"', "admin_port must be a whole number from 0 to 65535, not '15672'"),
    ("admin_tls_port = 15671", "--admin-tls-port needs --tls-port, --tls-cert and --tls-key"),
])  # fmt: skip
def test_a_wrong_configuration(tmp_path: Path, text: str, reason: str) -> None:
    config = tmp_path / "leveret.toml"
    config.write_text(text)
    refused = serve("--config", str(config), "--data-dir", str(tmp_path / "data"))
    assert refused.returncode == 2
    assert reason in refused.stderr
    assert "Traceback" not in refused.stderr


def certify(directory: Path) -> trustme.CA:
    """Make a new authority and write a broker certificate signed by it."""
    authority = trustme.CA()
    certificate = authority.issue_cert("127.0.0.1")
    certificate.private_key_pem.write_to_path(directory / "key.pem")
    for index, blob in enumerate(certificate.cert_chain_pems):
        blob.write_to_path(directory / "cert.pem", append=index > 0)
    return authority


def whoami_by_tls(port: int, authority: trustme.CA) -> str:
    context = ssl.create_default_context()
    authority.configure_trust(context)
    answer = httpx.get(f"https://127.0.0.1:{port}/api/whoami", auth=GUEST, timeout=30, verify=context)
    return str(answer.json()["name"])


def test_https_with_certificates_that_are_reloaded(tmp_path: Path) -> None:
    before = certify(tmp_path)
    port = free_port()
    files = ("--tls-cert", str(tmp_path / "cert.pem"), "--tls-key", str(tmp_path / "key.pem"))
    arguments = ("--tls-port", "0", "--admin-tls-port", str(port), *files)
    with LeveretProcess(tmp_path / "data", arguments=arguments) as broker:
        assert whoami_by_tls(port, before) == "guest"
        assert f"the HTTP API is on https://127.0.0.1:{port}" in broker.output
        after = certify(tmp_path)

        def is_reloaded() -> bool:
            with contextlib.suppress(httpx.ConnectError):
                return whoami_by_tls(port, after) == "guest"
            return False

        assert until(is_reloaded)
        with pytest.raises(httpx.ConnectError, match="certificate verify failed"):
            whoami_by_tls(port, before)


def test_it_was_asked_for_and_is_not_installed(tmp_path: Path) -> None:
    blocker = tmp_path / "sitecustomize.py"
    blocker.write_text("import sys\nsys.modules['uvicorn'] = None\n")
    path = f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', SOURCE)}"
    refused = serve("--admin-port", str(free_port()), "--data-dir", str(tmp_path / "data"), PYTHONPATH=path)
    assert refused.returncode == 2
    assert "--admin-port requires the HTTP API, which is not available: uvicorn is not installed" in refused.stderr
    assert f"install with: {sys.executable} -m pip install uvicorn" in refused.stderr
    assert "Traceback" not in refused.stderr
