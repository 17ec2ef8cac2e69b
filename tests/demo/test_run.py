"""The demo as its user runs it: exit status, results, and nothing left behind. Brokers, Java and Spark are real."""

import json
import os
import re
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from leveret.client import BlockingConnection
from leveret.demo.plan import FLIGHTS_STREAM

from .running import DEMO, FLIGHTS, demo, marked, processes, report, survivors

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]


def test_a_run_adds_up_and_leaves_tables_picture_and_account(tmp_path: Path) -> None:
    done = demo(tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "everything adds up" in done.stdout
    flights = pq.read_table(tmp_path / "flights.parquet").to_pandas()
    assert flights["message_id"].nunique() == len(flights) == FLIGHTS
    known = flights[flights["plane"].notna()]
    assert len(known) > FLIGHTS / 2
    assert known["plane"].map(lambda plane: plane["seats"]).min() > 0
    punctuality = pq.read_table(tmp_path / "punctuality.parquet").to_pandas()
    assert punctuality["flights"].sum() == FLIGHTS
    assert punctuality["on_time"].sum() == flights["on_time"].sum() == (flights["arr_delay"] < 15).sum()
    assert (tmp_path / "punctuality.png").read_bytes().startswith(b"\x89PNG")
    stages = report(tmp_path)["stages"]
    due = int((flights["arr_delay"] >= 15).sum())
    assert {name: stage["messages"] for name, stage in stages.items()} == {
        **dict.fromkeys(("published", "confirmed", "read", "replies", "written"), FLIGHTS),
        "delivered": due,
    }
    assert not (tmp_path / "broker").exists()
    assert survivors(str(tmp_path), 10) == []


def test_a_killed_task_repeats_nothing(tmp_path: Path) -> None:
    """Spark's Python workers die in the middle of a micro-batch: its rows are read, asked for and written once."""

    def kill(_demo: int) -> None:
        running = dict(processes(str(tmp_path)))
        [lookup] = [pid for pid, line in running.items() if "roles.lookup" in line]
        [port] = [re.findall(r"--port (\d+)", line)[0] for line in running.values() if " serve " in line]
        os.kill(lookup, signal.SIGSTOP)  # no task can end meanwhile
        with BlockingConnection(f"amqp://127.0.0.1:{port}") as connection:
            channel = connection.channel()
            while not channel.declare_queue(FLIGHTS_STREAM, passive=True).consumer_count:
                pass
        # the forks of a daemon with the same command line
        daemons = {pid for pid, line in processes(str(tmp_path)) if "leveret.spark_daemon pyspark.worker" in line}
        workers = [pid for pid in daemons if parent(pid) in daemons]
        assert workers
        for worker in workers:
            os.kill(worker, signal.SIGKILL)
        os.kill(lookup, signal.SIGCONT)

    status, told = disturbed(tmp_path, "Spark is reading", kill)
    assert status == 0, told
    assert "Python worker exited unexpectedly" in (tmp_path / "records" / "spark.log").read_text()
    stages = report(tmp_path)["stages"]
    assert {stages[name]["messages"] for name in ("read", "replies", "written")} == {20_000}
    flights = pq.read_table(tmp_path / "flights.parquet", columns=["message_id", "arr_delay"]).to_pandas()
    assert flights["message_id"].nunique() == len(flights) == 20_000
    assert stages["delivered"]["messages"] == (flights["arr_delay"] >= 15).sum()
    assert json.loads((tmp_path / "report.json").read_text())["exactly_once"] is True


def parent(pid: int) -> int:
    """Return the process id of a process's parent (proc(5))."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


@pytest.mark.needs("minutes")
def test_injected_faults_are_found_and_fail_the_run(tmp_path: Path) -> None:
    done = demo(tmp_path, "--inject", "lost", "--inject", "duplicated", "--inject", "early")
    assert done.returncode == 1, done.stdout + done.stderr
    assert "it does not add up" in done.stdout
    stages = report(tmp_path)["stages"]
    for name in ("read", "replies", "written"):
        assert len(stages[name]["lost"]) == 1
        assert len(stages[name]["duplicated"]) == 1
    for name in ("published", "confirmed"):
        assert stages[name]["lost"] == stages[name]["duplicated"] == []
    assert len(stages["delivered"]["early"]) == 1
    assert not any(stage["unexpected"] for stage in stages.values())


def disturbed(output: Path, cue: str, disturb: Callable[[int], None], *options: str) -> tuple[int, str]:
    """Run the demo; call `disturb` with its process id when it prints the cue. Return its status and last output."""
    command = [*DEMO, "--flights", "20000", "--output", str(output), *options]
    with (
        (output.parent / "stderr").open("w+") as errors,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True, env=marked(output)) as process,
    ):
        assert process.stdout is not None
        for line in process.stdout:
            if cue in line:
                disturb(process.pid)
        status = process.wait(60)
        errors.seek(0)
        told = errors.read()
    assert "Traceback" not in told, told
    return status, told


@pytest.mark.parametrize(
    ("number", "status", "cue", "options"),
    [
        (signal.SIGINT, 1, "Spark is reading", []),
        (signal.SIGTERM, 143, "Spark is reading", []),
        (signal.SIGINT, 1, "JFK: link cut", ["--federated"]),
    ],
    ids=["SIGINT", "SIGTERM", "SIGINT in an outage"],
)
def test_an_interrupted_run_leaves_no_process_behind(
    tmp_path: Path, number: signal.Signals, status: int, cue: str, options: list[str]
) -> None:
    assert disturbed(tmp_path, cue, lambda pid: os.kill(pid, number), *options)[0] == status
    assert survivors(str(tmp_path), 10) == []


@pytest.mark.needs("minutes")
def test_a_federated_run_adds_up_over_a_cut_link_and_a_killed_broker(tmp_path: Path) -> None:
    done = demo(tmp_path, "--federated", flights=2_000)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "everything adds up" in done.stdout
    for said in ("JFK: link cut at", "link restored at", "LGA: broker killed at", "broker restarted at", "caught up"):
        assert said in done.stdout
    flights = pq.read_table(tmp_path / "flights.parquet").to_pandas()
    assert flights["message_id"].nunique() == len(flights) == 2_000
    stages = report(tmp_path)["stages"]
    for name in ("confirmed", "read", "replies", "written"):
        assert stages[name]["messages"] == 2_000
    assert stages["crossed"]["messages"] == 2_000 + len(stages["crossed"]["repeated"])
    assert set(stages["crossed"]["repeated"]) <= set(stages["published"]["repeated"])
    assert all(flight.endswith("-LGA") for flight in stages["published"]["repeated"])
    # the outages happened while messages flowed
    samples = [json.loads(line) for line in (tmp_path / "records" / "samples.jsonl").read_text().splitlines()]
    for airport, began_s, ended_s in outages(tmp_path):
        confirmed = {sample["seconds"]: sample["confirmed"] for sample in samples if sample["airport"] == airport}
        assert any(count > 0 for seconds, count in confirmed.items() if seconds <= began_s)
        assert max(count for seconds, count in confirmed.items() if seconds <= ended_s) < max(confirmed.values())
    assert (tmp_path / "federation.png").read_bytes().startswith(b"\x89PNG")
    assert not (tmp_path / "broker").exists()
    assert survivors(str(tmp_path), 10) == []


def outages(output: Path) -> list[tuple[str, float, float]]:
    """Return where and when outages were, and check that both have been made up for."""
    found = json.loads((output / "report.json").read_text())["outages"]
    assert [outage["airport"] for outage in found] == ["JFK", "LGA"]
    assert all(outage["began_s"] < outage["ended_s"] < outage["caught_up_s"] for outage in found)
    return [(outage["airport"], outage["began_s"], outage["ended_s"]) for outage in found]


@pytest.mark.needs("minutes")
def test_faults_behind_the_links_are_found(tmp_path: Path) -> None:
    done = demo(tmp_path, "--federated", "--inject", "lost", "--inject", "duplicated")
    assert done.returncode == 1, done.stdout + done.stderr
    assert "it does not add up" in done.stdout
    stages = report(tmp_path)["stages"]
    assert len(stages["crossed"]["lost"]) == len(stages["crossed"]["duplicated"]) == 1
    for name in ("read", "replies", "written"):
        assert stages[name]["lost"] == stages["crossed"]["lost"]
        assert stages[name]["duplicated"] == []  # the job drops it like a publisher's repeat
    assert not any(stage["unexpected"] for stage in stages.values())


def test_a_broker_that_dies_unasked_ends_the_run(tmp_path: Path) -> None:
    def kill(_demo: int) -> None:
        [broker] = [pid for pid, line in processes(str(tmp_path)) if f"{tmp_path}/broker/EWR" in line]
        os.kill(broker, signal.SIGKILL)

    status, told = disturbed(tmp_path, "Spark is reading", kill, "--federated")
    assert status == 1
    assert "the broker EWR stopped" in told
    assert survivors(str(tmp_path), 10) == []


def test_a_federated_run_takes_no_broker_of_somebody_else(tmp_path: Path) -> None:
    done = demo(tmp_path / "results", "--federated", "--url", "amqp://localhost")
    assert done.returncode == 2
    assert "can't be used with --url" in done.stderr
    assert not (tmp_path / "results").exists()


def test_a_directory_of_somebody_else_is_not_touched(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("the only copy")
    done = demo(tmp_path)
    assert done.returncode == 1
    assert "is not empty" in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]


def test_a_broker_that_is_not_there_is_named(tmp_path: Path) -> None:
    done = demo(tmp_path / "results", "--url", "amqp://guest:guest@127.0.0.1:1/%2F")
    assert done.returncode == 1
    assert "the broker can't be used" in done.stderr
    assert "127.0.0.1:1" in done.stderr
    assert "Traceback" not in done.stderr
