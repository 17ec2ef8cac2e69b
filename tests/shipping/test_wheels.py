"""The wheel: what it needs, that there is always one, and that it alone is a broker."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator, Sequence
from importlib.metadata import Distribution, distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from leveret.testing.processes import LeveretProcess

from ..conformance.raw import RawClient

TOP = Path(__file__).parents[2]
NEEDED = frozenset({
    "click", "librt", "markdown-it-py", "mdurl", "msgspec", "mypy-extensions", "pygments", "rich",
})  # fmt: skip
"""What `pip install leveret` brings besides leveret. Whoever adds to this list makes every installation larger."""


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def brought_along(name: str, extras: Sequence[str] = ("",)) -> Iterator[Distribution]:
    """What a package needs, and what that needs."""
    for text in distribution(name).requires or ():
        requirement = Requirement(text)
        if requirement.marker is None or any(requirement.marker.evaluate({"extra": extra}) for extra in extras):
            yield distribution(requirement.name)
            yield from brought_along(requirement.name, ("", *requirement.extras))


def test_few_packages_come_along() -> None:
    assert {normal(each.name) for each in brought_along("leveret")} == NEEDED


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built where no C compiler is, from what the repository has of it."""
    source = tmp_path_factory.mktemp("source")
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
        shutil.copy(TOP / name, source)
    shutil.copytree(TOP / "src", source / "src", ignore=shutil.ignore_patterns("__pycache__", "*.egg-info", "*.so"))
    options = ["--no-build-isolation", "--no-deps", "--no-index", "--verbose", "--wheel-dir", str(source / "dist")]
    environment = {"PATH": os.environ["PATH"], "HOME": str(source), "CC": "no-such-compiler -O3"}
    command = [sys.executable, "-m", "pip", "wheel", *options, str(source)]
    built = subprocess.run(command, check=False, capture_output=True, text=True, timeout=120, env=environment)
    assert built.returncode == 0, built.stdout + built.stderr
    assert "leveret: the core stays interpreted: no C compiler (no-such-compiler)" in built.stdout + built.stderr
    [found] = (source / "dist").iterdir()
    return found


def test_without_a_compiler_it_is_a_wheel_for_every_machine(wheel: Path) -> None:
    assert re.fullmatch(r"leveret-[\w.]+-py3-none-any\.whl", wheel.name)
    names = zipfile.ZipFile(wheel).namelist()
    assert [name for name in names if name.endswith((".so", ".pyc"))] == []
    assert {"leveret/py.typed", "leveret/broker/broker.py", "leveret/testing/wall.c"} <= set(names)
    assert {name.partition("/")[0].partition("-")[0] for name in names} == {"leveret", "pyspark_leveret.py"}


class Installed(LeveretProcess):
    """The command that the wheel has brought into an environment of its own."""

    def __init__(self, program: Path, data_dir: Path) -> None:
        super().__init__(data_dir)
        self._program = program

    def command(self) -> Sequence[str | Path]:
        _, _, _, *arguments = super().command()
        return ["/usr/bin/env", "-i", "LEVERET_ADMIN_PORT=0", self._program, *arguments]


def test_the_wheel_and_what_it_needs_are_a_broker(wheel: Path, tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "venv"], check=True)
    [packages] = (tmp_path / "venv").glob("lib/python*/site-packages")
    for each in brought_along("leveret"):
        for file in each.files or ():
            if ".." not in file.parts and "__pycache__" not in file.parts:
                (packages / file).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(file.locate(), packages / file)
    pip = [sys.executable, "-m", "pip", "--python", str(tmp_path / "venv"), "install", "-q", "--no-index", "--no-deps"]
    elsewhere = {name: text for name, text in os.environ.items() if name != "PYTHONPATH"}
    subprocess.run([*pip, str(wheel)], check=True, timeout=120, env=elsewhere)
    with Installed(tmp_path / "venv/bin/leveret", tmp_path / "data") as broker:
        assert "(interpreted core)" in broker.output
        with RawClient.open(broker.url) as client:
            client.call("queue.declare", queue="q", durable=True)
            client.call("confirm.select")
            client.publish(b"x", routing_key="q", delivery_mode=2)
            client.read("basic.ack")
            assert client.call("basic.get", queue="q").body == b"x"
