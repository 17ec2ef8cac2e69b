"""Runs pipelines as commands: the documentation's lines in this process, and one in a process that is killed midway."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from click.testing import CliRunner

import leveret
from leveret.cli.main import main
from leveret.spark.java import short_lived

from ..kills.on_path.leveret_failpoints import kill_session, processes, stop_session

DOCS = Path(__file__).parents[3] / "docs"
PATIENCE_S = 220.0


def commands(page: str) -> list[list[str]]:
    """Return the command lines of a page's sh blocks that call ``leveret spark``, as the words after ``leveret``."""
    text = "\n".join(re.findall(r"```sh\n(.*?)```", (DOCS / page).read_text(), re.S)).replace("\\\n", " ")
    lines = [shlex.split(line, comments=True) for line in text.splitlines()]
    return [words[1:] for words in lines if words[:2] == ["leveret", "spark"]]


def invoke(words: Sequence[str], replaced: Mapping[str, str] | None = None, exit_code: int = 0) -> str:
    """Run ``leveret WORDS`` in the active session, which stays open, and return its standard output.

    ``replaced`` maps parts of words, such as ``/data`` or a URL, to their values in the test.
    """
    for old, new in (replaced or {}).items():
        words = [word.replace(old, new) for word in words]
    result = CliRunner().invoke(main, list(words), catch_exceptions=False)
    assert result.exit_code == exit_code, f"{words}: exit code {result.exit_code}\n{result.output}"
    return result.stdout


def summary(words: Sequence[str], replaced: Mapping[str, str] | None = None, exit_code: int = 0) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(invoke([*words, "--json"], replaced, exit_code))
    return found


def run_and_kill(words: Sequence[str], when: Callable[[], bool], log: Path) -> None:
    """Start ``leveret WORDS`` in a session of its own, and kill all of its processes (SIGKILL) while ``when`` is true.

    The processes are stopped first, and ``when`` is checked again, however long this test had to wait for a processor.
    The test fails if the command ends before.
    """
    environment = {**os.environ, "PYTHONPATH": str(Path(leveret.__file__).parents[1])}
    conf = ["--conf", f"spark.driver.extraJavaOptions={short_lived()}", "--master", "local[2]"]
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "leveret.cli.main", *words, *conf],
            env=environment, stdout=output, stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip
    try:
        deadline_s = time.monotonic() + PATIENCE_S
        while not (when() and _holds_still(process.pid, when)):
            assert process.poll() is None, f"it ended too early:\n{log.read_text()[-3000:]}"
            assert time.monotonic() < deadline_s, f"it does not come to where it is to be killed:\n{log.read_text()}"
            time.sleep(0.005)
        assert process.poll() is None, f"it ended before it was killed:\n{log.read_text()[-3000:]}"
    finally:
        kill_session(process.pid)
        process.wait()


def _holds_still(session: int, when: Callable[[], bool]) -> bool:
    """Stop all processes of the session and return whether ``when`` is true then; if it is not, continue them."""
    stop_session(session)
    if when():
        return True
    for pid in processes(session):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)
    return False


def committed(checkpoint: Path) -> int:
    """Return the last committed micro-batch of a checkpoint; -1: none."""
    names = [path.name for path in (checkpoint / "commits").glob("*") if path.name.isdigit()]
    return max(map(int, names), default=-1)
