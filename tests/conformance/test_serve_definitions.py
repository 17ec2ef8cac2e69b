"""leveret serve --definitions: who may log in, what exists, and what a wrong file does (leveret only)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pika
import pika.exceptions
import pytest

from leveret.broker.access.users import hash_password
from leveret.control.calls.client import ControlClient
from leveret.testing.processes import LeveretProcess

from .test_serve import serve

FILE: dict[str, Any] = {
    "rabbit_version": "3.10.8",
    "users": [
        {"name": "alice", "password_hash": hash_password("secret", lambda count: b"salt"), "tags": ["administrator"]}
    ],
    "vhosts": [{"name": "v"}],
    "permissions": [{"user": "alice", "vhost": "v", "configure": ".*", "write": ".*", "read": ".*"}],
    "queues": [{"name": "q", "vhost": "v", "durable": True, "auto_delete": False, "arguments": {"x-max-length": 9}}],
    "bindings": [
        {"source": "amq.topic", "vhost": "v", "destination": "q", "destination_type": "queue", "routing_key": "a.*"}
    ],
}


def write(path: Path, table: dict[str, Any]) -> Path:
    path.write_text(json.dumps(table))
    return path


def connect(broker: LeveretProcess, user: str, password: str, vhost: str) -> pika.BlockingConnection:
    credentials = pika.PlainCredentials(user, password)
    return pika.BlockingConnection(
        pika.ConnectionParameters("127.0.0.1", broker.port, vhost, credentials, blocked_connection_timeout=10)
    )


def test_a_new_broker_has_what_the_file_says_and_no_guest(tmp_path: Path) -> None:
    path = write(tmp_path / "file.json", FILE)
    with LeveretProcess(tmp_path / "data", arguments=["--definitions", str(path)]) as broker:
        with pytest.raises(pika.exceptions.ProbableAuthenticationError):
            connect(broker, "guest", "guest", "/")
        with connect(broker, "alice", "secret", "v") as connection:
            channel = connection.channel()
            channel.confirm_delivery()
            channel.basic_publish("amq.topic", "a.b", b"routed", mandatory=True)
            assert channel.basic_get("q", auto_ack=True)[2] == b"routed"
        with ControlClient(str(broker.data_dir)) as control:
            assert [vhost["name"] for vhost in control.call("list_vhosts")] == ["v"]
            control.call("add_user", name="bob", password="b")
            control.call("delete_user", name="alice")
        broker.kill()
        broker.start()
        # the file is imported at each start, and everything else stays
        with ControlClient(str(broker.data_dir)) as control:
            assert {user["name"] for user in control.call("list_users")} == {"alice", "bob"}


def test_a_broker_that_has_served_keeps_its_users(tmp_path: Path) -> None:
    with LeveretProcess(tmp_path / "data") as before:
        before.stop()
    path = write(tmp_path / "file.json", FILE)
    with LeveretProcess(tmp_path / "data", arguments=["--definitions", str(path)]) as broker:
        connect(broker, "guest", "guest", "/").close()
        connect(broker, "alice", "secret", "v").close()


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{", ": Input data was truncated"),
        ('{"users": 1}', "Expected `array`, got `int` - at `$.users`"),
        ('{"queues": [{"name": "q", "vhost": "v"}]}', "queues[0] 'q': Please create virtual host \"v\""),
    ],
)
def test_a_file_that_is_wrong(tmp_path: Path, text: str, reason: str) -> None:
    path = tmp_path / "file.json"
    path.write_text(text)
    refused = serve("--port", "0", "--data-dir", str(tmp_path / "data"), "--definitions", str(path))
    assert refused.returncode == 2
    assert reason in refused.stderr
    assert "Traceback" not in refused.stderr
    # after the file is repaired, the start still counts as the first one
    write(path, FILE)
    with LeveretProcess(tmp_path / "data", arguments=["--definitions", str(path)]) as broker:
        with pytest.raises(pika.exceptions.ProbableAuthenticationError):
            connect(broker, "guest", "guest", "/")
        connect(broker, "alice", "secret", "v").close()


def test_a_file_that_is_not_there_and_one_in_the_configuration(tmp_path: Path) -> None:
    missing = serve("--port", "0", "--data-dir", str(tmp_path / "data"), "--definitions", str(tmp_path / "none"))
    assert missing.returncode == 2
    assert "No such file or directory" in missing.stderr
    config = tmp_path / "leveret.toml"
    config.write_text(f'definitions = "{tmp_path / "none"}"')
    refused = serve("--port", "0", "--data-dir", str(tmp_path / "data"), "--config", str(config))
    assert refused.returncode == 2
    assert "No such file or directory" in refused.stderr
    write(tmp_path / "none", FILE)
    with LeveretProcess(tmp_path / "data", arguments=["--config", str(config)]) as broker:
        connect(broker, "alice", "secret", "v").close()
