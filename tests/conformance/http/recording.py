"""RabbitMQ's answers, kept in a file for each module of tests: what ours are compared with where there is no RabbitMQ.

They are written by `LEVERET_RECORD=1 pytest tests/conformance/http`, which needs one.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .api import Answer
from .exceptions import LATE, OMITTED, VARYING
from .shape import Patterns, differences

__all__ = ["HOW_TO_RECORD", "IS_RECORDING", "OMIT", "PLAIN", "VARY", "Recording", "Said", "Tape", "settled"]

DIRECTORY = Path(__file__).with_name("recorded")
IS_RECORDING = os.environ.get("LEVERET_RECORD") == "1"
HOW_TO_RECORD = "make record"
PLAIN, OMIT, VARY, LATE_KEYS = Patterns({}), Patterns(OMITTED), Patterns(VARYING), Patterns(LATE)
UNIQUE = "UNIQUE"  # in place of the name that the test uses
JSON = {"content-type": "application/json"}


@dataclass(frozen=True)
class Said:
    """What RabbitMQ answered, without what depends on the machine and the moment.

    Attributes:
        status: of HTTP.
        value: what was selected of the body's JSON; the body itself, if it is something else.
        headers: those that are compared.
    """

    status: int
    value: Any = None
    headers: dict[str, str] = field(default_factory=lambda: dict(JSON))

    @classmethod
    def read(cls, entry: list[Any]) -> Said:
        """What was written."""
        return cls(*entry)

    def written(self) -> list[Any]:
        """The same as JSON, as short as it can be."""
        if self.headers != JSON:
            return [self.status, self.value, self.headers]
        return [self.status] if self.value is None else [self.status, self.value]

    def answer(self) -> Answer:
        """The same as an answer."""
        return Answer(self.status, self.headers, b"" if self.value is None else json.dumps(self.value).encode())

    def changes(self, now: Said, path: str) -> list[str]:
        """What RabbitMQ answers otherwise now, a line each; path: of the values."""
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
    """A value as it is recorded: without the keys that may be missing, and with nothing in place of what varies."""
    if isinstance(value, dict):
        below = {key: f"{path}.{key}" if path else key for key in value}
        return {
            key: settled(each, below[key], omitted, varying) for key, each in value.items()
            if not omitted.names(below[key])
        }  # fmt: skip
    if isinstance(value, list):
        items = value[:1] if varying.names(f"{path}[]") else value
        return [settled(each, f"{path}[]", omitted, varying) for each in items]
    return value if value is None or not varying.names(path) else type(value)()


class Recording:
    """The answers to the tests of one module: for each test the requests in their order, and what was said to each."""

    def __init__(self, module: str, directory: Path = DIRECTORY) -> None:
        self.path = directory / f"{module}.json"
        content = json.loads(self.path.read_text()) if self.path.exists() else {"answers": [], "tests": {}}
        answers = [compact(entry) for entry in content["answers"]]
        self._tests: dict[str, list[tuple[str, str]]] = {
            test: [(request, answers[number]) for request, number in zip(entry[::2], entry[1::2], strict=True)]
            for test, entry in content["tests"].items()
        }

    def of(self, test: str, unique: str) -> list[tuple[str, Said]] | None:
        """What was recorded of a test; None if it was not. unique: the name that it uses."""
        entries = self._tests.get(test)
        if entries is None:
            return None
        return [
            (request.replace(UNIQUE, unique), Said.read(json.loads(said.replace(UNIQUE, unique))))
            for request, said in entries
        ]

    def keep(self, test: str, unique: str, entries: list[tuple[str, Said]]) -> None:
        """Writes what a test was answered to the file."""
        self._tests[test] = [
            (request.replace(unique, UNIQUE), compact(said.written()).replace(unique, UNIQUE))
            for request, said in entries
        ]
        answers: dict[str, int] = {}  # one that is given often is written once
        tests: dict[str, list[str | int]] = {}
        for name in sorted(self._tests):
            tests[name] = line = []
            for request, said in self._tests[name]:
                line += [request, answers.setdefault(said, len(answers))]
        lines = ",\n".join(answers), ",\n".join(f"{compact(name)}:{compact(entry)}" for name, entry in tests.items())
        self.path.parent.mkdir(exist_ok=True)
        self.path.write_text('{{"answers":[\n{}\n],"tests":{{\n{}\n}}}}\n'.format(*lines))


def compact(value: Any) -> str:
    """JSON in one line, with the keys in order."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), sort_keys=True)


class Tape:
    """The recording of one test, read or written request by request."""

    def __init__(self, recording: Recording, test: str, unique: str, is_recording: bool) -> None:
        self._recording, self._test, self._unique, self.is_recording = recording, test, unique, is_recording
        self._entries = [] if is_recording else recording.of(test, unique)
        self._at = 0

    def next(self, request: str) -> Said:
        """What was answered to the next request. Raises AssertionError if it was another one."""
        assert self._entries is not None, f"{self._test} was not recorded. {HOW_TO_RECORD} does that."
        recorded, said = self._entries[self._at] if self._at < len(self._entries) else ("nothing more", Said(0))
        assert recorded == request, f"{request}: recorded was {recorded}. {HOW_TO_RECORD} does that again."
        self._at += 1
        return said

    def add(self, request: str, said: Said) -> None:
        """Records an answer."""
        assert self._entries is not None
        self._entries.append((request, said))

    def end(self) -> None:
        """The test is over: all that was recorded must have been asked for; or it is written now."""
        if self.is_recording and self._entries:
            self._recording.keep(self._test, self._unique, self._entries)
        elif not self.is_recording and self._entries is not None:
            left = [request for request, _ in self._entries[self._at :]]
            assert not left, f"recorded and not asked for: {left}. {HOW_TO_RECORD} does that again."
