"""The programs and packages that tests need besides Python: how each is found, and which Debian packages contain it.

`python tests/peers.py` prints what is installed, `python tests/peers.py packages` the Debian packages that are missing,
and `python tests/peers.py fetch` downloads what comes from package registries, so that tests need not. It needs nothing
but Python 3.11 or newer; what it prints about Python packages is true for the Python that runs it.
"""

from __future__ import annotations

import importlib.util
import platform
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
COMMAND = "make peers"
"""The command that installs all missing peers."""


@dataclass(frozen=True)
class Peer:
    """Something that some tests need and that pip's extra `dev` does not install, or not on every machine.

    Attributes:
        name: Its name in `pytest.mark.needs`.
        purpose: What tests do with it.
        parts: All of these must be present. Each is one or more alternatives, separated by "|": the name of a program
            in the PATH, or the absolute path of a file, with wildcards.
        packages: The Debian packages that contain it.
        more_programs: Programs that come with it, besides those in `parts`.
        extra: The extra of leveret that installs it, if pip does.
        check: Returns whether it is present, if it is neither a program nor a file.
        fetch: Installs it; called by `python tests/peers.py fetch`.
        is_time: It is nothing to install, but stands for tests that take too long for `make test`.
    """

    name: str
    purpose: str
    parts: tuple[str, ...] = ()
    packages: tuple[str, ...] = ()
    more_programs: tuple[str, ...] = ()
    extra: str = ""
    check: Callable[[], bool] = lambda: True
    fetch: Callable[[], None] | None = None
    is_time: bool = False

    @property
    def is_here(self) -> bool:
        return all(any(map(_exists, part.split("|"))) for part in self.parts) and self.check()

    @property
    def can_be_installed(self) -> bool:
        """Whether something can install it; otherwise it is a property of the machine."""
        return bool(self.packages or self.extra or self.fetch)

    @property
    def is_brought_by_pip(self) -> bool:
        """Whether `make test` has it wherever possible: pip installs it, or it is a property of the machine."""
        return not self.packages and not self.fetch and not self.is_time

    @property
    def state(self) -> str:
        """The state as a word or two: "long", "installed" or "not installed"."""
        return "long" if self.is_time else "installed" if self.is_here else "not installed"

    @property
    def programs(self) -> frozenset[str]:
        return frozenset(Path(name).name for part in self.parts for name in part.split("|")) | {*self.more_programs}


def _exists(name: str) -> bool:
    if not name.startswith("/"):
        return shutil.which(name) is not None
    return any(Path("/").glob(name[1:]))


def _has_module(name: str) -> Callable[[], bool]:
    return lambda: importlib.util.find_spec(name) is not None


def _has_suites() -> bool:
    if str(ROOT) not in sys.path:
        sys.path.insert(0, str(ROOT))
    from tests.suites.installation import Installation
    from tests.suites.suite import Suite

    return all(Installation.place(suite).is_for(suite) for suite in Suite.load() if suite.fast)


def _fetch_suites() -> None:
    subprocess.run([sys.executable, "-m", "tests.suites", "--fast", "--fetch"], cwd=ROOT, check=True)


def _has_wheels() -> bool:
    if str(ROOT) not in sys.path:
        sys.path.insert(0, str(ROOT))
    from tests.shipping.pythons import is_complete

    return is_complete()


def _fetch_wheels() -> None:
    subprocess.run([sys.executable, "-m", "tests.shipping.pythons"], cwd=ROOT, check=True)


PEERS = {
    peer.name: peer
    for peer in (
        Peer(
            "rabbitmq", "RabbitMQ, with which leveret is compared, and its Erlang",
            ("rabbitmq-server|/usr/lib/rabbitmq/bin/rabbitmq-server", "rabbitmqctl|/usr/lib/rabbitmq/bin/rabbitmqctl",
             "erl", "epmd"),
            ("rabbitmq-server",), ("rabbitmq-diagnostics", "rabbitmq-plugins", "rabbitmq-streams"),
        ),
        Peer(
            "postgresql", "PostgreSQL's server, a store of timeouts",
            ("initdb|/usr/lib/postgresql/*/bin/initdb",), ("postgresql",), ("postgres",),
        ),
        Peer("node", "Node, for clients written in JavaScript", ("node",), ("nodejs",)),
        Peer("npm", "npm, which fetches such clients", ("npm",), ("npm",)),
        Peer("suites", "other clients with their test suites", check=_has_suites, fetch=_fetch_suites),
        Peer("wheels", "all that an installation needs, for each Python found", check=_has_wheels, fetch=_fetch_wheels),
        Peer("chromium", "Chromium, which opens the web page", ("chromium",), ("chromium",)),
        Peer("strace", "strace, which orders a broker's system calls and makes them fail", ("strace",), ("strace",)),
        Peer(
            "compiler", "a C compiler, for the libraries that imitate power cuts and other clocks, and for the core",
            ("cc", "/usr/include/stdio.h|/usr/local/include/stdio.h"), ("gcc", "libc6-dev"),
        ),
        Peer(
            "headers", "this Python's own headers, to compile the core",
            (f"{sysconfig.get_path('include')}/Python.h",), ("python3-dev",),
        ),
        Peer("curl", "curl, with which documentation asks the HTTP API", ("curl",), ("curl",)),
        Peer("jq", "jq, with which documentation edits definitions", ("jq",), ("jq",)),
        Peer("openssl", "openssl, a TLS client that renegotiates", ("openssl",), ("openssl",)),
        Peer("systemd", "systemd-analyze, which checks the unit file", ("systemd-analyze",), ("systemd",)),
        Peer("valgrind", "valgrind, which counts instructions", ("valgrind",), ("valgrind",)),
        Peer("matplotlib", "Matplotlib, which draws curves", extra="demo", check=_has_module("matplotlib")),
        Peer("minutes", "half a minute or more for one test, of which others try a part", is_time=True),
        Peer("glibc", "the GNU C library, whose allocator settings are tested",
             check=lambda: platform.libc_ver()[0] == "glibc"),
    )
}  # fmt: skip


def missing(peers: Iterable[Peer] | None = None) -> list[Peer]:
    """Return the peers (of the given ones, or of all) that are not installed but could be."""
    return [peer for peer in (PEERS.values() if peers is None else peers) if peer.can_be_installed and not peer.is_here]


def missing_packages() -> list[str]:
    """Return the Debian packages to install, without duplicates."""
    return list(dict.fromkeys(package for peer in missing() for package in peer.packages))


def main(words: Sequence[str]) -> None:
    """Run the command line that the module's docstring describes."""
    if words == ["packages"]:
        print(*missing_packages())
    elif words == ["fetch"]:
        for peer in missing():
            if peer.fetch:
                peer.fetch()
    elif words:
        raise SystemExit("usage: python tests/peers.py [packages | fetch]")
    else:
        for peer in PEERS.values():
            print(f"{peer.name:<12}{peer.state:<15}{peer.purpose}")
        if missing():
            print(f"To install what is missing: {COMMAND}")


if __name__ == "__main__":
    main(sys.argv[1:])
