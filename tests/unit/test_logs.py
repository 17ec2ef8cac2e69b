"""The lines of the log: text and JSON, and that nobody's name can forge one."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

from leveret.control.audit import Audit
from leveret.control.commands.users import DeleteUser
from leveret.control.line import SOMEBODY
from leveret.net import logs
from leveret.net.logs import JsonFormatter, TextFormatter, about

from .support import Bench

HOSTILE = 'eve\r\n2026-01-01 00:00:00,000 INFO forged\x1b[2J\x00\x85\u2028\u202e"}\ud800'


def record(text: str, *arguments: object, error: BaseException | None = None, **fields: object) -> logging.LogRecord:
    exc_info = (type(error), error, error.__traceback__) if error is not None else None
    made = logging.LogRecord("leveret", logging.WARNING, "file", 1, text, arguments, exc_info)
    if fields:
        made.fields = fields
    return made


def test_a_hostile_name_stays_in_its_line_of_text() -> None:
    line = TextFormatter().format(record("user '%s' refused", HOSTILE))
    assert len(line.splitlines()) == 1
    assert line.endswith(
        "WARNING user 'eve\\r\\n2026-01-01 00:00:00,000 INFO forged\\x1b[2J\\x00\\x85\\u2028\\u202e\"}\ud800' refused"
    )


def test_a_traceback_in_text_looks_like_no_line_of_the_log() -> None:
    try:
        raise ValueError(HOSTILE)
    except ValueError as error:
        first, *rest = TextFormatter().format(record("internal error", error=error)).splitlines()
    assert first.endswith("WARNING internal error")
    assert any("ValueError: eve" in line for line in rest)
    assert all(line.startswith("    ") for line in rest)


def test_json_is_one_object_in_ascii_on_one_line() -> None:
    made = record("user '%s' refused", HOSTILE, user=HOSTILE, vhost="/")
    line = JsonFormatter().format(made)
    assert line.isascii()
    assert line.isprintable()
    found = json.loads(line)
    assert found["event"] == f"user '{HOSTILE}' refused"
    assert (found["user"], found["vhost"], found["level"], found["logger"]) == (HOSTILE, "/", "warning", "leveret")
    assert found["time"].endswith("Z")
    instant = datetime.fromisoformat(found["time"])
    assert abs(instant - datetime.fromtimestamp(made.created, UTC)).total_seconds() < 0.001
    assert "traceback" not in found


def test_a_traceback_is_a_field() -> None:
    found = json.loads(JsonFormatter().format(record("internal error", error=KeyError("x"))))
    assert found["traceback"].endswith("KeyError: 'x'")


@pytest.fixture
def own_log() -> Iterator[None]:
    """The log as it was before, afterwards."""
    root = logging.getLogger()
    before, level = root.handlers[:], root.level
    root.handlers[:] = []
    yield
    root.handlers[:] = before
    root.setLevel(level)


def test_the_form_and_the_level_can_be_changed(
    own_log: None, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    logs.configure("info", "text")
    logging.getLogger().handlers[0].setStream(sys.stderr)  # type: ignore[attr-defined]
    logging.getLogger("leveret").info("one")
    logs.configure("warning", "json")
    assert logs.form() == "json"
    logging.getLogger("leveret").info("not this")
    logging.getLogger("leveret").warning("two")
    first, second = capsys.readouterr().err.splitlines()
    assert first.endswith("INFO one")
    assert json.loads(second)["event"] == "two"


def test_what_is_known_of_a_connection() -> None:
    bench = Bench()
    told: list[tuple[str, str]] = []
    bench.broker.on_event = lambda text: told.append((text, getattr(bench.broker.subject, "user", "")))
    peer = bench.connect().peer
    assert about(peer) == {"fields": {"connection": peer.name, "user": "guest", "vhost": "/"}}
    [(text, user)] = told
    assert (text, user) == (f"{peer.address}: user 'guest' connected to vhost '/'", "guest")
    assert bench.broker.subject is None


def test_the_audit_is_fields_in_json(caplog: pytest.LogCaptureFixture) -> None:
    Audit().note(SOMEBODY, DeleteUser(name="alice"), "ok")
    [made] = caplog.records
    found = json.loads(JsonFormatter().format(made))
    assert (found["event"], found["command"], found["arguments"], found["outcome"]) == (
        "audit", "delete_user", {"name": "alice"}, "ok",
    )  # fmt: skip
    assert TextFormatter().format(made).partition(" audit ")[2].startswith('{"user": ')
