"""leveret serve as its operator sees it: addresses, configuration, refusals, exit codes. Only leveret is run here."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pika
import pytest

from leveret.store.disk import RealDisk
from leveret.store.format import FORMAT_VERSION, FileHeader
from leveret.store.journal import Journal
from leveret.testing.processes import LeveretProcess

SOURCE = str(Path(__file__).parents[2] / "src")


def serve(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run `leveret serve` to its end; for starts that must be refused."""
    environment = os.environ | {"PYTHONPATH": os.environ.get("PYTHONPATH", SOURCE)}
    command = [sys.executable, "-m", "leveret.cli.main", "serve", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=30, env=environment, check=False)


def test_a_directory_in_use_is_refused_and_that_of_a_killed_process_is_not(tmp_path: Path) -> None:
    with LeveretProcess(data_dir=tmp_path) as running:
        refused = serve("--port", "0", "--data-dir", str(tmp_path))
        assert refused.returncode == 3
        assert "is in use by process" in refused.stderr
        assert "Traceback" not in refused.stderr
        running.kill()
    with LeveretProcess(data_dir=tmp_path) as again:
        pika.BlockingConnection(pika.URLParameters(again.url)).close()


def test_a_port_that_is_taken(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        refused = serve("--port", str(port), "--data-dir", str(tmp_path))
    assert refused.returncode == 4
    assert f"can't listen on 127.0.0.1 port {port}" in refused.stderr


@pytest.mark.parametrize(("text", "hint"), [
    ("prot = 5672", "did you mean 'port'?"),
    ('port = "5672"', "port must be of type int"),
    ("port = ", "Invalid value"),
])
def test_a_wrong_configuration(tmp_path: Path, text: str, hint: str) -> None:
    config = tmp_path / "leveret.toml"
    config.write_text(text)
    refused = serve("--config", str(config), "--data-dir", str(tmp_path / "data"))
    assert refused.returncode == 2
    assert hint in refused.stderr
    assert "Traceback" not in refused.stderr


def make_newer(journal: Path) -> None:
    """As a leveret of the next format would have left it."""
    with journal.open("r+b") as file:
        file.write(FileHeader(1, 1, 1 << 40, version=FORMAT_VERSION + 1).pack())


def add_unknown_record(journal: Path) -> None:
    """As a leveret of this format that knows more would have left it."""
    opened = Journal(RealDisk(), str(journal.parent))
    assert list(opened.replay())
    opened.append(bytes([200, 0, 0, 0, 0]))
    opened.close()


@pytest.mark.parametrize("change", [make_newer, add_unknown_record])
def test_a_data_directory_of_a_newer_leveret(tmp_path: Path, change: Callable[[Path], None]) -> None:
    with LeveretProcess(data_dir=tmp_path):
        pass
    journal = tmp_path / "journal" / "journal-0000000001.lvj"
    change(journal)
    content = journal.read_bytes()
    refused = serve("--port", "0", "--data-dir", str(tmp_path))
    assert refused.returncode == 6
    (line,) = refused.stderr.splitlines()
    assert f"the data directory {tmp_path} can't be served: " in line
    assert "newer one" in line
    assert journal.read_bytes() == content


def test_a_journal_that_can_not_be_opened(tmp_path: Path) -> None:
    (tmp_path / "journal").mkdir()
    (tmp_path / "journal" / "journal-0000000001.lvj").mkdir()
    refused = serve("--port", "0", "--data-dir", str(tmp_path))
    assert refused.returncode == 5
    (line,) = refused.stderr.splitlines()
    assert "Is a directory" in line


def test_a_data_directory_that_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    refused = serve("--port", "0", "--data-dir", str(tmp_path / "file"))
    assert refused.returncode == 2
    assert "can't be used" in refused.stderr


def test_configuration_and_several_addresses(tmp_path: Path) -> None:
    config = tmp_path / "leveret.toml"
    config.write_text('cluster_name = "from the file"\nversion = "3.8.9"\nheartbeat_s = 7\nlog_level = "warning"')
    arguments = ("--config", str(config), "--host", "::1", "--log-level", "info")
    with LeveretProcess(data_dir=tmp_path / "data", arguments=arguments) as process:
        for host in ("127.0.0.1", "::1"):
            connection = pika.BlockingConnection(pika.ConnectionParameters(host, process.port, heartbeat=None))
            properties = connection._impl.server_properties
            assert (properties["cluster_name"], properties["version"]) == ("from the file", "3.8.9")
            assert properties["product"] == "RabbitMQ"
            assert properties["leveret_version"]
            connection.close()
