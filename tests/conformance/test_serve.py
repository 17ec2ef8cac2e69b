"""leveret serve as its operator sees it: addresses, configuration, refusals, exit codes (leveret only)."""

from __future__ import annotations

import os
import signal
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

from .raw import RawClient

SOURCE = str(Path(__file__).parents[2] / "src")


def serve(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a `leveret serve` that must refuse to start, and wait for its end."""
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
    ('port = "5672"', "port must be a whole number from 0 to 65535, or 'off', not '5672'"),
    ("port = ", "Invalid value"),
    ("journal_spare_files = -1", "must be a whole number of at least 0, not -1"),
    ('disk_free_limit = "plenty"', "disk_free_limit must be an amount: a number of bytes, 50MB, 1GiB"),
    ("memory_high_watermark = true", "or 0.4 for a fraction of the machine's memory, not True"),
])
def test_a_wrong_configuration(tmp_path: Path, text: str, hint: str) -> None:
    config = tmp_path / "leveret.toml"
    config.write_text(text)
    refused = serve("--config", str(config), "--data-dir", str(tmp_path / "data"))
    assert refused.returncode == 2
    assert hint in refused.stderr
    assert "Traceback" not in refused.stderr


def make_newer(journal: Path) -> None:
    """Change a file as if a leveret with the next format had written it."""
    with journal.open("r+b") as file:
        file.write(FileHeader(1, 1, 1 << 40, version=FORMAT_VERSION + 1).pack())


def add_unknown_record(journal: Path) -> None:
    """Append a record as if a later leveret with this format had written it."""
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
    assert f"cannot serve the data directory {tmp_path}: " in line
    assert "newer" in line
    assert journal.read_bytes() == content


@pytest.mark.parametrize("name", ["journal/journal-0000000001.lvj", "segments"])
def test_a_data_directory_that_can_not_be_read(tmp_path: Path, name: str) -> None:
    """There is a directory where a file should be, or the other way round."""
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    if path.suffix:
        path.mkdir()
    else:
        path.write_text("")
    refused = serve("--port", "0", "--data-dir", str(tmp_path))
    assert refused.returncode == 5
    (line,) = refused.stderr.splitlines()
    assert f"cannot serve the data directory {tmp_path}: " in line


def test_spare_files_beyond_the_setting_are_deleted(tmp_path: Path) -> None:
    (tmp_path / "journal").mkdir()
    for number in (1, 2, 3):
        (tmp_path / "journal" / f"spare-000000000{number}.lvj").write_bytes(bytes(100))
    config = tmp_path / "leveret.toml"
    config.write_text("journal_spare_files = 1")
    with LeveretProcess(data_dir=tmp_path, arguments=("--config", str(config))):
        assert sorted(path.name for path in (tmp_path / "journal").iterdir()) == [
            "journal-0000000001.lvj", "spare-0000000001.lvj",
        ]  # fmt: skip


@pytest.mark.parametrize("option", ["--disk-free-limit", "--memory-high-watermark"])
def test_an_amount_that_is_none(tmp_path: Path, option: str) -> None:
    refused = serve(option, "1.5 parsecs", "--port", "0", "--data-dir", str(tmp_path))
    assert refused.returncode == 2
    assert f"{option} must be an amount: a number of bytes, 50MB" in refused.stderr


@pytest.mark.parametrize(("setting", "reason"), [
    ('disk_free_limit = "1000TB"', "low on disk"),
    ("memory_high_watermark = 0.0001", "low on memory"),
])
def test_limits_of_disk_and_memory_hold_from_the_start(tmp_path: Path, setting: str, reason: str) -> None:
    config = tmp_path / "leveret.toml"
    config.write_text(setting)
    with LeveretProcess(data_dir=tmp_path / "data", arguments=("--config", str(config))) as process:
        with RawClient.open(process.url, properties={"capabilities": {"connection.blocked": True}}) as client:
            client.call("queue.declare", queue="q")
            client.publish(b"x", routing_key="q")
            assert client.read("connection.blocked")["reason"] == reason
        assert process.output.count(f"WARNING {reason}: ") == 1


def test_options_win_over_the_configuration_and_the_defaults_raise_no_alarm(tmp_path: Path) -> None:
    config = tmp_path / "leveret.toml"
    config.write_text('disk_free_limit = "1000TB"\nmemory_high_watermark = 0')
    arguments = ("--config", str(config), "--disk-free-limit", "0", "--memory-high-watermark", "1.0")
    for given in (arguments, ()):
        with LeveretProcess(data_dir=tmp_path / "data", arguments=given) as process:
            with RawClient.open(process.url) as client:
                client.call("confirm.select")
                client.publish(b"x", routing_key="nowhere")
                client.read("basic.ack")
            assert "low on" not in process.output


def test_a_wrong_configuration_at_sighup_changes_nothing(tmp_path: Path) -> None:
    config = tmp_path / "leveret.toml"
    config.write_text("")
    with LeveretProcess(data_dir=tmp_path / "data", arguments=("--config", str(config))) as process:
        with RawClient.open(process.url) as client:
            config.write_text('disk_free_limit = "plenty"')
            os.kill(process.pid, signal.SIGHUP)
            while "nothing was changed: " not in process.output:
                client.quiet()
            client.call("confirm.select")
            client.publish(b"x", routing_key="nowhere")
            client.read("basic.ack")
        assert "disk_free_limit must be an amount" in process.output
        assert "Traceback" not in process.output


def test_the_firehose_of_no_virtual_host(tmp_path: Path) -> None:
    refused = serve("--port", "0", "--data-dir", str(tmp_path), "--trace", "nope")
    assert refused.returncode == 2
    assert "--trace: virtual host 'nope' does not exist" in refused.stderr


def test_a_data_directory_that_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    refused = serve("--port", "0", "--data-dir", str(tmp_path / "file"))
    assert refused.returncode == 2
    assert "cannot use the data directory" in refused.stderr


def test_configuration_and_several_addresses(tmp_path: Path) -> None:
    config = tmp_path / "leveret.toml"
    lines = ('cluster_name = "from the file"', 'version = "3.8.9"', "heartbeat_s = 7", 'log_level = "warning"')
    config.write_text("\n".join([*lines, "max_message_octets = 1000"]))
    arguments = ("--config", str(config), "--host", "::1", "--log-level", "info")
    with LeveretProcess(data_dir=tmp_path / "data", arguments=arguments) as process:
        for host in ("127.0.0.1", "::1"):
            connection = pika.BlockingConnection(pika.ConnectionParameters(host, process.port, heartbeat=None))
            properties = connection._impl.server_properties
            assert (properties["cluster_name"], properties["version"]) == ("from the file", "3.8.9")
            assert properties["product"] == "RabbitMQ"
            assert properties["leveret_version"]
            channel = connection.channel()
            channel.basic_publish("", "anywhere", b"x" * 1000)
            channel.basic_publish("", "anywhere", b"x" * 1001)
            with pytest.raises(pika.exceptions.ChannelClosedByBroker, match="configured max size 1000"):
                channel.queue_declare("", exclusive=True)
            connection.close()
