"""Streams of a running broker as operators see them: `leveret ctl list_streams` and /api/streams."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from click.testing import CliRunner, Result

from leveret.cli.ctl.group import command
from leveret.client import BlockingConnection
from leveret.control.calls.client import ControlClient
from leveret.testing.processes import LeveretProcess

from ..no_tls import NO_TLS

COUNT = 20_000


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LeveretProcess]:
    """A broker with a stream in files and tail, an empty stream, and a consumer that has a hundred messages."""
    with LeveretProcess(tmp_path_factory.mktemp("data"), admin=True) as process:
        process.said("the HTTP API is on")
        with ControlClient(str(process.data_dir)) as control:
            control.call("add_vhost", name="other")
            for user, vhost in (("visitor", "other"), ("reader", "/")):
                control.call("add_user", name=user, password="secret")
                control.call("set_user_tags", name=user, tags=["management"])
                control.call("set_permissions", user=user, vhost=vhost, configure="", write="", read=".*")
        with BlockingConnection(process.url, reconnect=False) as connection, connection.channel() as channel:
            channel.confirm_select()
            arguments = {"x-queue-type": "stream", "x-max-age": "7D"}
            channel.declare_queue("flights", durable=True, arguments=arguments)
            channel.declare_queue("empty", durable=True, arguments={"x-queue-type": "stream"})
            channel.declare_queue("classic", durable=True)
            for _ in range(COUNT):
                channel.publish(b"x" * 100, "", "flights")
            channel.wait_for_confirms()
            channel.consume("flights", arguments={"x-stream-offset": 1000}, prefetch_count=100)
            received = 0
            while received < 100:
                received += len(channel.deliveries(100))
            yield process


def ctl(broker: LeveretProcess, *words: str) -> Result:
    environment = {"LEVERET_DATA_DIR": str(broker.data_dir)}
    return CliRunner().invoke(command, list(words), env=environment, prog_name="ctl")


def rows(broker: LeveretProcess, *words: str) -> list[dict[str, Any]]:
    result = ctl(broker, "-q", "list_streams", *words, "--formatter", "json")
    assert result.exit_code == 0, result.output
    found: list[dict[str, Any]] = json.loads(result.stdout)
    return found


def test_a_table_of_streams(broker: LeveretProcess) -> None:
    result = ctl(broker, "list_streams")
    lines = result.stdout.splitlines()
    assert lines[0] == "Listing streams for vhost / ..."
    assert lines[1].split("\t") == [
        "name", "messages", "first_offset", "next_offset", "octets", "segments", "consumers", "lag"
    ]  # fmt: skip
    assert lines[2].split("\t") == ["empty", "0", "0", "0", "0", "0", "0", ""]
    cells = lines[3].split("\t")
    assert cells[:4] == ["flights", str(COUNT), "0", str(COUNT)]
    assert cells[5:] == ["1", "1", str(COUNT - 1100)]
    assert ctl(broker, "-q", "list_streams", "-p", "other").stdout == ""


def test_columns_are_chosen(broker: LeveretProcess) -> None:
    empty, flights = rows(broker, "name", "oldest", "oldest_ms", "max_age_s", "committed_offset", "unacknowledged")
    assert empty == {
        "name": "empty", "oldest": "", "oldest_ms": None, "max_age_s": None, "committed_offset": 0, "unacknowledged": 0
    }  # fmt: skip
    assert (flights["max_age_s"], flights["committed_offset"], flights["unacknowledged"]) == (604_800, COUNT, 100)
    assert flights["oldest"].endswith(f".{flights['oldest_ms'] % 1000:03d}" + flights["oldest"][-6:])
    (flights,) = [row for row in rows(broker, "name", "octets", "file_octets", "tail_octets") if row["octets"]]
    assert flights["octets"] == flights["file_octets"] + flights["tail_octets"]
    (path,) = (broker.data_dir / "streams").glob("*/*.lvs")
    assert flights["file_octets"] == path.stat().st_size
    text = ctl(broker, "-q", "list_streams", "name", "messages", "--formatter", "csv").stdout
    assert list(csv.reader(text.splitlines())) == [["name", "messages"], ["empty", "0"], ["flights", str(COUNT)]]
    refused = ctl(broker, "list_streams", "nothing")
    assert (refused.exit_code, refused.stderr.splitlines()[0]) == (
        64, "Error (argument validation): Info key(s) nothing are not supported"
    )  # fmt: skip


def test_people_get_a_drawing(broker: LeveretProcess) -> None:
    text = ctl(broker, "-q", "list_streams", "--formatter", "pretty_table").stdout
    assert "╭" in text
    assert "20000" in text


def get(broker: LeveretProcess, path: str, user: str = "guest", password: str = "guest") -> httpx.Response:
    return httpx.get(f"{broker.admin_url}/api/streams{path}", auth=(user, password), timeout=60, verify=NO_TLS)


def test_streams_over_http(broker: LeveretProcess) -> None:
    assert [row["name"] for row in get(broker, "").json()] == ["empty", "flights"]
    page = get(broker, "/%2F?page=1&page_size=1&sort=messages&sort_reverse=true&columns=name,lag").json()
    assert (page["items"], page["total_count"]) == ([{"name": "flights", "lag": COUNT - 1100}], 2)
    flights = get(broker, "/%2F/flights").json()
    (reading,) = flights["consumer_details"]
    assert (reading["next_offset"], reading["lag"], reading["messages_unacknowledged"]) == (1100, COUNT - 1100, 100)
    assert get(broker, "/%2F/classic").status_code == get(broker, "/%2F/none").status_code == 404
    assert get(broker, "/nowhere").status_code == 404


def test_who_may_not_enter_a_virtual_host_sees_none_of_its_streams(broker: LeveretProcess) -> None:
    assert [row["name"] for row in get(broker, "", "reader", "secret").json()] == ["empty", "flights"]
    assert get(broker, "", "visitor", "secret").json() == []
    assert get(broker, "/%2F", "visitor", "secret").status_code == 401
    assert get(broker, "/%2F/flights", "visitor", "secret").status_code == 401
    assert get(broker, "", "guest", "wrong").status_code == 401


def test_queues_tell_of_streams_as_rabbitmq_does(broker: LeveretProcess) -> None:
    url = f"{broker.admin_url}/api/queues/%2F/flights"
    answer = httpx.get(url, auth=("guest", "guest"), timeout=60, verify=NO_TLS).json()
    assert (answer["type"], answer["messages"], answer["messages_unacknowledged"]) == ("stream", COUNT, 0)
    assert sum(answer["readers"].values()) == answer["consumers"] == 1
    assert "backing_queue_status" not in answer
    text = ctl(broker, "-q", "list_queues", "name", "type", "messages", "messages_ready").stdout
    assert f"flights\tstream\t{COUNT}\t{COUNT}" in text


def test_metrics_of_streams(broker: LeveretProcess) -> None:
    lines = ctl(broker, "-q", "metrics").stdout.splitlines()
    assert f'leveret_stream_lag_messages{{vhost="/",stream="flights"}} {COUNT - 1100}' in lines
    assert "# TYPE leveret_stream_write_errors_total counter" in lines


def test_a_stream_is_neither_purged_nor_drained(broker: LeveretProcess) -> None:
    refused = ctl(broker, "purge_queue", "flights")
    assert (refused.exit_code, refused.stderr) == (69, "Error:\nnot_supported\n")  # the same text as rabbitmqctl's
    refused = ctl(broker, "drain", "flights", "--to", broker.url, "--queue", "classic")
    assert refused.exit_code == 70
    assert "read it with leveret stream export" in refused.stderr
    assert [row["messages"] for row in rows(broker, "messages")] == [0, COUNT]


def test_a_check_finds_it_sound(broker: LeveretProcess, tmp_path: Path) -> None:
    target = tmp_path / "copy"
    assert ctl(broker, "backup", str(target)).exit_code == 0
    from leveret.cli.main import main

    result = CliRunner().invoke(main, ["store", "check", str(target)])
    assert result.exit_code == 0, result.output
    assert any(f"{'0' * 20}.lvs: messages 0 to " in line for line in result.output.splitlines())
