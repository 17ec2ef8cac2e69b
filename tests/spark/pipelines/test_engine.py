"""Spark is stopped even if Java no longer answers after an interrupt."""

from __future__ import annotations

import subprocess
import sys
from types import SimpleNamespace
from typing import Any, NoReturn

import pytest
from py4j.protocol import Py4JNetworkError
from pyspark import SparkContext

from leveret.pipelines import engine


class SilentSession:
    """A session whose Java does not answer."""

    @property
    def streams(self) -> NoReturn:
        raise Py4JNetworkError("Answer from Java side is empty")


def test_java_that_does_not_answer_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    silent: Any = SilentSession()
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as java:
        monkeypatch.setattr(SparkContext, "_gateway", SimpleNamespace(proc=java))
        engine._stop(silent)
        assert java.poll() is not None


def test_spark_elsewhere_that_does_not_answer_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    silent: Any = SilentSession()
    monkeypatch.setattr(SparkContext, "_gateway", SimpleNamespace())
    with pytest.raises(Py4JNetworkError):
        engine._stop(silent)
