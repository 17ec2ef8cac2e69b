"""RabbitMQ's answers, in a file for each test module: what to compare with if there is no RabbitMQ.

`LEVERET_RECORD=1 pytest tests/conformance/http` writes them, for which it needs a RabbitMQ.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .api import Answer
from .exceptions import LATE, OMITTED, VARYING
from .shape import Patterns, differences, ordered

__all__ = ["HOW_TO_RECORD", "IS_RECORDING", "OMIT", "PLAIN", "VARY", "Recording", "Said", "Tape", "settled"]

DIRECTORY = Path(__file__).with_name("recorded")
IS_RECORDING = os.environ.get("LEVERET_RECORD") == "1"
HOW_TO_RECORD = "make record"
PLAIN, OMIT, VARY, LATE_KEYS = Patterns({}), Patterns(OMITTED), Patterns(VARYING), Patterns(LATE)
UNIQUE = "UNIQUE"  # replaces the name that the test uses
JSON = {"content-type": "application/json"}


@dataclass(frozen=True)
class Said:
    """RabbitMQ's answer, without what depends on the machine and the moment.

    Attributes:
        status: The HTTP status.
        value: The selected part of the body's JSON, or the body if it is not JSON.
        headers: The headers that are compared.
    """

    status: int
    value: Any = None
    headers: dict[str, str] = field(default_factory=lambda: dict(JSON))

    @classmethod
    def read(cls, entry: list[Any]) -> Said:
        """Make it from what `written` returned."""
        return cls(*entry)

    def written(self) -> list[Any]:
        """Return it as JSON that is as short as possible."""
        if self.headers != JSON:
            return [self.status, self.value, self.headers]
        return [self.status] if self.value is None else [self.status, self.value]

    def answer(self) -> Answer:
        return Answer(self.status, self.headers, b"" if self.value is None else json.dumps(self.value).encode())

    def changes(self, now: Said, path: str) -> list[str]:
        """Return what RabbitMQ answers differently now, one line each; the values' paths begin with `path`."""
        found = [
            *differences([self.status, self.headers], [now.status, now.headers], PLAIN, PLAIN, "HTTP"),
            *differences(self.value, now.value, PLAIN, PLAIN, path),
        ]
        more = [
            *differences(now.headers, self.headers, PLAIN, PLAIN, "HTTP"),
            *differences(now.value, self.value, LATE_KEYS, PLAIN, path),
        ]
        return [f"recorded, and now: {each}" for each in found] + [f"now, and recorded: {each}" for each in more]


def settled(value: Any, path: str, omitted: Patterns, varying: Patterns) -> Any:
    """Return a value as it is recorded: without keys that may be missing, and with null for values that vary."""
    if isinstance(value, dict):
        below = {key: f"{path}.{key}" if path else key for key in value}
        return {
            key: settled(each, below[key], omitted, varying) for key, each in value.items()
            if not omitted.names(below[key])
        }  # fmt: skip
    if isinstance(value, list):
        items = ordered(value)[:1] if varying.names(f"{path}[]") else value
        return [settled(each, f"{path}[]", omitted, varying) for each in items]
    return value if value is None or not varying.names(path) else type(value)()


class Recording:
    """The answers to the tests of one module: for each test its requests in order, with the answer to each."""

    def __init__(self, module: str, directory: Path = DIRECTORY) -> None:
        self.path = directory / f"{module}.json"
        content = json.loads(self.path.read_text()) if self.path.exists() else {"answers": [], "tests": {}}
        answers = [compact(entry) for entry in content["answers"]]
        self._tests: dict[str, list[tuple[str, str]]] = {
            test: [(request, answers[number]) for request, number in zip(entry[::2], entry[1::2], strict=True)]
            for test, entry in content["tests"].items()
        }

    def of(self, test: str, unique: str) -> list[tuple[str, Said]] | None:
        """Return what was recorded of a test that uses the name `unique`, or None if nothing was."""
        entries = self._tests.get(test)
        if entries is None:
            return None
        return [
            (request.replace(UNIQUE, unique), Said.read(json.loads(said.replace(UNIQUE, unique))))
            for request, said in entries
        ]

    def keep(self, test: str, unique: str, entries: list[tuple[str, Said]]) -> None:
        """Write the answers of a test to the file."""
        self._tests[test] = [
            (request.replace(unique, UNIQUE), compact(said.written()).replace(unique, UNIQUE))
            for request, said in entries
        ]
        answers: dict[str, int] = {}  # an answer that occurs often is written once
        tests: dict[str, list[str | int]] = {}
        for name in sorted(self._tests):
            tests[name] = line = []
            for request, said in self._tests[name]:
                line += [request, answers.setdefault(said, len(answers))]
        lines = ",\n".join(answers), ",\n".join(f"{compact(name)}:{compact(entry)}" for name, entry in tests.items())
        self.path.parent.mkdir(exist_ok=True)
        self.path.write_text('{{"answers":[\n{}\n],"tests":{{\n{}\n}}}}\n'.format(*lines))


def compact(value: Any) -> str:
    """Return JSON in one line, with sorted keys."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), sort_keys=True)


class Tape:
    """The recording of one test, read or written request by request."""

    def __init__(self, recording: Recording, test: str, unique: str, is_recording: bool) -> None:
        self._recording, self._test, self._unique, self.is_recording = recording, test, unique, is_recording
        self._entries = [] if is_recording else recording.of(test, unique)
        self._at = 0

    def next(self, request: str) -> Said:
        """Return the recorded answer to the next request. Raises AssertionError if another request was recorded."""
        assert self._entries is not None, f"{self._test} was not recorded. {HOW_TO_RECORD} does that."
        recorded, said = self._entries[self._at] if self._at < len(self._entries) else ("nothing more", Said(0))
        assert recorded == request, f"{request}: recorded was {recorded}. {HOW_TO_RECORD} does that again."
        self._at += 1
        return said

    def add(self, request: str, said: Said) -> None:
        """Record an answer."""
        assert self._entries is not None
        self._entries.append((request, said))

    def end(self) -> None:
        """End the test: write the new recording, or check that all recorded requests were sent."""
        if self.is_recording and self._entries:
            self._recording.keep(self._test, self._unique, self._entries)
        elif not self.is_recording and self._entries is not None:
            left = [request for request, _ in self._entries[self._at :]]
            assert not left, f"recorded and not asked for: {left}. {HOW_TO_RECORD} does that again."
