"""``leveret spark submit``: the line that it prints is the line that it runs."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from leveret.cli.main import main
from leveret.cli.spark.submit import JOB, SubmitLine, environment

HOME = {"JAVA_HOME": "/java", "SPARK_HOME": "/spark", "PYSPARK_PYTHON": "./env/bin/python"}
# a session that other tests have started sets the driver's Python
RUNNER = CliRunner(env={**HOME, "PYSPARK_DRIVER_PYTHON": None})


def submitted(*words: str) -> list[str]:
    result = RUNNER.invoke(main, ["spark", "submit", "--print-only", *words])
    assert result.exit_code == 0, result.output
    return shlex.split(result.stdout)


def test_a_pipeline_on_a_cluster() -> None:
    words = ["--master", "yarn", "--conf", "a=archive", "archive", "/lake", "--stream", "flights", "--master", "x"]
    assert submitted(*words) == [
        f"PYSPARK_DRIVER_PYTHON={sys.executable}",
        *("/spark/bin/spark-submit", "--master", "yarn", "--conf", "a=archive", "--py-files", "leveret.zip"),
        *(str(JOB), "archive", "/lake", "--stream", "flights", "--master", "x"),
    ]
    assert JOB.exists()


def test_a_job_of_ones_own_and_its_files() -> None:
    words = ["--verbose", "--name=late", "--py-files", "a.py,b.zip", "--py-files=c.egg", "job.py", "--help"]
    assert submitted(*words)[1:] == [
        *("/spark/bin/spark-submit", "--verbose", "--name=late"),
        *("--py-files", "leveret.zip,a.py,b.zip,c.egg", "job.py", "--help"),
    ]


def test_the_zip_may_be_elsewhere() -> None:
    assert submitted("--zip", "/tmp/x/leveret.zip", "audit")[-4:-2] == ["--py-files", "/tmp/x/leveret.zip"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "no job given"),
        (["--master", "yarn"], "no job given"),
        (["--master"], "no job given"),
        (["archiv", "/lake"], "archiv is neither a pipeline (archive, replay"),
    ],
)
def test_a_line_without_a_job(words: list[str], said: str) -> None:
    with pytest.raises(click.UsageError) as error:
        SubmitLine.parse(words)
    assert said in error.value.message
    result = RUNNER.invoke(main, ["spark", "submit", *words])
    assert result.exit_code == 2


def test_what_is_not_said_is_found() -> None:
    said = environment({})
    assert (Path(said["JAVA_HOME"]) / "bin" / "java").exists()
    assert said["PYSPARK_DRIVER_PYTHON"] == sys.executable
    assert said["PYSPARK_PYTHON"] == "python3"
    assert environment({**HOME, "PYSPARK_DRIVER_PYTHON": "p"}) == {}


def test_a_spark_that_is_not_there_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("leveret.cli.spark.submit.write_zip", Path.touch)
    home = {**HOME, "SPARK_HOME": str(tmp_path)}
    result = CliRunner(env=home).invoke(main, ["spark", "submit", "--zip", str(tmp_path / "leveret.zip"), "audit"])
    assert result.exit_code == 1
    assert f"{tmp_path}/bin/spark-submit: No such file or directory" in result.output
