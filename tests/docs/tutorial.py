"""Runs a tutorial as a reader would: programs are saved, commands go to one shell, and their output is compared.

Only ports differ: those of the page, such as 5672, may be in use here.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from leveret.testing.processes import free_port

PORTS = ("5672", "5673", "15672")
BLOCK = re.compile(r"^```(\w+)(?: title=\"([^\"]+)\")?\n(.*?)^```$", re.M | re.S)
DONE = "-- block done --"
TIMEOUT_S = 150


@dataclass(frozen=True)
class Step:
    """What a reader types at once, and the expected output; None: the page does not show it."""

    commands: str
    expected: str | None


def read(page: Path) -> tuple[dict[str, str], list[Step]]:
    """Return a page's programs by name, and its steps in order."""
    programs: dict[str, str] = {}
    steps: list[Step] = []
    for language, title, text in BLOCK.findall(page.read_text()):
        if language == "python":
            assert title, f"{page.name}: a program without a name"
            programs[title] = text
        elif language == "sh":
            steps.append(Step(text, None))
        elif language == "text":
            steps[-1] = Step(steps[-1].commands, text)
    return programs, steps


def run(page: Path, directory: Path) -> None:
    """Run the page in an empty directory; the AssertionError names the step whose output differs."""
    programs, steps = read(page)
    ports = {port: str(free_port()) for port in PORTS}

    def here(text: str) -> str:
        text = re.sub(r"\b(5672|5673|15672)\b", lambda match: ports[match[1]], text)
        return re.sub(
            r"leveret serve (?!.*--port)(.*)&", rf"leveret serve --port {ports['5672']} --admin-port 0 \1&", text
        )

    for name, text in programs.items():
        (directory / name).write_text(here(text))
    script = "".join(f"{here(step.commands)}\necho '{DONE}'\n" for step in steps)
    environment = os.environ | {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "PYTHONUNBUFFERED": "1",
        "LEVERET_DATA_DIR": str(directory / "data"),
    }  # fmt: skip
    with (directory / "stderr").open("w+") as errors:
        shell = subprocess.Popen(
            ["bash", "-c", f"trap 'kill $(jobs -p) 2>/dev/null' EXIT\nset -e -o pipefail\n{script}"],
            cwd=directory, env=environment, stdout=subprocess.PIPE, stderr=errors, text=True, start_new_session=True,
        )  # fmt: skip
        try:
            output, _ = shell.communicate(timeout=TIMEOUT_S)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(shell.pid, signal.SIGKILL)
        errors.seek(0)
        said = errors.read()[-4000:]
    printed = output.split(f"{DONE}\n")
    assert len(printed) == len(steps) + 1, f"{page.name} ended early:\n{output}\n{said}"
    for step, actual in zip(steps, printed, strict=False):
        if step.expected is not None:
            matches(page, step, actual, said)


def matches(page: Path, step: Step, actual: str, said: str) -> None:
    """Compare line by line; … matches anything, or any lines if it stands alone in a line."""
    assert step.expected is not None
    pattern = re.sub(r"^…\\\n", "(?s:.*)", re.escape(step.expected), flags=re.M).replace("…", ".*")
    text = "".join(f"{line.rstrip()}\n" for line in actual.splitlines())
    assert re.fullmatch(pattern, text), (
        f"{page.name}:\n{step.commands}\nprinted\n{actual}\nnot\n{step.expected}\n{said}"
    )
