"""The demo as its user runs it: exit status, results, and nothing left behind. Brokers, Java and Spark are real."""

import json
import os
import select
import signal
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

DEMO = [sys.executable, "-m", "leveret.cli.main", "demo"]
FLIGHTS = 400


def demo(output: Path, *options: str) -> "subprocess.CompletedProcess[str]":
    command = [*DEMO, "--flights", str(FLIGHTS), "--output", str(output), *options]
    return subprocess.run(command, capture_output=True, text=True, timeout=240, check=False, env=marked(output))


def marked(output: Path) -> dict[str, str]:
    """An environment that every process of the run inherits and by which it can be told from others."""
    return {**os.environ, "PYTHONUNBUFFERED": "1", "LEVERET_TEST_RUN": str(output)}


def report(output: Path) -> dict[str, dict[str, dict[str, list[str]]]]:
    return json.loads((output / "report.json").read_text())


def survivors(mark: str, patience_s: float) -> list[str]:
    """Command lines of processes with this text in their environment that are still there after a while.

    A JVM notices the end of its Python by the end of its input and needs a moment to go, so each may end in its time.
    """
    alive = []
    for entry in Path("/proc").iterdir():
        try:
            if mark not in (entry / "environ").read_bytes().decode(errors="replace"):
                continue
            line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            handle = os.pidfd_open(int(entry.name))
        except (OSError, ValueError):
            continue  # not a process, or no longer one
        try:
            if not select.select([handle], [], [], patience_s)[0]:
                alive.append(line)
        finally:
            os.close(handle)
    return alive


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


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 1), (signal.SIGTERM, 143)])
def test_an_interrupted_run_leaves_no_process_behind(tmp_path: Path, number: signal.Signals, status: int) -> None:
    command = [*DEMO, "--flights", "20000", "--output", str(tmp_path)]
    with (
        (tmp_path.parent / "stderr").open("w+") as errors,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True, env=marked(tmp_path)) as process,
    ):
        assert process.stdout is not None
        for line in process.stdout:
            if "Spark reads" in line:
                process.send_signal(number)
        assert process.wait(60) == status
        errors.seek(0)
        told = errors.read()
    assert "Traceback" not in told, told
    assert survivors(str(tmp_path), 10) == []


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
