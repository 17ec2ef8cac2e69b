"""`leveret stream` on leveret and on RabbitMQ: the same output, the same messages."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result

from leveret.cli.main import main
from leveret.client import BlockingChannel, BlockingConnection, Properties
from leveret.testing.processes import LeveretProcess

from ..shared import vhost

COUNT = 1200
STREAM = {"x-queue-type": "stream"}
BINARY = bytes(range(256))


def fill(url: str) -> None:
    """Declare a stream of numbered messages, each tenth with a filter value, an empty stream, and ordinary queues."""
    with BlockingConnection(url, reconnect=False) as connection, connection.channel() as channel:
        channel.confirm_select()
        for name in ("numbers", "empty", "growing"):
            channel.declare_queue(name, durable=True, arguments=STREAM)
        channel.declare_exchange("flights", "topic", durable=True)
        channel.bind_queue("numbers", "flights", "#")
        for number in range(COUNT - 1):
            headers = {"x-stream-filter-value": "tenth"} if number % 10 == 0 else {}
            body = json.dumps({"number": number}).encode()
            channel.publish(body, "flights", "dep.jfk", properties=Properties(headers=headers))
        last = Properties(message_id="id-1", timestamp=1_700_000_000, headers={"airline": "AA", "n": 5})
        channel.publish(BINARY, "flights", "dep.ewr", properties=last)
        channel.wait_for_confirms()
        for name, arguments in (("classic", {}), ("quorum", {"x-queue-type": "quorum"})):
            channel.declare_queue(name, durable=True, arguments=arguments)
            channel.publish(b"stays", "", name)
        channel.wait_for_confirms()


def empty(url: str) -> None:
    with BlockingConnection(url, reconnect=False) as connection, connection.channel() as channel:
        for name in ("numbers", "empty", "growing", "classic", "quorum"):
            channel.delete_queue(name)
        channel.delete_exchange("flights")


@pytest.fixture(scope="module")
def ours() -> Iterator[str]:
    with LeveretProcess() as broker:
        fill(broker.url)
        yield broker.url


@pytest.fixture(scope="module")
def theirs(rabbitmq: str) -> Iterator[str]:
    fill(rabbitmq)
    yield rabbitmq
    empty(rabbitmq)


@pytest.fixture(params=["ours", pytest.param("theirs", marks=pytest.mark.needs("rabbitmq"))])
def url(request: pytest.FixtureRequest) -> str:
    return str(request.getfixturevalue(request.param))


def stream(url: str, *words: str) -> Result:
    result = CliRunner().invoke(main, ["stream", *words, "--url", url])
    assert "Traceback" not in result.output
    return result


def objects(url: str, *words: str) -> list[dict[str, object]]:
    result = stream(url, *words, "--json")
    assert (result.exit_code, result.stderr) == (0, "")
    return [json.loads(line) for line in result.stdout.splitlines()]


def offsets(url: str, *words: str) -> list[object]:
    return [each["offset"] for each in objects(url, *words)]


def test_the_last_ones(url: str) -> None:
    assert offsets(url, "tail", "numbers") == list(range(COUNT - 20, COUNT))
    assert offsets(url, "tail", "numbers", "-n", "3") == list(range(COUNT - 3, COUNT))
    assert offsets(url, "tail", "numbers", "-n", "5000") == list(range(COUNT))
    assert offsets(url, "tail", "numbers", "-n", "0") == []
    assert offsets(url, "tail", "empty") == []


def test_the_last_ones_with_a_filter_value(url: str) -> None:
    assert offsets(url, "tail", "numbers", "-n", "3", "--filter", "tenth") == [COUNT - 30, COUNT - 20, COUNT - 10]
    assert offsets(url, "tail", "numbers", "--filter", "no such") == []


def test_the_first_ones(url: str) -> None:
    assert offsets(url, "head", "numbers") == list(range(20))
    assert offsets(url, "head", "numbers", "-n", "2", "--offset", "700") == [700, 701]
    assert offsets(url, "head", "numbers", "--offset", str(COUNT - 1)) == [COUNT - 1]
    assert offsets(url, "head", "numbers", "--offset", str(COUNT)) == []
    assert offsets(url, "head", "numbers", "-n", "3", "--filter", "tenth") == [0, 10, 20]
    assert offsets(url, "head", "empty") == offsets(url, "head", "numbers", "-n", "0") == []


def test_what_arrived_since(url: str) -> None:
    assert offsets(url, "head", "numbers", "--since", "1h", "-n", "2") == [0, 1]
    assert offsets(url, "tail", "numbers", "--since", "1h") == list(range(COUNT))
    tomorrow = (datetime.now(UTC) + timedelta(days=1)).isoformat()
    assert offsets(url, "tail", "numbers", "--since", tomorrow) == []


def test_how_many(url: str) -> None:
    assert stream(url, "count", "numbers").output == f"{COUNT}\n"
    assert stream(url, "count", "numbers", "--since", "1d").output == f"{COUNT}\n"
    assert stream(url, "count", "empty").output == "0\n"


def test_a_message_as_json(url: str) -> None:
    first, last = objects(url, "head", "numbers", "-n", "1") + objects(url, "tail", "numbers", "-n", "1")
    assert (first["exchange"], first["routing_key"], first["body"]) == ("flights", "dep.jfk", '{"number": 0}')
    assert first["headers"] == {"x-stream-filter-value": "tenth"}
    assert last["properties"] == {"message_id": "id-1", "timestamp": 1_700_000_000}
    assert last["headers"] == {"airline": "AA", "n": 5}
    assert "body" not in last
    assert "body_base64" in last


def test_a_message_for_people(url: str) -> None:
    lines = stream(url, "tail", "numbers", "-n", "2").output.splitlines()
    assert lines[0].split("  ")[-2:] == ["flights → dep.jfk", "16 octets"]
    assert lines[1].strip() == '{"number": 1198}'
    assert lines[2].split()[0] == str(COUNT - 1)
    assert lines[3].strip() == "message_id: id-1"
    assert lines[4].strip() == "airline: AA, n: 5"
    assert lines[5].split()[:3] == ["00000000", "00", "01"]


def test_an_export_is_all_there_is(url: str, tmp_path: Path) -> None:
    result = stream(url, "export", "numbers")
    assert [json.loads(line)["offset"] for line in result.stdout.splitlines()] == list(range(COUNT))
    assert result.stderr == "1,200 messages written\n"
    path = tmp_path / "numbers.jsonl"
    assert stream(url, "export", "numbers", "-o", str(path)).stderr == "1,200 messages written\n"
    assert path.read_text() == result.stdout
    refused = stream(url, "export", "numbers", "-o", str(path))
    assert (refused.exit_code, path.read_text()) == (2, result.stdout)
    assert "continue after its last message with --resume" in refused.stderr
    assert stream(url, "export", "empty").stderr == "0 messages written\n"


@pytest.mark.parametrize("left", [0, 10, 5000])
def test_an_export_that_was_broken_off_goes_on(url: str, tmp_path: Path, left: int) -> None:
    path = tmp_path / "numbers.jsonl"
    stream(url, "export", "numbers", "-o", str(path))
    whole = path.read_bytes()
    path.write_bytes(whole[:left])
    written = stream(url, "export", "numbers", "-o", str(path), "--resume").stderr
    assert path.read_bytes() == whole
    assert written == f"{COUNT - whole[:left].count(10):,} messages written\n"


def test_an_export_as_parquet_has_the_columns_of_tables(url: str, tmp_path: Path) -> None:
    directory = tmp_path / "numbers"
    words = ("export", "numbers", "--format", "parquet", "-o", str(directory))
    assert stream(url, *words, "--offset", "1000").stderr == "200 messages written\n"
    (path,) = directory.iterdir()
    assert path.name == f"{1000:020d}-{COUNT - 1:020d}.parquet"
    rows = pq.read_table(path).to_pylist()
    assert [row["offset"] for row in rows] == list(range(1000, COUNT))
    assert (rows[-1]["message_id"], rows[-1]["body"], rows[-1]["routing_key"]) == ("id-1", BINARY, "dep.ewr")
    assert dict(rows[-1]["headers"])["airline"]["text"] == "AA"
    assert "continue after their last message" in stream(url, *words).stderr
    assert stream(url, *words, "--resume").stderr == "0 messages written\n"


@pytest.mark.parametrize("verb", ["tail", "head", "count", "export"])
def test_what_is_no_stream_is_not_touched(url: str, verb: str) -> None:
    result = stream(url, verb, "nowhere")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith(f"stream 'nowhere' does not exist in virtual host '{vhost(url)}' of 127.0.0.1:")
    with BlockingConnection(url, reconnect=False) as connection, connection.channel() as channel:
        for name in ("classic", "quorum"):
            result = stream(url, verb, name)
            assert result.exit_code == 1
            assert result.stderr.endswith("is a queue, not a stream: reading would remove its messages\n")
            delivery = channel.get(name)
            assert delivery is not None
            assert (delivery.body, delivery.redelivered) == (b"stays", False)
            channel.publish(b"stays", "", name)
            channel.ack(delivery.delivery_tag)
            channel.declare_queue(name, passive=True)


def test_who_is_not_let_in_is_told_why(url: str) -> None:
    result = stream(url.replace("guest:guest", "guest:wrong"), "tail", "numbers")
    assert (result.exit_code, len(result.stderr.splitlines())) == (3, 1)
    assert "ACCESS_REFUSED" in result.stderr
    result = stream("amqp://127.0.0.1:1/", "tail", "numbers")
    assert (result.exit_code, result.stderr) == (
        3, "cannot connect to 127.0.0.1:1: [Errno 111] Connection refused\n"
    )  # fmt: skip


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("tail", "numbers", "--since", "yesterday"), "'yesterday' is neither a duration (5m, 1h30m, 2d) nor a time"),
        (("head", "numbers", "--since", "5m", "--offset", "1"), "--offset and --since exclude each other"),
        (("export", "numbers", "--format", "parquet"), "choose one with -o: Parquet is written to a directory"),
        (("export", "numbers", "--resume"), "choose one with -o: --resume needs an output file"),
        (("export", "numbers", "-o", "/proc/no/such"), "/proc/no/such: No such file or directory"),
    ],
)
def test_wrong_options(ours: str, words: tuple[str, ...], reason: str) -> None:
    result = stream(ours, *words)
    assert result.exit_code == 2
    assert reason in result.stderr


@pytest.mark.parametrize("more", [[], ["--filter", "wanted"]], ids=["all", "filtered"])
def test_following_ends_with_ctrl_c(url: str, more: list[str]) -> None:
    words = ["tail", "growing", "-n", "1", "--follow", "--json", "--url", url, *more]
    with BlockingConnection(url, reconnect=False) as connection, connection.channel() as channel:
        channel.confirm_select()
        publish(channel, b"before", "wanted")
        command = [sys.executable, "-m", "leveret.cli.main", "stream", *words]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            assert json.loads(process.stdout.readline())["body"] == "before"
            for number in range(6):
                value = "wanted" if number % 2 else "other"
                publish(channel, b"%d" % number, value)
                if value == "wanted" or not more:
                    assert json.loads(process.stdout.readline())["body"] == str(number)
            os.kill(process.pid, signal.SIGINT)
            assert process.communicate() == ("", "")
        assert process.returncode == 0


def publish(channel: BlockingChannel, body: bytes, value: str) -> None:
    channel.publish(body, "", "growing", Properties(headers={"x-stream-filter-value": value}))
    channel.wait_for_confirms()
