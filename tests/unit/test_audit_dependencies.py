"""Which dependencies are checked for known vulnerabilities, and the output if the service can't be reached."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

SOURCE = Path(__file__).parents[2] / "tools/audit_dependencies.py"


@pytest.fixture
def tool() -> ModuleType:
    spec = importlib.util.spec_from_file_location("audit_dependencies", SOURCE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(("code", "said", "verdict"), [
    (0, "No known vulnerabilities found", "sound"),
    (1, "Found 1 known vulnerability in 1 package\nName Version ID", "vulnerable"),
    (1, "requests.exceptions.ConnectionError: Max retries exceeded", ""),
    (1, "Found 2 known vulnerabilities in 1 package\nConnectionError", "vulnerable"),
    (1, "timed out", ""),
    (1, "something that nobody has seen before", "vulnerable"),
])  # fmt: skip
def test_what_it_means(tool: ModuleType, code: int, said: str, verdict: str) -> None:
    assert tool.verdict(code, said) == verdict


@pytest.mark.parametrize(("answer", "status", "line"), [
    ((0, ""), 0, "no known vulnerability in"),
    ((1, "Found 1 known vulnerability"), 1, "VULNERABLE"),
    ((1, "Traceback\nurllib3: Max retries exceeded"), 0, "could not run: the service can't be reached: urllib3: Max"),
])  # fmt: skip
def test_what_is_said(
    tool: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], answer: tuple[int, str],
    status: int, line: str,
) -> None:  # fmt: skip
    asked: list[dict[str, str]] = []
    monkeypatch.setattr(tool, "audit", lambda versions: (asked.append(versions), answer)[1])
    assert tool.main() == status
    assert line in capsys.readouterr().out
    (versions,) = asked
    assert {"click", "msgspec", "starlette"} <= versions.keys()
    assert not {"leveret", "pytest", "ruff"} & versions.keys()
