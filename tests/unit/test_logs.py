"""The lines of the log, as text and as JSON, which no name can forge."""

from __future__ import annotations

import ast
import json
import logging
import re
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

import leveret
from leveret.broker.peer import Peer
from leveret.broker.storage.recovery import Recovery
from leveret.control.audit import Audit
from leveret.control.calls.line import SOMEBODY
from leveret.control.commands.access.users import DeleteUser
from leveret.control.commands.policies import SetPolicy
from leveret.net import logs
from leveret.net.disk.paging import Paging
from leveret.net.logs import EVENT_CHARS_MAX, JsonFormatter, TextFormatter, about
from leveret.wire import grammar
from leveret.wire.errors import NAME_CHARS_MAX, quoted

from .admin import Browser
from .links import World
from .support import Bench, Client

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
    """Restore the logging configuration afterwards."""
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


# -- names that clients choose -----------------------------------------------------------------------------------------

NAME = "eve' refused\r\n2026-01-01 00:00:00,000 INFO forged\x1b[2J\x00\x85\u2028\u202e\""
NAME += "x" * (255 - len(NAME.encode()))


@pytest.mark.parametrize(("name", "said"), [
    ("orders", "'orders'"),
    ("größe 1", "'größe 1'"),
    ("a'b", "'a\\'b'"),
    ("CORP\\eve", "'CORP\\\\eve'"),
    ("a\n\x1b[2J", "'a\\n\\x1b[2J'"),
    ("\udcff", "'\\udcff'"),
    ("", "''"),
    ("y" * NAME_CHARS_MAX, "'" + "y" * NAME_CHARS_MAX + "'"),
    ("y" * 255, "'" + "y" * NAME_CHARS_MAX + "…' (255 characters)"),
])  # fmt: skip
def test_a_name_in_quotes(name: str, said: str) -> None:
    assert quoted(name) == said


def test_what_is_long_is_cut_but_not_the_audit() -> None:
    long = "z" * 100_000
    try:
        raise ValueError(long)
    except ValueError as error:
        lines = TextFormatter().format(record("%s", long, error=error)).splitlines()
        found = json.loads(JsonFormatter().format(record("%s", long, user=long)))
    assert max(map(len, lines)) < EVENT_CHARS_MAX + 100
    assert found["event"] == found["user"] == "z" * EVENT_CHARS_MAX + "… (100000 characters)"
    made = record("audit %s", long)
    made.name = "leveret.audit"
    assert long in TextFormatter().format(made)


def login(bench: Bench) -> None:
    peer = Peer(bench.broker, "test:1", True)
    client = Client(bench, peer)
    client.raw(b"AMQP\0\0\x09\x01")
    name = NAME.replace("\0", "").encode()
    client.send(0, grammar.CONNECTION_START_OK, mechanism="PLAIN", response=b"\0%b\0x" % name)


def entering(bench: Bench) -> None:
    put = bench.broker.definitions.put
    put("vhost", {"name": NAME, "description": "", "tags": []})
    put("permission", {"user": "guest", "vhost": NAME, "configure": "", "write": "", "read": ""})
    bench.connect(NAME)


def missing_queue(bench: Bench) -> None:
    bench.connect().send(1, grammar.QUEUE_DECLARE, queue=NAME, passive=True)


def dropped_message(bench: Bench) -> None:
    bench.connect().queue(NAME)
    vhost = bench.broker.vhosts["/"]
    (queue,) = vhost.queues.values()
    vhost.discard(queue, "a reason")


def lost_pages(bench: Bench) -> None:
    recovery = SimpleNamespace(finish=lambda numbers: 0, lost={NAME: 3}, segments=())
    paging = SimpleNamespace(
        _segments=SimpleNamespace(numbers=list), pager=SimpleNamespace(recovered=lambda *_: None)
    )
    Paging.recover(cast(Paging, paging), cast(Recovery, recovery))


def link(bench: Bench) -> None:
    world = World()
    world.node("up")
    down = world.node("down")
    down.exchange(NAME[:100])  # link names made from it still fit
    down.upstream(NAME, "amqp://up")
    down.policy("^eve", {"federation-upstream": NAME})
    world.until(down.is_running)
    next(iter(down.federator._links())).dead_reply(NAME)
    down.gates[0].peer.complain(NAME)


def policy(bench: Bench) -> None:
    Audit().note(SOMEBODY, SetPolicy(name=NAME, pattern=NAME * 1000, definition={NAME: NAME}), "ok")


OPERATIONS = (login, entering, missing_queue, dropped_message, lost_pages, link, policy)


@pytest.mark.parametrize("operation", OPERATIONS)
def test_no_operation_writes_a_name_that_forges_or_fills_a_line(
    operation: Callable[[Bench], None], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    bench = Bench()
    bench.broker.on_event = logging.getLogger("leveret").info
    operation(bench)
    told = [each for each in caplog.records if "eve" in each.getMessage()]
    assert told
    for each in told:
        line = TextFormatter().format(each)
        assert line.isprintable()
        assert len(line) < EVENT_CHARS_MAX + 100 or each.name == "leveret.audit"
        # the audit is JSON, and error texts are those that clients get
        assert "eve' refused" not in line or operation in (policy, missing_queue), "the name ends its quotes"
        assert JsonFormatter().format(each).isprintable()


async def test_a_path_that_meets_a_defect(caplog: pytest.LogCaptureFixture) -> None:
    browse = Browser()

    def defect(_: Any) -> Any:
        raise RuntimeError("a defect")

    browse.control.answers["list_queues"] = defect
    answer = await browse("GET", "/api/queues/mine%27%0Aforged%1B" + "x" * 3000)
    assert answer.status_code in (404, 500)
    answer = await browse("GET", "/api/queues/mine?sort=%27%0Aforged")
    assert answer.status_code == 500
    for each in caplog.records:
        assert all("forged" not in line or line.isprintable() for line in TextFormatter().format(each).splitlines())


# packages that log to the log of the program that uses them
ELSEWHERE = ("client", "delay", "demo", "endpoint", "lake", "otel", "pipelines", "spark", "testing")
SAYING = {
    "debug", "info", "warning", "error", "critical", "exception", "log", "on_event", "tell", "tell_once", "complain",
    "_say",
}  # fmt: skip


def test_no_line_of_the_log_puts_names_into_quotes_by_itself() -> None:
    """A quote within the name would end such quotes; `quoted` handles that."""
    root = Path(leveret.__file__).parent
    calls, found = 0, []
    for path in sorted(root.rglob("*.py")):
        if path.relative_to(root).parts[0] in ELSEWHERE:
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in SAYING:
                calls += 1
                parts = [part for argument in node.args for part in ast.walk(argument)]
                if any(map(quotes_by_itself, parts)):
                    found.append(f"{path.relative_to(root)}:{node.lineno}")
    assert calls > 80
    assert found == []


def quotes_by_itself(part: ast.AST) -> bool:
    if isinstance(part, ast.Constant):
        return isinstance(part.value, str) and re.search(r"%r|['\"]%s", part.value) is not None
    if not isinstance(part, ast.JoinedStr):
        return False
    before = [None, *part.values]
    return any(
        isinstance(value, ast.FormattedValue)
        and (value.conversion == ord("r") or (isinstance(last, ast.Constant) and str(last.value).endswith(("'", '"'))))
        for last, value in zip(before, part.values, strict=False)
    )
