"""The control socket of a running broker: who may open it, what it answers, and what a restart finds."""

from __future__ import annotations

import os
import pwd
import socket
import stat
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pika
import pika.exceptions
import pytest

from leveret.control.calls.address import SOCKET_NAME, socket_address
from leveret.control.calls.client import ControlClient
from leveret.control.refusal import BAD_REQUEST, CONFLICT, NOT_FOUND, Refused
from leveret.testing.processes import LeveretProcess


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[LeveretProcess]:
    with LeveretProcess(tmp_path / ("a" * 60) / ("b" * 60)) as process:  # a path too long for a socket
        yield process


def raw(broker: LeveretProcess, line: bytes) -> dict[str, object]:
    with socket.socket(socket.AF_UNIX) as caller, socket_address(str(broker.data_dir)) as address:
        caller.connect(address)
        caller.sendall(line + b"\n")
        answer = msgspec.json.decode(caller.makefile("rb").readline())
        assert isinstance(answer, dict)
        return answer


def test_only_its_owner_may_open_it(broker: LeveretProcess) -> None:
    mode = (broker.data_dir / SOCKET_NAME).stat().st_mode
    assert stat.S_ISSOCK(mode)
    assert stat.S_IMODE(mode) == 0o600


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"{", "truncated"),
        (b"[]", "Expected `object`"),
        (b'{"call": {}}', "missing required field `command`"),
        *((b'{"call": {"command": "%s"}}' % base, "unknown command") for base in (b"query", b"listing", b"single")),
        (b'{"call": {"command": "add_usr"}}', "did you mean 'add_user'"),
        (b'{"call": {"command": "add_user", "name": 1, "password": ""}}', "Expected `str`, got `int` - at `$.name`"),
        (b'{"call": {"command": "list_users", "nam": 1}}', "unknown field `nam`"),
    ],
)
def test_what_is_no_call_is_answered_with_the_reason(broker: LeveretProcess, line: bytes, reason: str) -> None:
    answer = raw(broker, line)
    assert answer["error"] == BAD_REQUEST
    assert reason in str(answer["reason"])
    assert "ok" in raw(broker, b'{"call": {"command": "list_users"}}')


def test_refusals_have_their_kind(broker: LeveretProcess) -> None:
    with ControlClient(str(broker.data_dir)) as control:
        with pytest.raises(Refused) as refused:
            control.call("delete_vhost", name="missing")
        assert refused.value.kind == NOT_FOUND
        with pytest.raises(Refused) as refused:
            control.call("add_user", name="guest", password="x")
        assert refused.value.kind == CONFLICT


def test_what_was_answered_is_there_after_a_crash(broker: LeveretProcess) -> None:
    with ControlClient(str(broker.data_dir)) as control:
        control.call("add_vhost", name="here", creator="guest")
        control.call("add_vhost", name="gone")
        control.call("add_user", name="somebody", password="secret")
        control.call("delete_vhost", name="gone")
        control.call("delete_user", name="guest")
    broker.kill()
    broker.start()
    with ControlClient(str(broker.data_dir)) as control:
        assert [vhost["name"] for vhost in control.call("list_vhosts")] == ["/", "here"]
        assert [user["name"] for user in control.call("list_users")] == ["somebody"]
        assert control.call("authenticate", name="somebody", password="secret")["tags"] == []


def test_a_deleted_virtual_host_takes_its_connections_along(broker: LeveretProcess) -> None:
    with ControlClient(str(broker.data_dir)) as control:
        control.call("add_vhost", name="v", creator="guest")
        connection = pika.BlockingConnection(pika.URLParameters(broker.url.replace("%2F", "v")))
        channel = connection.channel()
        channel.queue_declare("q", durable=True)
        control.call("delete_vhost", name="v")
        with pytest.raises(pika.exceptions.ConnectionClosedByBroker) as closed:
            channel.queue_declare("q", passive=True)
        assert (closed.value.reply_code, closed.value.reply_text) == (320, "CONNECTION_FORCED - vhost 'v' is deleted")
        with pytest.raises(pika.exceptions.ProbableAccessDeniedError):
            pika.BlockingConnection(pika.URLParameters(broker.url.replace("%2F", "v")))


def audited(broker: LeveretProcess) -> list[dict[str, object]]:
    """Return the administrative actions in the broker's log."""
    return [msgspec.json.decode(line.split(" audit ")[1]) for line in broker.output.splitlines() if " audit " in line]


def test_an_audit_line_says_who_called_even_if_the_call_does_not(broker: LeveretProcess) -> None:
    with ControlClient(str(broker.data_dir)) as control:
        control.call("list_users")
        control.call("add_user", name="somebody", password="secret")
        with pytest.raises(Refused):
            control.call("add_user", name="somebody", password="secret")
    by = b'{"user":"u","address":"192.0.2.1","interface":"http"}'
    raw(broker, b'{"call":{"command":"delete_user","name":"x"},"by":' + by + b"}")
    broker.stop()
    first, second, third = audited(broker)
    owner = {"user": f"unix:{pwd.getpwuid(os.getuid()).pw_name}", "address": f"pid:{os.getpid()}", "via": "ctl"}
    arguments = {"name": "somebody", "password": "***"}
    assert first == owner | {"command": "add_user", "arguments": arguments, "outcome": "ok"}
    assert second == owner | {"command": "add_user", "arguments": arguments, "outcome": CONFLICT}
    caller = {"user": "u", "address": "192.0.2.1", "via": "http"}
    assert third == caller | {"command": "delete_user", "arguments": {"name": "x"}, "outcome": NOT_FOUND}
