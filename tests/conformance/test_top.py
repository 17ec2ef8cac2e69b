"""leveret top on a real broker, by socket and by HTTP: the screen by textual's pilot, and output for scripts."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from textual.pilot import Pilot
from textual.widgets import DataTable, Input, Static

from leveret.cli.main import main
from leveret.cli.top import command as top_command
from leveret.cli.top.app import Top
from leveret.cli.top.printing import shortened, table
from leveret.cli.top.sources import HttpSampleSource, SampleRequest, SampleSource, SocketSource, Unreachable
from leveret.cli.top.views import CHANNELS, QUEUES, VIEWS, arranged, cell, column_of, fitting
from leveret.client import BlockingConnection
from leveret.testing.processes import LeveretProcess, free_port

LENGTHS = {"short": 1, "middle": 2, "longest": 3}


@pytest.fixture(scope="module")
def broker() -> Iterator[LeveretProcess]:
    with (
        LeveretProcess(admin=True) as process,
        BlockingConnection(process.url, name="a publisher", reconnect=False) as connection,
    ):
        channel = connection.channel()
        channel.declare_queue("history", arguments={"x-queue-type": "stream"})
        channel.confirm_select()
        for name, length in LENGTHS.items():
            channel.declare_queue(name)
            for _ in range(length):
                channel.publish(b"x", routing_key=name)
        channel.wait_for_confirms()
        yield process


@pytest.fixture(params=["socket", "http"])
def source(request: pytest.FixtureRequest, broker: LeveretProcess) -> Iterator[SampleSource]:
    found: SampleSource = SocketSource(str(broker.data_dir))
    if request.param == "http":
        found = HttpSampleSource(broker.admin_url.replace("//", "//guest:guest@"))
    yield found
    found.close()


def application(source: SampleSource, view: str = "queues") -> Top:
    return Top(source, 100, SampleRequest(VIEWS[view], VIEWS[view].sort))


async def until(pilot: Pilot[None], holds: Callable[[], bool]) -> None:
    """Wait for the screen, up to the test's own time limit."""
    while not holds():
        assert pilot.app.is_running
        await pilot.pause(0.01)


def names(app: Top) -> list[str]:
    return [str(item["name"]) for item in app.items]


async def test_queues_longest_first_then_by_name_then_the_other_way_round(source: SampleSource) -> None:
    app = application(source)
    async with app.run_test(size=(120, 30)) as pilot:
        await until(pilot, lambda: len(app.items) == 4)
        assert names(app) == ["longest", "middle", "short", "history"]
        shown = app.query_one(DataTable)
        assert [str(each) for each in shown.get_row_at(0)][:4] == ["/", "longest", "3", "0"]
        head = str(app.query_one("#head", Static).content)
        assert "leveret" in head
        assert "6 ready" in head
        await pilot.press("s")
        assert app.question.sort == "unacked"
        while app.question.sort != "name":
            await pilot.press("s")
        assert names(app) == ["history", "longest", "middle", "short"]
        await pilot.press("r")
        assert names(app) == ["short", "middle", "longest", "history"]
        looks = app.looks
        await until(pilot, lambda: app.looks > looks + 1)  # the broker sorts in the same order
        assert names(app) == ["short", "middle", "longest", "history"]


async def test_a_filter_and_its_end(source: SampleSource) -> None:
    app = application(source)
    async with app.run_test(size=(120, 30)) as pilot:
        await until(pilot, lambda: len(app.items) == 4)
        await pilot.press("slash", *"LONG", "enter")
        await until(pilot, lambda: names(app) == ["longest"])
        assert app.query_one("#filter", Input).value == "LONG"
        await pilot.press("escape")
        await until(pilot, lambda: len(app.items) == 4)


async def test_other_views_and_details_of_the_row(source: SampleSource) -> None:
    app = application(source)
    async with app.run_test(size=(160, 40)) as pilot:
        await until(pilot, lambda: len(app.items) == 4)
        await pilot.press("2")
        await until(pilot, lambda: [item.get("user_provided_name") for item in app.items] == ["a publisher"])
        await pilot.press("d")
        assert '"user_provided_name": "a publisher"' in str(app.query_one("#detail", Static).content)
        await pilot.press("3")
        await until(pilot, lambda: [item.get("number") for item in app.items] == [1])
        await pilot.press("5")
        await until(pilot, lambda: names(app) == ["history"] and "next_offset" in app.items[0])
        await pilot.press("4", "escape")
        await until(pilot, lambda: app.snapshot is not None and app.question.view.name == "links")
        assert not app.query_one("#details").has_class("is-shown")


async def test_columns_go_where_the_terminal_is_narrow(source: SampleSource) -> None:
    app = application(source)
    async with app.run_test(size=(50, 20)) as pilot:
        await until(pilot, lambda: len(app.items) == 4)
        titles = [str(column.label) for column in app.query_one(DataTable).columns.values()]
        assert titles == ["name", "ready", "unacked"]
        await pilot.resize_terminal(140, 20)
        await until(pilot, lambda: len(app.query_one(DataTable).columns) == len(QUEUES.columns))


async def test_a_pause_holds_the_screen(source: SampleSource) -> None:
    app = application(source)
    async with app.run_test(size=(120, 30)) as pilot:
        await until(pilot, lambda: app.looks > 1)
        await pilot.press("space")
        assert "PAUSED" in str(app.query_one("#head", Static).content)
        await app.workers.wait_for_complete()
        looks = app.looks
        await pilot.pause(0.35)  # three intervals
        assert app.looks == looks
        await pilot.press("space")
        await until(pilot, lambda: app.looks > looks)


