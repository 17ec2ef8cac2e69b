"""A job on a cluster whose two workers have nothing but pyarrow: by spark-submit, and by a Connect server."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from leveret.cli.spark.zip import write_zip
from leveret.client import BlockingChannel, BlockingConnection
from leveret.spark import RECOMMENDED
from leveret.testing.spark_cluster import PASSED_ON

from .cluster import Cluster, ConnectServer, running_cluster
from .service import Service
from .support import fill

pytestmark = [pytest.mark.spark, pytest.mark.needs("minutes"), pytest.mark.timeout(600)]

SOURCES = Path(__file__).parents[2] / "src"
JOB = Path(__file__).with_name("job.py")
MESSAGES = 120


@dataclass(frozen=True)
class Ran:
    """The output of a job, and the queues that it filled."""

    found: dict[str, Any]
    name: str
    channel: BlockingChannel


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    directory = tmp_path_factory.mktemp("cluster")
    write_zip(directory / "leveret.zip", SOURCES / "leveret")
    with running_cluster(directory, directory / "leveret.zip") as cluster:
        yield cluster


@pytest.fixture(scope="module", params=["submitted", "connected"])
def ran(
    request: pytest.FixtureRequest, cluster: Cluster, broker: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Ran]:
    name = f"cluster.{uuid.uuid4().hex[:12]}"
    folder = tmp_path_factory.mktemp(request.param)
    with (
        BlockingConnection(broker, reconnect=False) as connection,
        connection.channel() as channel,
        Service(broker) as service,
    ):
        channel.confirm_select()
        for suffix in ("full", "empty", "answered"):
            channel.declare_queue(f"{name}.{suffix}")
        channel.declare_queue(f"{name}.stream", arguments={"x-queue-type": "stream"})
        fill(channel, f"{name}.full", 0, MESSAGES)
        fill(channel, f"{name}.stream", 0, MESSAGES)
        queues = [f"{name}.{suffix}" for suffix in ("full", "empty", "answered", "stream")]
        arguments = [broker, *queues, service.queue, str(folder)]
        run = submitted if request.param == "submitted" else connected
        yield Ran(run(cluster, arguments), name, channel)
        for queue in queues:
            channel.delete_queue(queue)


def submitted(cluster: Cluster, arguments: list[str]) -> dict[str, Any]:
    """Run the job by spark-submit. Its driver has pandas, which mapInArrow needs there, and leveret from the zip."""
    driver = ["--conf", f"spark.pyspark.driver.python={sys.executable}"]
    return found_by(cluster.submit(*driver, JOB, *arguments), cluster.environment())


def connected(cluster: Cluster, arguments: list[str]) -> dict[str, Any]:
    """Run the job as a client of a Connect server, with nothing but pyarrow."""
    with ConnectServer(cluster) as server:
        kept = {name: text for name, text in os.environ.items() if name not in (*PASSED_ON, "JAVA_HOME")}
        environment = {**kept, "PYTHONPATH": str(SOURCES), "SPARK_REMOTE": server.remote}
        return found_by([sys.executable, str(JOB), *arguments, str(cluster.archive)], environment)


def found_by(command: list[str], environment: dict[str, str]) -> dict[str, Any]:
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    errors = [line for line in done.stderr.splitlines() if " INFO " not in line]
    assert done.returncode == 0, "\n".join([done.stdout, *errors])
    [line] = [line for line in done.stdout.splitlines() if line.startswith("found ")]
    found: dict[str, Any] = json.loads(line.removeprefix("found "))
    return found


def taken(ran: Ran, suffix: str, count: int) -> list[tuple[bytes, str | None, str | None]]:
    """Take `count` messages from a queue; return body, message id and type of each."""
    got = [ran.channel.get(f"{ran.name}.{suffix}", no_ack=True) for _ in range(count + 1)]
    deliveries = [each for each in got if each is not None]
    assert len(deliveries) == count
    return [(each.body, each.properties.message_id, each.properties.type) for each in deliveries]


def test_executors_have_leveret_by_the_zip_and_nothing_but_pyarrow(ran: Ran, cluster: Cluster) -> None:
    assert all(f"/{cluster.archive.name}/leveret/" in path for path in ran.found["leveret"])
    assert not any(path.startswith(str(cluster.archive)) for path in ran.found["leveret"]), "that is not what was sent"
    assert ran.found["extras"] == [""]


def test_the_sink_publishes_every_row(ran: Ran) -> None:
    assert {(body, key) for body, key, _ in taken(ran, "empty", 300)} == {
        (str(number).encode(), f"id-{number}") for number in range(300)
    }


def test_a_stream_is_read_by_the_executors(ran: Ran) -> None:
    assert ran.found["stream"] == [[number, f"id-{number}"] for number in range(MESSAGES)]


def test_a_session_in_which_nothing_is_registered_finds_the_source_by_its_name(ran: Ran) -> None:
    assert ran.found["by_name"] == MESSAGES


def test_a_queue_a_service_and_foreach_batch(ran: Ran) -> None:
    assert ran.found["ended"]
    answers = taken(ran, "answered", MESSAGES)
    assert {body for body, _, _ in answers} == {f"ID-{number}".encode() for number in range(MESSAGES)}
    assert {kind for _, _, kind in answers} == {"batch0", "batch1", "batch2"}
    assert ran.channel.declare_queue(f"{ran.name}.full", passive=True).message_count == 0


def test_the_session_has_the_settings_that_nobody_gave_otherwise(ran: Ran, request: pytest.FixtureRequest) -> None:
    is_remote = "connected" in request.node.name
    assert ran.found["session"] == ("pyspark.sql.connect.session" if is_remote else "pyspark.sql.session")
    wanted = {name: text for name, text in RECOMMENDED.items() if name.startswith("spark.sql.")}
    # spark-submit gets 2 from its --conf
    assert ran.found["settings"] == (wanted if is_remote else {**wanted, "spark.sql.shuffle.partitions": "2"})


def test_a_pipeline_is_submitted_with_the_python_of_its_executors(
    cluster: Cluster, broker: str, tmp_path: Path
) -> None:
    """As in docs/guides/spark/cluster.md, the driver plans with the environment in ./env; executors get it packed."""
    name = f"cluster.{uuid.uuid4().hex[:12]}"
    (tmp_path / "env").symlink_to(cluster.python.parents[1])
    with tarfile.open(tmp_path / "env.tar.gz", "w:gz", compresslevel=1) as archive:
        for part in cluster.python.parents[1].iterdir():
            archive.add(part, part.name)
    with BlockingConnection(broker, reconnect=False) as connection, connection.channel() as channel:
        channel.confirm_select()
        channel.declare_queue(name, arguments={"x-queue-type": "stream"})
        ids = fill(channel, name, 0, MESSAGES)
        settings = {**cluster.spark.settings(), "spark.ui.enabled": "false", "spark.driver.memory": "512m"}
        conf = [word for key, text in settings.items() for word in ("--conf", f"{key}={text}")]
        line = [*conf, "--archives", "env.tar.gz#env", "archive", "lake", "--stream", name, "--url", broker, "--json"]
        kept = {key: text for key, text in os.environ.items() if key not in PASSED_ON}
        environment = {
            **kept, "PYSPARK_PYTHON": "./env/bin/python", "PYTHONPATH": str(SOURCES), "SPARK_LOCAL_IP": "127.0.0.1",
        }  # fmt: skip
        done = subprocess.run(
            [sys.executable, "-m", "leveret.cli.main", "spark", "submit", *line],
            env=environment, cwd=tmp_path, capture_output=True, text=True, check=False,
        )  # fmt: skip
        channel.delete_queue(name)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "--archives 'env.tar.gz#env'" in done.stdout.partition("\n")[0]
    # spark-submit merges standard output and error of its Python
    assert json.loads(done.stdout[done.stdout.index("\n{") :])["figures"]["rows"] == MESSAGES
    assert set(pq.read_table(tmp_path / "lake", columns=["message_id"])["message_id"].to_pylist()) == ids
