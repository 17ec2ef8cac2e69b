"""The wheel, built as pip builds it, in isolation: compiled if possible, otherwise pure, with the reason in the output.

All packages for this are in build/wheelhouse (tests/shipping/pythons.py), so nothing is downloaded here.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tomllib
import urllib.request
import zipfile
from collections.abc import Callable, Iterator, Sequence
from importlib.metadata import Distribution, distribution
from pathlib import Path
from typing import Final

import pytest
from packaging.requirements import Requirement

from leveret.testing.processes import LeveretProcess

from ..conformance.raw import RawClient
from .pythons import SMOKE, TOP, WHEELHOUSE, pythons

CORE_TESTS: Final = [f"test_{name}.py" for name in ("core_kind", "broker_core", "consumers", "redeclare")]
"""Unit tests that use modules of all rooms: a smoke test of a compiled core."""
OWN: Final = next(iter(pythons()))

NEEDED = frozenset({
    "anyio", "click", "h11", "idna", "librt", "markdown-it-py", "mdurl", "msgspec", "mypy-extensions", "pygments",
    "rich", "starlette", "typing-extensions", "uvicorn",
})  # fmt: skip
"""What `pip install leveret` installs besides leveret. Additions make every installation larger."""


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def brought_along(name: str, extras: Sequence[str] = ("",)) -> Iterator[Distribution]:
    """Yield the dependencies of a package, recursively."""
    for text in distribution(name).requires or ():
        requirement = Requirement(text)
        if requirement.marker is None or any(requirement.marker.evaluate({"extra": extra}) for extra in extras):
            yield distribution(requirement.name)
            yield from brought_along(requirement.name, ("", *requirement.extras))


def test_few_packages_come_along() -> None:
    assert {normal(each.name) for each in brought_along("leveret")} == NEEDED

needs_packages = pytest.mark.needs("wheels")


def variables(**more: str) -> dict[str, str]:
    """Return an environment in which pip finds the wheelhouse, and nothing else."""
    places = {name: os.environ[name] for name in ("PATH", "TMPDIR", "LD_LIBRARY_PATH") if name in os.environ}
    pip = {"NO_INDEX": "1", "FIND_LINKS": str(WHEELHOUSE), "CONFIG_FILE": os.devnull, "NO_CACHE_DIR": "1"}
    quiet = {"PIP_DISABLE_PIP_VERSION_CHECK": "1", "LEVERET_ADMIN_PORT": "0"}
    return {**places, **{f"PIP_{name}": text for name, text in pip.items()}, **quiet, **more}


class Venv:
    """An empty virtual environment of one of the Pythons."""

    def __init__(self, directory: Path, version: str = OWN) -> None:
        self.directory = directory
        subprocess.run([pythons()[version], "-m", "venv", directory], check=True, timeout=120)

    def call(self, *words: str | Path, fails: bool = False, **environment: str) -> str:
        """Return the output of one of its programs; `fails`: the program must fail."""
        command = [self.directory / "bin" / words[0], *words[1:]]
        settings = variables(HOME=str(self.directory), **environment)
        done = subprocess.run(
            command, check=False, capture_output=True, text=True, timeout=600, env=settings, cwd=self.directory
        )
        assert (done.returncode != 0) == fails, done.stdout + done.stderr
        return done.stdout + done.stderr

    def build(self, **environment: str) -> Path:
        """Build and return the wheel of a copy of the repository."""
        self.call("pip", "wheel", "-q", "--no-deps", "-w", self.directory / "dist", self.source(), **environment)
        [wheel] = (self.directory / "dist").iterdir()
        return wheel

    def source(self) -> Path:
        """A copy of the files that the wheel is built from; Docker gets the same."""
        source = self.directory / "source"
        if not source.exists():
            source.mkdir()
            for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
                shutil.copy(TOP / name, source)
            shutil.copytree(TOP / "src", source / "src", ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
        return source


class Installed(LeveretProcess):
    """The command that a wheel has installed in a virtual environment of its own."""

    def __init__(self, venv: Venv, **environment: str) -> None:
        super().__init__(admin=True)
        self._program = venv.directory / "bin/leveret"
        self._given = environment

    def command(self) -> Sequence[str | Path]:
        _, _, _, *arguments = super().command()
        settings = {**variables(**self._given), "LEVERET_ADMIN_PORT": str(self.admin_port)}
        return ["/usr/bin/env", "-i", *(f"{name}={text}" for name, text in settings.items()), self._program, *arguments]


def serves(venv: Venv, core: str, **environment: str) -> str:
    """Start the broker and try its main functions; return its output."""
    with Installed(venv, **environment) as broker:
        with RawClient.open(broker.url) as client:
            client.call("queue.declare", queue="q", durable=True)
            client.call("confirm.select")
            client.publish(b"x", routing_key="q", delivery_mode=2)
            client.read("basic.ack")
            assert client.call("basic.get", queue="q").body == b"x"
        with urllib.request.urlopen(f"{broker.admin_url}/", timeout=60) as page:
            assert b"leveret" in page.read()
        assert f"({core} core)" in broker.output
        return broker.output


@pytest.fixture(scope="module")
def make(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Venv]:
    return lambda version=OWN: Venv(tmp_path_factory.mktemp(f"python{version}"), version)


def test_what_is_classified_is_what_is_built_and_in_ci_what_is_run() -> None:
    project = tomllib.loads((TOP / "pyproject.toml").read_text())
    named = "Programming Language :: Python :: 3."
    classified = {text.removeprefix(named[:-2]) for text in project["project"]["classifiers"] if text.startswith(named)}
    built = {f"3.{minor}" for minor in re.findall(r"cp3(\d+)-", project["tool"]["cibuildwheel"]["build"])}
    assert classified == built
    if os.environ.get("CI") == "true":
        assert classified <= set(pythons())


@needs_packages
@pytest.mark.needs("compiler", "headers")
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    "version", [OWN, *(pytest.param(each, marks=pytest.mark.needs("minutes")) for each in pythons() if each != OWN)]
)
def test_with_a_compiler_the_core_is_compiled(make: Callable[..., Venv], version: str) -> None:
    """For this Python with the object files of the checkout, if they are equal; for others without optimisation."""
    venv = make(version)
    objects = {"LEVERET_OBJECTS": str(TOP / "build" / "core" / "objects")}
    wheel = venv.build(LEVERET_CORE="compiled", **(objects if version == OWN else {"CFLAGS": "-O0"}))
    assert re.fullmatch(rf"leveret-[\w.]+-cp{version.replace('.', '')}-cp\d+-linux_\w+\.whl", wheel.name)
    venv.call("pip", "install", "-q", wheel, *SMOKE)
    assert venv.call("leveret", "--version").startswith("leveret 0.1.0, compiled core")
    assert "the core is interpreted" not in serves(venv, "compiled")
    tests = [TOP / "tests" / "unit" / name for name in CORE_TESTS]
    quiet = ("-q", "-p", "no:cacheprovider", "--noconftest")  # it needs packages that a broker does not
    said = venv.call("python", "-m", "pytest", *quiet, f"--rootdir={TOP}", *tests, LEVERET_CORE="compiled")
    assert " passed" in said
    assert " failed" not in said
    asked = venv.call("leveret", "--version", LEVERET_CORE="interpreted")
    assert asked.strip() == "leveret 0.1.0, interpreted core: LEVERET_CORE=interpreted is set"
    serves(venv, "interpreted", LEVERET_CORE="interpreted")


def without_compiler(directory: Path) -> tuple[str, str]:
    return "no-such-compiler -O3", "no C compiler (no-such-compiler)"


def with_broken_compiler(directory: Path) -> tuple[str, str]:
    """Return CC and CXX of a compiler that starts, but fails to compile anything."""
    program = directory / "broken-cc"
    program.write_text('#!/bin/sh\n[ "$1" = --version ] && exec echo broken 1.0\necho "x.c:1: error: no" >&2; exit 3\n')
    program.chmod(0o755)
    return str(program), f"{program} exited with 3: x.c:1: error: no"


@needs_packages
@pytest.mark.timeout(600)
@pytest.mark.parametrize("case", [without_compiler, with_broken_compiler])
def test_without_a_working_compiler_it_is_pure_and_says_why(
    make: Callable[..., Venv], tmp_path: Path, case: Callable[[Path], tuple[str, str]]
) -> None:
    venv = make()
    compiler, reason = case(tmp_path)
    wheel = venv.build(CC=compiler)
    assert re.fullmatch(r"leveret-[\w.]+-py3-none-any\.whl", wheel.name)
    names = zipfile.ZipFile(wheel).namelist()
    assert [name for name in names if name.endswith((".so", ".pyc"))] == []
    assert {"leveret/py.typed", "leveret/core.json", "leveret/broker/broker.py", "leveret/testing/wall.c"} <= set(names)
    assert [name for name in names if name.startswith("leveret/demo")] == []
    assert {name.partition("/")[0].partition("-")[0] for name in names} == {"leveret", "pyspark_leveret.py"}
    venv.call("pip", "install", "-q", wheel)
    assert venv.call("leveret", "--version").startswith(f"leveret 0.1.0, interpreted core: {reason}")
    assert f"WARNING the core is interpreted, two to ten times slower than the compiled core: {reason}" in serves(
        venv, "interpreted"
    )
    refused = venv.call("leveret", "serve", fails=True, LEVERET_CORE="compiled")
    assert refused.startswith(f"leveret: LEVERET_CORE=compiled: {reason}")
    assert "Traceback" not in refused
    refused = venv.call("pip", "wheel", "--no-deps", venv.source(), fails=True, CC=compiler, LEVERET_CORE="compiled")
    assert f"LEVERET_CORE=compiled, and the core can't be compiled: {reason}" in refused
