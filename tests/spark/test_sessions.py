"""The settings of a session, without starting one."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from unittest import mock

import pytest

from leveret.spark import RECOMMENDED, sessions


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """A Java exists, and no Python is set; changes of the environment are undone."""
    monkeypatch.setattr(sessions, "java_home", lambda: Path("/java"))
    for name in ("JAVA_HOME", "PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON", "SPARK_HOME", "SPARK_CONF_DIR"):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)


def test_a_session_on_this_machine_needs_no_network_and_has_the_settings() -> None:
    settings = sessions._prepared({})
    assert settings.pop("spark.master") == "local[*]"
    assert {settings.pop(f"spark.driver.{name}") for name in ("host", "bindAddress")} == {"127.0.0.1"}
    assert settings.pop("spark.python.daemon.module") == "leveret.spark_daemon"
    log = Path(sessions.__file__).with_name("log4j2.properties").as_uri()
    assert settings.pop("spark.driver.extraJavaOptions") == f"-Dlog4j2.configurationFile={log}"
    assert settings == RECOMMENDED
    assert os.environ["JAVA_HOME"] == "/java"
    assert os.environ["PYSPARK_PYTHON"] == os.environ["PYSPARK_DRIVER_PYTHON"] == sys.executable


def test_what_is_given_wins() -> None:
    given = {"spark.master": "spark://h:7077", "spark.sql.shuffle.partitions": "7", "spark.pyspark.python": "/python"}
    settings = sessions._prepared({**given, "spark.driver.extraJavaOptions": "-Xmx1g"})
    assert settings.pop("spark.driver.extraJavaOptions").endswith("log4j2.properties -Xmx1g")
    assert settings == {**RECOMMENDED, **given}
    assert os.environ["PYSPARK_PYTHON"] == "/python"
    assert os.environ["PYSPARK_DRIVER_PYTHON"] == sys.executable


@pytest.mark.parametrize("name", ["SPARK_HOME", "SPARK_CONF_DIR"])
def test_an_installation_of_spark_has_a_log_file_of_its_own(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv(name, "/spark")
    assert "spark.driver.extraJavaOptions" not in sessions._prepared({})


def test_the_environment_names_the_pythons(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", "/workers")
    sessions._prepared({"spark.pyspark.python": "/python"})
    assert os.environ["PYSPARK_PYTHON"] == "/workers"


class Builder:
    def __init__(self) -> None:
        self.settings: dict[str, str] = {}
        self.registered: list[object] = []
        self.path = ""
        self.dataSource = self
        self.sparkContext = mock.MagicMock()
        self.local_files = self.sparkContext._jvm.org.apache.hadoop.fs.FileSystem.getLocal.return_value

    def appName(self, name: str) -> Builder:
        return self.config("spark.app.name", name)

    def remote(self, url: str) -> Builder:
        return self.config("spark.remote", url)

    def config(self, name: str, text: str) -> Builder:
        self.settings[name] = text
        return self

    def getOrCreate(self) -> Builder:
        self.path = os.environ.get("PYTHONPATH", "")
        return self

    def register(self, source: object) -> None:
        self.registered.append(source)


@pytest.fixture
def builder(monkeypatch: pytest.MonkeyPatch) -> Builder:
    builder = Builder()
    names = {"builder": builder, "getActiveSession": staticmethod(lambda: None)}
    monkeypatch.setattr(sessions, "SparkSession", type("SparkSession", (), names))
    return builder


@pytest.mark.parametrize("by", ["argument", "environment", "setting"])
def test_a_connect_server_is_asked_for_sql_settings_only_and_needs_no_java(
    by: str, builder: Builder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SPARK_REMOTE", raising=False)
    if by == "environment":
        monkeypatch.setenv("SPARK_REMOTE", "sc://server")
    conf = {"spark.remote": "sc://server"} if by == "setting" else {}
    sessions.session("job", remote="sc://server" if by == "argument" else None, **conf)
    assert builder.settings.pop("spark.remote") == "sc://server"
    assert builder.settings.pop("spark.app.name") == "job"
    assert builder.settings == {name: text for name, text in RECOMMENDED.items() if name.startswith("spark.sql.")}
    assert "JAVA_HOME" not in os.environ
    assert builder.registered == [sessions.LeveretDataSource]


def test_a_connect_server_that_is_started_here_has_all_settings(builder: Builder) -> None:
    sessions.session("job", remote="local[2]")
    assert builder.settings["spark.remote"] == "local[2]"
    assert "spark.master" not in builder.settings
    assert RECOMMENDED.items() <= builder.settings.items()


@pytest.mark.parametrize("before", [None, "/mine"])
def test_the_java_that_is_started_gets_a_path_for_its_pythons(
    builder: Builder, before: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PYTHONPATH", raising=False)
    if before is not None:
        monkeypatch.setenv("PYTHONPATH", before)
    sessions.session("job")
    first, *rest = builder.path.split(os.pathsep)
    assert (Path(first) / "sitecustomize.py").exists()
    assert rest == [each for each in (before,) if each]
    assert os.environ.get("PYTHONPATH") == before


def test_the_driver_writes_local_files_without_checksums_unless_their_class_is_given(builder: Builder) -> None:
    sessions.session("job")
    builder.local_files.setWriteChecksum.assert_called_once_with(False)
    sessions.session("job", **{"spark.hadoop.fs.file.impl": "org.apache.hadoop.fs.LocalFileSystem"})
    sessions.session("job", remote="sc://server")
    builder.local_files.setWriteChecksum.assert_called_once_with(False)


def test_booleans_are_given_as_spark_writes_them(builder: Builder) -> None:
    sessions.session("job", **{"spark.ui.enabled": True, "spark.sql.shuffle.partitions": 3})
    assert builder.settings["spark.ui.enabled"] == "true"
    assert builder.settings["spark.sql.shuffle.partitions"] == "3"
