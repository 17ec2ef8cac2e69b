"""Servers that all processes of a test run share. The first process that needs one starts it; it stops with the run.

The process that collects and reports owns a directory, whose path the others get in an environment variable, and holds
a lock in it. `python -m tests.shared KIND DIRECTORY` runs one server until the lock is released, which also happens if
the owner is killed.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import httpx

from leveret.testing.postgresql import PostgreSQLProcess
from leveret.testing.processes import RabbitMQProcess, free_port
from tests.no_tls import NO_TLS

ROOT = Path(__file__).parents[1]
VARIABLE = "LEVERET_TEST_SHARED"
RUN = "run"
"""The file that the owner keeps locked."""
PLUGINS = ("rabbitmq_management", "rabbitmq_stream")

Facts = dict[str, Any]
"""What clients of a server must know: "url", and for RabbitMQ also "api", the address of its HTTP API, and
"environment", the variables that its command line tools need.
"""


@contextmanager
def _rabbitmq() -> Iterator[Facts]:
    port = free_port()
    settings = (
        f"management.tcp.port = {port}",
        "management.tcp.ip = 127.0.0.1",
        f"stream.listeners.tcp.1 = 127.0.0.1:{free_port()}",
    )
    with RabbitMQProcess(plugins=PLUGINS, settings="\n".join(settings)) as node:
        yield {"url": node.url, "api": f"http://127.0.0.1:{port}", "environment": dict(node.environment())}


@contextmanager
def _postgresql() -> Iterator[Facts]:
    with PostgreSQLProcess() as server:
        yield {"url": server.url}


KINDS = {"rabbitmq": _rabbitmq, "postgresql": _postgresql}


def vhost(url: str) -> str:
    """Return the virtual host in a broker's URL."""
    return unquote(urlsplit(url).path[1:])


@contextmanager
def virtual_host(name: str, **settings: object) -> Iterator[str]:
    """Create a virtual host on the run's RabbitMQ, where guest may do everything; yield its URL, then delete it."""
    facts = shared("rabbitmq")
    with httpx.Client(base_url=f"{facts['api']}/api/", auth=("guest", "guest"), timeout=60, verify=NO_TLS) as api:
        api.put(f"vhosts/{name}", json=settings).raise_for_status()
        everything = {"configure": ".*", "write": ".*", "read": ".*"}
        api.put(f"permissions/{name}/guest", json=everything).raise_for_status()
        yield facts["url"].removesuffix("%2F") + name
        api.delete(f"vhosts/{name}").raise_for_status()


class SharedServers:
    """The owner's side: servers may run after `__init__`, and none runs after `end`."""

    def __init__(self) -> None:
        self._directory = Path(tempfile.mkdtemp(prefix="leveret-tests-"))
        # a lock of the process: a fork does not inherit it and cannot keep servers alive
        self._run = (self._directory / RUN).open("w")
        fcntl.lockf(self._run, fcntl.LOCK_EX)
        os.environ[VARIABLE] = str(self._directory)

    def end(self) -> None:
        """Stop all servers and wait until they have ended."""
        self._run.close()
        for path in self._directory.glob("*.keeper"):
            with path.open("r+") as keeper:
                fcntl.lockf(keeper, fcntl.LOCK_EX)
        shutil.rmtree(self._directory)
        del os.environ[VARIABLE]


@contextmanager
def alone(kind: str) -> Iterator[Path]:
    """Exclude all other processes of the run for this kind of server; yield the run's directory."""
    directory = Path(os.environ[VARIABLE])
    with (directory / f"{kind}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield directory


def shared(kind: str) -> Facts:
    """Return the facts of the run's server of this kind; start it if necessary. RuntimeError if that fails."""
    with alone(kind) as directory:
        place = directory / f"{kind}.json"
        if not place.exists():
            place.write_text(_started(kind, directory))
        facts: Facts = json.loads(place.read_text())
        return facts


def _started(kind: str, directory: Path) -> str:
    log = directory / f"{kind}.log"
    path = os.pathsep.join([str(ROOT), *filter(None, sys.path)])
    with log.open("w") as errors:
        keeper = subprocess.Popen(
            [sys.executable, "-m", "tests.shared", kind, str(directory)],
            env=os.environ | {"PYTHONPATH": path},
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors, text=True,
            start_new_session=True,  # Ctrl-C is for the owner alone
        )  # fmt: skip
    assert keeper.stdout is not None
    facts = keeper.stdout.readline()
    keeper.stdout.close()
    if not facts:
        raise RuntimeError(f"{kind} did not start:\n{log.read_text()}")
    return facts


def keep(kind: str, directory: Path) -> None:
    """Run a server until the owner ends; print its facts as one line on standard output when it is ready."""
    with (directory / f"{kind}.keeper").open("w") as keeper:
        fcntl.lockf(keeper, fcntl.LOCK_EX)
        with KINDS[kind]() as facts:
            print(json.dumps(facts), flush=True)
            with (directory / RUN).open() as run:
                fcntl.lockf(run, fcntl.LOCK_SH)


if __name__ == "__main__":
    keep(sys.argv[1], Path(sys.argv[2]))