@pytest.mark.parametrize("kind", ["socket", "http"])
async def test_a_broker_is_found_when_it_comes_and_missed_when_it_goes(tmp_path: Path, kind: str) -> None:
    port = free_port()
    process = LeveretProcess(tmp_path, port, admin=True)
    url = process.admin_url.replace("//", "//guest:guest@")
    app = application(SocketSource(str(tmp_path)) if kind == "socket" else HttpSampleSource(url))
    trouble = "no broker is running in" if kind == "socket" else "no answer from"
    async with app.run_test(size=(100, 20)) as pilot:
        shown = app.query_one("#trouble", Static)
        await until(pilot, lambda: trouble in str(shown.content))
        with process:
            with BlockingConnection(process.url, reconnect=False) as connection:
                connection.channel().declare_queue("kept")
            await until(pilot, lambda: "kept" in names(app))
            assert not shown.has_class("is-shown")
        await until(pilot, lambda: shown.has_class("is-shown"))
        assert "guest:guest" not in str(shown.content)


# -- for scripts -------------------------------------------------------------------------------------------------------


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["top", *arguments], env={"COLUMNS": "100"})


@pytest.mark.parametrize("kind", ["socket", "http"])
def test_one_look_as_text_and_everything_as_json(broker: LeveretProcess, kind: str) -> None:
    where = ["--data-dir", str(broker.data_dir)]
    if kind == "http":
        where = ["--url", broker.admin_url.replace("//", "//guest:guest@")]
    lines = run(*where, "--once").output.splitlines()
    assert lines[0].startswith("leveret ")
    assert [line.split()[1:3] for line in lines[4:6]] == [["longest", "3"], ["middle", "2"]]
    assert all(len(line) <= 100 for line in lines[3:])
    found = json.loads(run(*where, "--json", "--filter", "long").output)
    assert set(found) == {"overview", "nodes", "alarms", *VIEWS}
    assert [queue["messages"] for queue in found["queues"]] == [3]


def test_wrong_calls_say_what_to_do(broker: LeveretProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "columns: vhost, name, type" in run("--sort", "size").output
    assert "give only one" in run("--url", "http://x", "--data-dir", "x").output
    assert "looks like http://guest:guest@localhost:15672" in run("--url", "amqp://localhost").output
    assert f"no broker is running in {tmp_path}" in run("--data-dir", str(tmp_path), "--once").output
    wrong = run("--url", broker.admin_url.replace("//", "//guest:wrong@"), "--once")
    assert (wrong.exit_code, "wrong user name or password" in wrong.output) == (1, True)
    assert "wrong@" not in wrong.output
    monkeypatch.setattr(top_command.importlib.util, "find_spec", lambda name: None)
    missing = run("--data-dir", str(broker.data_dir))
    assert "pip install 'leveret[top]'" in missing.output
    assert missing.exit_code == 2


class TestWords:
    def test_what_is_not_known_is_a_dash(self) -> None:
        capacity = column_of(QUEUES, "cons")
        assert capacity is not None
        assert [cell(capacity, item) for item in ({}, {"consumers": ""}, {"consumers": 1234})] == ["-", "-", "1,234"]
        size, speed = column_of(QUEUES, "bytes"), column_of(QUEUES, "in/s")
        assert size is not None
        assert speed is not None
        sizes = [cell(size, {"message_bytes": value}) for value in (0, 1023, 1536, 1 << 20, 3 << 40)]
        assert sizes == ["0 B", "1023 B", "1.5 KiB", "1.0 MiB", "3.0 TiB"]
        rates: list[Any] = [{"message_stats": {"publish_details": {"rate": rate}}} for rate in (0, 0.5, 12.4, 12345)]
        assert [cell(speed, item) for item in rates] == ["0", "0.5", "12", "12,345"]
        assert [cell(speed, item, is_first=True) for item in rates] == ["-", "0.5", "12", "12,345"]

    def test_long_names_lose_their_middle_and_lines_stay_within_the_width(self) -> None:
        assert shortened("127.0.0.1:1234 -> 127.0.0.1:5672 (1)", 20) == "127.0.0.1:…:5672 (1)"
        items = [{"name": "n" * 300, "user": "u" * 300, "vhost": "v" * 300}]
        for width in (60, 80, 200):
            assert max(map(len, table(CHANNELS, items, width))) <= width

    def test_ties_and_missing_values_do_not_break_the_order(self) -> None:
        items: list[Any] = [{"name": "b"}, {"name": "a", "messages_ready": None}, {"name": "c", "messages_ready": 1}]
        assert [item["name"] for item in arranged(QUEUES, items, "ready", False, "")] == ["c", "b", "a"]
        assert len(fitting(QUEUES, 10)) == 3


class _Poor(BaseHTTPRequestHandler):
    """A broker that has only the overview: RabbitMQ answers 406 for a path that it does not have."""

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        found = {"/api/overview": b"{}", "/odd/api/overview": b"<html>"}.get(path)
        self.send_response(406 if found is None else 200)
        self.end_headers()
        self.wfile.write(found or b"")

    def log_message(self, format: str, *arguments: object) -> None:
        """Suppress the log."""


def test_an_address_that_answers_something_else_is_told() -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), _Poor) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}"
        assert HttpSampleSource(url).ask(SampleRequest(VIEWS["streams"], "messages")).items == []
        with pytest.raises(Unreachable, match="HTTP 406"):
            HttpSampleSource(url).ask(SampleRequest(QUEUES, "ready"))
        with pytest.raises(Unreachable, match="no answer from"):
            HttpSampleSource(url + "/odd").ask(SampleRequest(QUEUES, "ready"))
        server.shutdown()
    with pytest.raises(Unreachable, match=r"no answer from http://127\.0\.0\.1:\d+"):
        HttpSampleSource(f"http://127.0.0.1:{free_port()}").ask(SampleRequest(QUEUES, "ready"))
