"""Modules imported when a broker starts to listen; each costs every broker memory and time."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import cast

import pytest
from click.testing import CliRunner

from leveret.cli.main import main
from leveret.control.awaited import Awaited
from leveret.control.host import Host

from .asking import whole
from .support import Bench

# imported on demand: operator commands, stream tables, configuration files, suggestions for misspelt names,
# federation, definitions from a file
LATER = (
    "difflib", "leveret.control.command", "leveret.control.control", "leveret.control.definitions.loading",
    "leveret.federation.federator", "leveret.federation.link", "leveret.lake", "leveret.net.disk.sealing", "msgspec",
    "rich", "starlette", "tomllib",
)  # fmt: skip


def test_what_serving_can_do_without_is_not_imported() -> None:
    code = "import sys, leveret.cli.main, leveret.cli.serve, leveret.net.disk.tables; print(*sys.modules)"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, stdout=subprocess.PIPE, text=True, check=True)
    imported = done.stdout.split()
    assert "leveret.net.server" in imported
    assert set(LATER) & set(imported) == set()


@pytest.mark.parametrize("line", [b'{"call":{"command":"ping"}}', b"nonsense"])
async def test_calls_that_come_before_the_commands_are_imported_are_answered(line: bytes) -> None:
    awaited = Awaited(Bench().broker, cast(Host, None), "leveret@test", "/data", "1", "interpreted")
    answers = await asyncio.gather(whole(awaited.answer(line)), whole(awaited.answer(line)))
    first, second = map(json.loads, answers)
    assert first == second
    assert first.get("ok") == {"node": "leveret@test", "pong": True} or first["error"] == "bad_request"


def test_an_installation_without_the_demo_says_where_it_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert "demo" in CliRunner().invoke(main, ["--help"]).output
    monkeypatch.setattr("leveret.cli.main.PACKAGE", str(tmp_path))
    assert "336,776" not in CliRunner().invoke(main, ["--help"]).output
    refused = CliRunner().invoke(main, ["demo"])
    assert refused.exit_code == 2
    assert "run `make run` in a checkout of leveret" in refused.output
