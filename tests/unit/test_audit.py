"""The audit: one line per administrative action, which says who, from where and what, and contains no secret."""

from __future__ import annotations

import json
import logging
from typing import ClassVar

import pytest

from leveret.control.audit import TEXT_MAX, Audit
from leveret.control.calls.line import Caller
from leveret.control.command import COMMANDS, Command
from leveret.control.commands.access.permissions import SetPermissions
from leveret.control.commands.access.users import AddUser


class Tell(Command):
    """A command with every kind of field."""

    value: object = None
    key: str = ""
    secrets: ClassVar[tuple[str, ...]] = ("key",)


del COMMANDS["tell"]  # it is not in the real table


def line_of(caplog: pytest.LogCaptureFixture, command: Command, by: Caller, outcome: str = "ok") -> str:
    Audit().note(by, command, outcome)
    (record,) = caplog.records
    assert (record.name, record.levelno) == ("leveret.audit", logging.INFO)
    return record.getMessage()


def said(caplog: pytest.LogCaptureFixture, command: Command, by: Caller | None = None) -> dict[str, object]:
    line = line_of(caplog, command, by or Caller())
    found = json.loads(line.removeprefix("audit "))
    assert isinstance(found, dict)
    return found


def test_who_from_where_what_and_how_it_ended(caplog: pytest.LogCaptureFixture) -> None:
    command = SetPermissions(user="u", configure="", write=".*", read="a")
    line = line_of(caplog, command, Caller("alice", "192.0.2.1:50", "http"), "not_found")
    assert line == (
        'audit {"user": "alice", "address": "192.0.2.1:50", "via": "http", "command": "set_permissions", '
        '"arguments": {"user": "u", "configure": "", "write": ".*", "read": "a"}, "outcome": "not_found"}'
    )


def test_no_password_and_no_hash_of_one(caplog: pytest.LogCaptureFixture) -> None:
    arguments = said(caplog, AddUser(name="u", password="sesame", password_hash="c2VzYW1l"))["arguments"]
    assert arguments == {"name": "u", "password": "***", "password_hash": "***"}


def test_no_secret_that_a_command_names_or_that_lies_deep_in_a_value(caplog: pytest.LogCaptureFixture) -> None:
    users = [{"name": "a", "password_hash": "c2VzYW1l"}, {"name": "b", "password": "sesame"}]
    value = {"users": users, "uri": "amqps://u:ses@ame@host/v", "uris": ["amqp://sesame@host"], "n": 1}
    assert said(caplog, Tell(value=value, key="sesame"))["arguments"] == {
        "value": {
            "users": [{"name": "a", "password_hash": "***"}, {"name": "b", "password": "***"}],
            "uri": "amqps://***@host/v",
            "uris": ["amqp://***@host"],
            "n": 1,
        },
        "key": "***",
    }


@pytest.mark.parametrize("end", ["\n", "\r", "\x85", "\u2028", "\x1b[2J", "\x9b"])
def test_nothing_that_is_said_begins_a_line_or_acts_on_a_terminal(caplog: pytest.LogCaptureFixture, end: str) -> None:
    forged = f'u{end}audit {{"user": "root"}}'
    line = line_of(caplog, Tell(value={forged: forged}), Caller(forged, forged, forged))
    assert line.isascii()
    assert line.isprintable()
    found = json.loads(line.removeprefix("audit "))
    assert (found["user"], found["address"], found["via"]) == (forged, forged, forged)


def test_a_long_text_is_cut_and_its_length_said(caplog: pytest.LogCaptureFixture) -> None:
    arguments = said(caplog, Tell(value="x" * 5000), Caller("y" * 5000))["arguments"]
    assert arguments == {"value": "x" * TEXT_MAX + "… (5000 characters)"}


def test_a_quiet_log_has_the_audit_nevertheless(caplog: pytest.LogCaptureFixture) -> None:
    root = logging.getLogger()
    before = root.level
    root.setLevel(logging.CRITICAL)
    try:
        assert said(caplog, AddUser(name="u", password="x"))["command"] == "add_user"
    finally:
        root.setLevel(before)
