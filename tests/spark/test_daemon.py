"""Python processes of a local Spark start quickly: they have bytecode, and workers inherit the modules they need."""

from __future__ import annotations

import json
import os
import runpy
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyspark
import pytest
from pyspark.sql import SparkSession

from leveret import spark_daemon
from leveret.spark import sessions

OWN_ZIP = Path(pyspark.__file__).parent / "python/lib/pyspark.zip"
STARTUP = Path(sessions.__file__).with_name("startup")


THREAD = "threading.Thread(target=time.sleep, args=[99], daemon=True).start()"
SCHEMA = pa.schema({"modules": pa.list_(pa.string()), "pyspark": pa.string(), "threads": pa.string()})


def loaded(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Return which modules the worker had at its start, where PySpark comes from, and a variable of the daemon."""
    for _ in batches:
        pass
    modules = [name for name in spark_daemon.MODULES if name in sys.modules]
    rows = {"modules": [modules], "pyspark": [pyspark.__file__], "threads": [os.environ.get("OPENBLAS_NUM_THREADS")]}
    yield pa.RecordBatch.from_pydict(rows, SCHEMA)


def test_workers_inherit_the_modules(spark: SparkSession) -> None:
    found = spark.range(0, 1, 1, 1).mapInArrow(loaded, "modules ARRAY<STRING>, pyspark STRING, threads STRING")
    [row] = found.collect()
    assert set(row.modules) >= set(spark_daemon.MODULES) - {"pandas"}
    assert row.pyspark == pyspark.__file__
    assert row.threads == os.environ.get("OPENBLAS_NUM_THREADS")


@pytest.mark.parametrize(("before", "is_alone"), [("pass", True), (THREAD, False)])
def test_what_is_preloaded_starts_no_thread(before: str, is_alone: bool) -> None:
    program = f"import threading, time; from leveret import spark_daemon; {before}; print(spark_daemon.preload())"
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert found.stdout.split()[-1] == str(is_alone)


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What the daemon does, with a thread that a fork would lose."""
    done: list[str] = []
    monkeypatch.setattr(spark_daemon, "preload", lambda: bool(done.append("preload")))
    monkeypatch.setattr(os, "execv", lambda _path, command: done.append(" ".join(command[1:])))
    monkeypatch.setattr("pyspark.daemon.manager", lambda: done.append("manager"))
    return done


def test_with_a_thread_that_a_fork_would_lose_it_becomes_sparks_daemon(
    calls: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["daemon", "pyspark.worker"])
    monkeypatch.setattr(sys, "platform", "linux")
    spark_daemon.main()
    assert calls[:2] == ["preload", "-m pyspark.daemon pyspark.worker"]


def path_of(*places: Path) -> list[str]:
    """Return the path of a Python process that a local Spark starts with these places on its PYTHONPATH."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (STARTUP, *places)))}
    program = "import json, sys; print(json.dumps(sys.path))"
    found = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, check=True)
    path = json.loads(found.stdout)
    assert isinstance(path, list)
    return path


def test_the_zip_file_of_the_same_installation_is_left_out() -> None:
    assert str(OWN_ZIP) not in path_of(OWN_ZIP)


def test_the_zip_file_of_another_installation_stays(tmp_path: Path) -> None:
    other = tmp_path / "python/lib/pyspark.zip"
    assert str(other) in path_of(other)


def test_the_zip_file_stays_if_there_is_no_other_pyspark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [str(OWN_ZIP), str(tmp_path)])
    runpy.run_path(str(STARTUP / "sitecustomize.py"))["prefer_bytecode"]()
    assert sys.path == [str(OWN_ZIP), str(tmp_path)]


def test_the_sitecustomize_of_the_environment_is_imported(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("import sys; sys.path.append('imported')")
    path = path_of(tmp_path)
    assert path[-1] == "imported"
    assert str(STARTUP) not in path
