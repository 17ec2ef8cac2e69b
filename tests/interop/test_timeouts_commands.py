"""leveret timeouts: every command of docs/guides/legacy-timeouts.md, on leveret and on RabbitMQ."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import uuid
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

import leveret
from leveret.cli.main import main
from leveret.endpoint.timeouts.manager import open_store

from .nservicebus_table import create, row
from .older import older, stored

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "legacy-timeouts.md"
DOCUMENTED = re.findall(r"^leveret (timeouts .*)$", GUIDE.read_text(), re.MULTILINE)
STATUS, DRAIN, REMOVE, FORCE, RUN, IMPORT, POSTGRESQL = DOCUMENTED
HOUR = timedelta(hours=1)


class Shell:
    """Runs the commands as documented, for the endpoint of the test instead of Sales."""

    def __init__(self, url: str, endpoint: str) -> None:
        self.url, self.endpoint = url, endpoint

    def arguments(self, documented: str) -> list[str]:
        return shlex.split(documented.replace("Sales", self.endpoint))

    def run(self, documented: str, *more: str) -> Result:
        result = CliRunner().invoke(main, [*self.arguments(documented), *more], env={"LEVERET_URL": self.url})
        assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
        return result

    def json(self, documented: str) -> Any:
        return json.loads(self.run(documented, "--json").stdout)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The endpoint's directory, in which the commands run."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def deferred(url: str, *destinations: str) -> Shell:
    """Defer messages by an hour from an older endpoint; "" = to itself. They are in the queue."""

    async def defer() -> Shell:
        async with older(url) as (_, endpoint):
            for destination in destinations:
                await endpoint.defer(b"m", HOUR, destination)
            return Shell(url, endpoint.name)

    return asyncio.run(defer())


def test_the_way_of_the_documentation(url: str, folder: Path) -> None:
    shell = deferred(url, "", "")
    found = shell.json(STATUS)
    assert found["pending"] == 0
    assert found["queues"][f"{shell.endpoint}.Timeouts"] == {"messages": 2, "consumers": 0}
    assert list(folder.iterdir()) == [], "asking created a database"
    refused = shell.run(REMOVE)
    assert refused.exit_code == 1
    assert f"messages are in the queue {shell.endpoint}.Timeouts (2)" in refused.stderr
    assert shell.run(DRAIN).stdout == "2 moved to the delay levels nservicebus, 0 not moved\n"
    assert "next due: none pending" in shell.run(STATUS).stdout
    assert shell.json(REMOVE) == {"removed": True, "refused": []}
    assert list(folder.iterdir()) == []
    assert set(shell.json(STATUS)["queues"].values()) == {None}


def test_the_manager_alone_stores_and_stops_at_a_signal(url: str, folder: Path) -> None:
    shell = deferred(url, "", "", "")
    command = [sys.executable, "-m", "leveret.cli.main", *shell.arguments(RUN)]
    source = str(Path(leveret.__file__).parents[1])
    environment = {**os.environ, "LEVERET_URL": url, "PYTHONPATH": source, "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == f"the timeout manager of {shell.endpoint} runs\n"
            asyncio.run(stored(shell.endpoint, f"sqlite:///{folder}/{shell.endpoint}.timeouts.sqlite", 3))
            found = shell.json(STATUS)
            assert (found["pending"], found["due"]) == (3, 0)
            assert found["next_due"].endswith("+00:00")
            process.send_signal(signal.SIGTERM)
            assert process.wait(30) == 0
        finally:
            process.kill()
    refused = shell.run(REMOVE)
    assert refused.exit_code == 1
    assert "timeouts are pending in" in refused.stderr
    assert shell.run(FORCE).exit_code == 0
    assert list(folder.iterdir()) == []


@pytest.mark.usefixtures("folder")
def test_what_stays_is_told_with_the_reason(url: str) -> None:
    shell = deferred(url, "", "Nobody.At.Home", "Nobody.At.Home")
    first = shell.run(DRAIN)
    assert first.exit_code == 1
    assert first.stdout.startswith("1 moved to the delay levels nservicebus, 2 not moved\n2 not moved: ")
    assert "'Nobody.At.Home' does not exist" in first.stdout
    again = shell.json(DRAIN)
    assert (again["moved"], again["kept"], list(again["reasons"].values())) == (0, 2, [2])
    assert shell.run(FORCE).exit_code == 0


def test_postgresql_is_named_by_its_url(url: str, postgresql: str) -> None:
    shell = deferred(url, "")
    documented = re.sub(r"postgresql://\S+", postgresql, POSTGRESQL)
    timeouts = open_store(shell.endpoint, postgresql)
    timeouts.create()
    assert shell.json(documented)["pending"] == 0
    drained = documented.replace("status", "drain")
    assert shell.run(drained).exit_code == 0
    assert shell.run(documented.replace("status", "remove")).exit_code == 0
    assert not timeouts.exists()
    timeouts.close()


NO_DATABASE = [
    (["--database", "mysql://host/name"], "timeouts are kept in sqlite or postgresql, not in mysql"),
    (["--database", "postgresql://joe:secret@127.0.0.1:1/x"], "the database of the timeouts, postgresql"),
]
NO_BROKER = [
    (["--url", "amqp://127.0.0.1:1/"], "cannot reach the broker: cannot connect to 127.0.0.1:1"),
    (["--url", "nonsense"], "a connection URL begins with amqp://"),
]


@pytest.mark.usefixtures("folder")
def test_what_nservicebus_stored_is_imported(broker: str, postgresql: str) -> None:
    shell = Shell(broker, f"T{uuid.uuid4().hex[:8]}")
    documented = re.sub(r"postgresql://\S+", postgresql, IMPORT)
    missing = shell.run(documented)
    assert missing.exit_code == 2
    assert f"there is no table {shell.endpoint}_TimeoutData" in missing.stderr
    create(postgresql, f"{shell.endpoint}_TimeoutData", [row(), row(Destination=None), row()])
    first = shell.run(documented)
    assert first.exit_code == 1
    assert first.stdout == "2 imported, 1 not moved\n1 not moved: it has no destination\n"
    assert shell.json(documented)["moved"] == 0
    assert shell.json(STATUS)["pending"] == 2


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("name", "options", "text"),
    [(name, *case) for name in ("status", "drain", "remove") for case in NO_DATABASE + NO_BROKER]
    + [("run", *case) for case in (*NO_DATABASE, NO_BROKER[1])],  # `run` waits for a broker that is down
)
def test_what_is_wrong_is_told_in_a_line(broker: str, name: str, options: list[str], text: str) -> None:
    result = CliRunner().invoke(main, ["timeouts", name, "--endpoint", "E", *options], env={"LEVERET_URL": broker})
    assert result.exit_code == 2, result.output
    assert text in result.stderr
    assert "secret" not in result.output
    assert "Traceback" not in result.output
