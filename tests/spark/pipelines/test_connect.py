"""Every pipeline command through a Spark Connect server (--remote); the server finds leveret installed."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from leveret.cli.main import main
from leveret.client import BlockingChannel, BlockingConnection, Properties
from leveret.control.calls.blocking import ControlClient
from leveret.spark.java import java_home, short_lived
from leveret.testing.processes import LeveretProcess, ServerProcess
from leveret.testing.spark_cluster import SPARK_HOME

from ...waiting import until
from ..cluster import FASTER

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1200)]

SETTINGS = {
    "spark.connect.grpc.binding.address": "127.0.0.1", "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1", "spark.ui.enabled": "false", "spark.sql.shuffle.partitions": "2",
}  # fmt: skip
COUNT = 20
STREAM = {"x-queue-type": "stream"}


class LocalConnectServer(ServerProcess):
    name = "connect"
    ready_pattern = re.compile("Spark Connect server started")
    start_timeout_s = 300.0

    def command(self) -> Sequence[str | Path]:
        settings = {**SETTINGS, "spark.connect.grpc.binding.port": str(self.port)}
        conf = [word for name, text in settings.items() for word in ("--conf", f"{name}={text}")]
        server = ["--class", "org.apache.spark.sql.connect.service.SparkConnectServer", "spark-internal"]
        options = ["--master", "local[2, 2]", "--driver-java-options", short_lived()]
        return [SPARK_HOME / "bin" / "spark-submit", *options, *conf, *server]

    def environment(self) -> Mapping[str, str]:
        kept = {name: text for name, text in os.environ.items() if name != "PYSPARK_GATEWAY_PORT"}
        path = os.pathsep.join(filter(None, [str(FASTER), os.environ.get("PYTHONPATH", "")]))
        return {**kept, "JAVA_HOME": str(java_home()), "PYSPARK_PYTHON": sys.executable, "PYTHONPATH": path}

    def stop(self) -> int:
        """Stop the server; Java exits with 143 on SIGTERM, which counts as success."""
        status = super().stop()
        return 0 if status == 143 else status


@pytest.fixture(scope="module")
def broker() -> Iterator[LeveretProcess]:
    with LeveretProcess(admin=True) as process:
        yield process


@pytest.fixture(scope="module")
def server() -> Iterator[LocalConnectServer]:
    with LocalConnectServer() as process:
        yield process


@pytest.fixture
def channel(broker: LeveretProcess) -> Iterator[BlockingChannel]:
    with BlockingConnection(broker.url, reconnect=False) as connection:
        channel = connection.channel()
        channel.confirm_select()
        yield channel


REPORTING = """
import sys
from leveret.spark import report_queries, session
remote, url, stream, checkpoint = sys.argv[1:]
spark = session(remote=remote)
report_queries(spark, url)
rows = spark.readStream.format("leveret").options(url=url, stream=stream).load()
writer = rows.writeStream.format("noop").queryName("from a client").trigger(availableNow=True)
writer.option("checkpointLocation", checkpoint).start().awaitTermination()
sys.stdin.read()  # reports come from another thread
"""

Command = Callable[..., dict[str, Any]]


@pytest.fixture
def run(server: LocalConnectServer) -> Command:
    """Run a command, which must succeed; return its figures."""

    def run(*words: str | Path) -> dict[str, Any]:
        line = [sys.executable, "-m", "leveret.cli.main", "spark", *map(str, words)]
        line += ["--remote", f"sc://127.0.0.1:{server.port}", "--json"]
        done = subprocess.run(line, capture_output=True, text=True, timeout=500, check=False)
        assert done.returncode == 0, done.stdout + done.stderr[-2000:]
        figures: dict[str, Any] = json.loads(done.stdout)["figures"]
        return figures

    return run


@pytest.fixture(scope="module")
def flights(broker: LeveretProcess) -> str:
    """A stream with numbered messages."""
    with BlockingConnection(broker.url, reconnect=False) as connection:
        channel = connection.channel()
        channel.confirm_select()
        channel.declare_queue("flights", durable=True, arguments=STREAM)
        for number in range(COUNT):
            body = json.dumps({"n": number}).encode()
            channel.publish(body, "", "flights", Properties(message_id=f"m{number}", timestamp=1_357_000_000 + number))
        channel.wait_for_confirms()
    return "flights"


def test_queries_are_reported(server: LocalConnectServer, broker: LeveretProcess, flights: str, tmp_path: Path) -> None:
    line = [sys.executable, "-c", REPORTING, f"sc://127.0.0.1:{server.port}", broker.url, flights, str(tmp_path)]
    with subprocess.Popen(line, stdin=subprocess.PIPE) as client, ControlClient(str(broker.data_dir)) as control:

        def found() -> dict[str, Any] | None:
            assert client.poll() is None, "the client has ended"
            rows = control.call("list_queries")
            return next((row for row in rows if row["title"] == "from a client"), None)

        try:
            reported = until(found, "no report arrived")
        finally:
            client.kill()
    assert (reported["rows"], reported["reported_batch"], reported["lag"]) == (COUNT, 0, 0)
    assert reported["checkpoint"] == "", "a Connect client does not know it"


def test_archive_and_replay(
    run: Command, broker: LeveretProcess, channel: BlockingChannel, flights: str, tmp_path: Path
) -> None:
    channel.declare_queue("again", durable=True)
    lake = tmp_path / "lake"
    assert run("archive", lake, "--stream", flights, "--url", broker.url)["rows"] == COUNT
    run("replay", "--lake", lake, "--exchange", "", "--routing-key", "again", "--name", "one", "--checkpoint",
        tmp_path / "replay", "--url", broker.url)  # fmt: skip
    assert channel.declare_queue("again", passive=True).message_count == COUNT


def test_enrich(run: Command, broker: LeveretProcess, channel: BlockingChannel, flights: str, tmp_path: Path) -> None:
    channel.declare_queue("results", durable=True, arguments=STREAM)
    figures = run("enrich", "--stream", flights, "--schema", "n INT", "--into", "results", "--checkpoint",
                  tmp_path / "state", "--url", broker.url)  # fmt: skip
    assert figures["written"] == COUNT
    assert channel.stream_facts("results")["next_offset"] == COUNT


def test_schedule(run: Command, broker: LeveretProcess, channel: BlockingChannel, tmp_path: Path) -> None:
    channel.declare_queue("reminders", durable=True)
    tomorrow = (datetime.now(UTC) + timedelta(days=1)).isoformat()
    (tmp_path / "table.csv").write_text(f"id,at\n1,{tomorrow}\n2,{tomorrow}\n")
    run("schedule", tmp_path / "table.csv", "--format", "csv", "--option", "header=true", "--at-column", "at",
        "--queue", "reminders", "--name", "yearly", "--state", tmp_path / "state", "--url", broker.url)  # fmt: skip
    with ControlClient(str(broker.data_dir)) as control:
        waiting = sum(row["messages"] for row in control.call("list_queues") if row["name"].startswith("nsb."))
    assert waiting == 2


def test_deadletters(run: Command, broker: LeveretProcess, channel: BlockingChannel, tmp_path: Path) -> None:
    channel.declare_queue("back", durable=True)
    channel.declare_queue("died", durable=True)
    arguments = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "died", "x-message-ttl": 0}
    channel.declare_queue("dying", durable=True, arguments=arguments)
    for number in range(3):
        channel.publish(b"dead", "", "dying", Properties(message_id=f"d{number}"))
    channel.wait_for_confirms()
    until(lambda: channel.declare_queue("died", passive=True).message_count == 3, "not dead-lettered")
    assert run("deadletters", "--queue", "died", "--url", broker.url)["messages"] == 3
    figures = run("deadletters", "--queue", "died", "--where", "true", "--to-queue", "back", "--checkpoint",
                  tmp_path / "state", "--url", broker.url)  # fmt: skip
    assert figures["sent"] == channel.declare_queue("back", passive=True).message_count == 3


def test_audit(run: Command, broker: LeveretProcess, channel: BlockingChannel, tmp_path: Path) -> None:
    assert CliRunner().invoke(main, ["spark", "audit", "--record", broker.url]).exit_code == 0
    channel.declare_queue("audited", durable=True)
    with ControlClient(str(broker.data_dir)) as control:
        control.call("trace_on")
        channel.publish(b"x", "", "audited", Properties(message_id="a"))
        channel.wait_for_confirms()
        control.call("trace_off")
    run("audit", "--firehose", f"here={broker.url}", "--broker", f"here={broker.url}", "--table", tmp_path / "table")
    assert pq.read_table(tmp_path / "table").num_rows > 0
