"""Searches leveret's dependencies for known vulnerabilities, with pip-audit: the bare installation and all extras.

The versions are those installed here, including indirect dependencies. Exit codes: 0 if none is known, or if the
service could not be reached, which is reported in a line of its own ("could not run"); 1 if there is one. Extras for
tests and for compiling are not audited, because brokers in production do not have them.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import tomllib
from importlib import metadata
from pathlib import Path
from typing import Final

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

PROJECT: Final = Path(__file__).parent.parent / "pyproject.toml"
NOT_SERVED: Final = ("dev", "compile")
TIMEOUT_S: Final = 300
# pip-audit's messages if it could not reach the service; any other failure is a finding
UNREACHABLE: Final = (
    "ConnectionError", "ConnectTimeout", "ReadTimeout", "ConnectionResetError", "ServiceError", "Max retries exceeded",
    "Temporary failure in name resolution", "ProxyError", "Forbidden", "HTTPError", "Could not fetch",
    "Connection refused", "timed out",
)  # fmt: skip


def sets_of(project: dict[str, object]) -> dict[str, list[str]]:
    """Return the requirements by name: "bare", and each extra."""
    table = project["project"]
    assert isinstance(table, dict)
    extras: dict[str, list[str]] = table.get("optional-dependencies", {})
    return {"bare": list(table["dependencies"])} | {name: extras[name] for name in extras if name not in NOT_SERVED}


def installed(requirements: list[str]) -> dict[str, str]:
    """Return the installed versions of these and of all their dependencies; packages not installed are left out."""
    found: dict[str, str] = {}
    left = [(Requirement(each), "") for each in requirements]
    seen: set[tuple[str, str]] = set()
    while left:
        wanted, extra = left.pop()
        if wanted.marker is not None and not wanted.marker.evaluate({"extra": extra}):
            continue
        name = canonicalize_name(wanted.name)
        if name == "leveret":
            continue  # an extra that refers to other extras of ours
        try:
            there = metadata.distribution(name)
        except metadata.PackageNotFoundError:
            continue
        found[name] = there.version
        for each in sorted({"", *wanted.extras}):
            if (name, each) not in seen:
                seen.add((name, each))
                left += [(Requirement(needed), each) for needed in there.requires or []]
    return found


def verdict(code: int, said: str) -> str:
    """Interpret pip-audit's exit code and output: "sound", "vulnerable", or "" if it could not reach the service."""
    if code == 0:
        return "sound"
    if "known vulnerabilit" in said.lower():
        return "vulnerable"
    if any(word in said for word in UNREACHABLE):
        return ""
    return "vulnerable"


def audit(versions: dict[str, str]) -> tuple[int, str]:
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
        file.writelines(f"{name}=={version}\n" for name, version in sorted(versions.items()))
        file.flush()
        command = [sys.executable, "-m", "pip_audit", "--progress-spinner", "off", "--no-deps", "--disable-pip"]
        try:
            done = subprocess.run(
                [*command, "-r", file.name], capture_output=True, text=True, timeout=TIMEOUT_S, check=False
            )
        except subprocess.TimeoutExpired:
            return 1, "timed out"
    return done.returncode, done.stdout + done.stderr


def main() -> int:
    """Print one line of result, followed by what pip-audit found."""
    sets = {name: installed(wanted) for name, wanted in sets_of(tomllib.loads(PROJECT.read_text())).items()}
    versions = {name: version for found in sets.values() for name, version in found.items()}
    extras = ", ".join(each for each in sets if each != "bare")
    what = f"{len(versions)} packages of the bare installation and the extras {extras}"
    code, said = audit(versions)
    found = verdict(code, said)
    if found == "sound":
        print(f"dependency audit: no known vulnerability in {what}")
        return 0
    if not found:
        last = (said.strip().splitlines() or ["nothing was said"])[-1]
        print(f"dependency audit could not run: the service can't be reached: {last[:200]}")
        return 0
    print(f"dependency audit: VULNERABLE, of {what}")
    print(said)
    return 1


if __name__ == "__main__":
    sys.exit(main())
