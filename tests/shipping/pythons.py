"""The Pythons that wheels are built with and for, and a directory of all packages that this takes.

    python -m tests.shipping.pythons

downloads these for each Python found, so that nothing is fetched while tests run. A Python is found if its version is
3.11 or later and `--version` succeeds: those that LEVERET_PYTHONS names (a list of paths, as in PATH), or else
python3.11, python3.12 … of the PATH, and those of pyenv.
"""

from __future__ import annotations

import functools
import os
import pwd
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

TOP: Final = Path(__file__).parents[2]
WHEELHOUSE: Final = TOP / "build" / "wheelhouse"
COMPLETE: Final = WHEELHOUSE / "complete"
OLDEST: Final = 11
IMAGE: Final = ("argon2-cffi",)
"""Packages that only the image has."""
SMOKE: Final = ("hypothesis", "pytest", "pytest-asyncio", "pytest-timeout", "pytest-xdist")
"""Packages for the unit tests that run with each wheel."""


def _candidates() -> Iterator[str]:
    if named := os.environ.get("LEVERET_PYTHONS"):
        yield from named.split(os.pathsep)
        return
    yield sys.executable
    newest = OLDEST + 9
    yield from (f"python3.{minor}" for minor in range(OLDEST, newest))
    # the user's own home, too, if the environment names another one
    homes = (os.path.expanduser("~"), pwd.getpwuid(os.getuid()).pw_dir)
    for home in dict.fromkeys([os.environ.get("PYENV_ROOT") or homes[0], *(f"{home}/.pyenv" for home in homes)]):
        yield from sorted(map(str, Path(home).glob("versions/3.*/bin/python")))


@functools.cache
def pythons() -> dict[str, str]:
    """Return the Pythons found, version ("3.12") -> command. The running one stands for its version."""
    found: dict[str, str] = {}
    for command in _candidates():
        try:
            said = subprocess.run([command, "--version"], capture_output=True, text=True, check=True, timeout=30).stdout
        except (OSError, subprocess.SubprocessError):
            continue
        version = re.match(r"Python 3\.(\d+)\.\d+$", said)
        if version and int(version[1]) >= OLDEST:
            found.setdefault(f"3.{version[1]}", command)
    return found


def requirements() -> list[str]:
    """Return what building, installing and a smoke test need."""
    project = tomllib.loads((TOP / "pyproject.toml").read_text())
    return [*project["build-system"]["requires"], *project["project"]["dependencies"], *IMAGE, *SMOKE]


def _wanted() -> str:
    return "\n".join([*pythons(), *requirements()])


def is_complete() -> bool:
    """Whether the wheelhouse has what pyproject.toml requires, for each Python found."""
    return COMPLETE.exists() and COMPLETE.read_text() == _wanted()


def download() -> None:
    """Download the packages of each Python into the wheelhouse."""
    WHEELHOUSE.mkdir(parents=True, exist_ok=True)
    for version in pythons():
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check"]
        which = ["--only-binary=:all:", f"--python-version={version}", f"--dest={WHEELHOUSE}"]
        subprocess.run([*pip, *which, *requirements()], check=True)
    COMPLETE.write_text(_wanted())


if __name__ == "__main__":
    download()
