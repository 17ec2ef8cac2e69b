"""A client's unpacked source package, and a virtual environment in which its tests run."""

import fcntl
import hashlib
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

from .suite import Suite

__all__ = ["CACHE", "Installation", "InstallationFailed", "call"]

TOP: Final = Path(__file__).parents[2]
CACHE: Final = TOP / "build" / "conformance"
DOWNLOAD_TIMEOUT_S: Final = 600
FETCH: Final = "`python -m tests.suites --fast --fetch`"
"""The command that fetches what tests need, for messages."""


class InstallationFailed(Exception):
    """A package could not be fetched or installed; the text says which command failed, and how."""


@dataclass(frozen=True)
class Installation:
    """An installed suite, ready to run.

    Attributes:
        source: The unpacked package.
        binaries: The directory with the environment's commands, for PATH.
    """

    source: Path
    binaries: Path

    @classmethod
    def of(cls, suite: Suite) -> Self:
        """Return the suite's installation; raise InstallationFailed if `fetched` has not made it: tests fetch
        nothing."""
        here = cls.place(suite)
        if not here.is_for(suite):
            raise InstallationFailed(f"{suite.name} {suite.version} is not installed here; {FETCH} does that")
        return here

    @classmethod
    def fetched(cls, suite: Suite) -> Self:
        """Return the suite's installation; make it if it is missing or outdated.

        This needs the network the first time; the result is kept under build/conformance/. Raises InstallationFailed.
        """
        here = cls.place(suite)
        with locked(suite.name):
            if not here.is_for(suite):
                shutil.rmtree(here.stamp.parent, ignore_errors=True)
                here.stamp.parent.mkdir(parents=True)
                here.make(suite)
                here.stamp.write_text(fingerprint(suite))
        return here

    @classmethod
    def place(cls, suite: Suite) -> Self:
        """Return where the suite is installed."""
        place = CACHE / f"{suite.name}-{suite.version}"
        return cls(place / "source", place / "venv" / "bin")

    @property
    def stamp(self) -> Path:
        """The file that is written last, with the fingerprint of the installation."""
        return self.source.with_name("stamp")

    def is_for(self, suite: Suite) -> bool:
        """Whether it has been installed for exactly this suite and this Python."""
        return self.stamp.exists() and self.stamp.read_text() == fingerprint(suite)

    def make(self, suite: Suite) -> None:
        """Fetch, unpack and install."""
        print(f"{suite.name}: installing", file=sys.stderr, flush=True)
        place = self.source.parent
        if suite.registry == "npm":
            call("npm", "pack", "--silent", f"{suite.name}@{suite.version}", directory=place)
        else:
            exact = f"{suite.name}=={suite.version}"
            pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet"]
            call(*pip, "download", "--no-deps", "--no-binary", suite.name, exact, directory=place)
            call(sys.executable, "-m", "venv", str(self.binaries.parent))
            pip[0] = str(self.binaries / "python")
            # The client itself is imported from its source; installing it installs its dependencies.
            call(*pip, "install", exact, "pytest-timeout==2.4.0", *suite.packages)
        unpack(next(iter([*place.glob("*.tar.gz"), *place.glob("*.tgz")])), self.source)


def fingerprint(suite: Suite) -> str:
    """Return everything that an installation depends on."""
    told = [sys.version, suite.registry, suite.name, suite.version, *suite.packages]
    return hashlib.sha256("\0".join(told).encode()).hexdigest()


@contextmanager
def locked(name: str) -> Iterator[None]:
    """Keep other processes from making the same installation at the same time."""
    CACHE.mkdir(parents=True, exist_ok=True)
    # pytest looks for settings in all parent directories, and must not find leveret's
    (CACHE / "pytest.ini").touch()
    with (CACHE / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def call(*command: str, directory: Path | None = None) -> None:
    """Run a command to its end; raise InstallationFailed if it fails."""
    told = " ".join(command)
    try:
        done = subprocess.run(
            command, cwd=directory, capture_output=True, text=True, check=False, timeout=DOWNLOAD_TIMEOUT_S
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise InstallationFailed(f"{told}: {error}") from None
    if done.returncode != 0:
        raise InstallationFailed(f"{told} (does it reach the package registry?):\n{done.stdout}{done.stderr}")


def unpack(archive: Path, to: Path) -> None:
    """Unpack an archive with one top directory, so that `to` is that directory."""
    unpacked = to.with_name("unpacked")
    with tarfile.open(archive) as tar:
        tar.extractall(unpacked, filter="data")
    only: Sequence[Path] = list(unpacked.iterdir())
    only[0].rename(to)
    unpacked.rmdir()
