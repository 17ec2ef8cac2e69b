"""The comparison itself: what counts as a difference, which broker is asked again, and how recordings are used."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from .api import Answer, Api
from .pair import Pair
from .recording import HOW_TO_RECORD, Recording, Said, Tape

UNIQUE = "t-of-this-test"


class Scripted(Api):
    """An API that answers any requests with these values, one after another, and repeats the last one."""

    def __init__(self, *values: object) -> None:
        self.url, self.asked = "http://scripted", 0
        self._values = values

    def call(
        self, verb: str, path: str, body: object = None, headers: Mapping[str, str] | None = None
    ) -> Answer:
        if path == "/api/overview":
            return Answer(200, {}, b'{"node": "n@where"}')
        self.asked += 1
        value = self._values[min(self.asked, len(self._values)) - 1]
        return Answer(200, {"content-type": "application/json"}, json.dumps(value).encode())

    def close(self) -> None:
        """Do nothing."""


def tape(path: Path, *recorded: Any, verb: str = "POST", is_recording: bool = False) -> Tape:
    """Return a tape with these answers to requests for /api/things, from a file below `path`."""
    recording = Recording("things", path)
    if recorded:
        recording.keep("test", UNIQUE, [(f"{verb} /api/things", Said(200, value)) for value in recorded])
    return Tape(Recording("things", path), "test", UNIQUE, is_recording)


def test_ours_is_compared_with_a_recording(tmp_path: Path) -> None:
    recorded = tape(tmp_path, {"count": 1, "name": UNIQUE}, {"count": 1})
    with Pair(None, Scripted({"count": 1, "name": UNIQUE, "more": 1}, {"count": 2}), recorded) as pair:
        pair.post("/api/things")
        answers = pair.post("/api/things")
        assert (answers.rabbitmq.json, len(answers.live)) == ({"count": 1}, 1)
        with pytest.raises(AssertionError, match=r"^1 differences\n.*\n    things\.count: expected 1, got 2"):
            pair.verify()


def test_what_was_recorded_otherwise_is_told(tmp_path: Path) -> None:
    for value in ({"count": 2}, {}, {"count": 1, "more": 1}):
        with Pair(Scripted(value), Scripted(value), tape(tmp_path, {"count": 1})) as pair:
            pair.post("/api/things")
            with pytest.raises(AssertionError, match=HOW_TO_RECORD):
                pair.verify()


def test_what_was_not_recorded_is_told(tmp_path: Path) -> None:
    with Pair(None, Scripted(1), tape(tmp_path)) as pair, pytest.raises(AssertionError, match=HOW_TO_RECORD):
        pair.post("/api/things")
    with Pair(None, Scripted(1), tape(tmp_path, 1)) as pair, pytest.raises(AssertionError, match=HOW_TO_RECORD):
        pair.put("/api/things")
    with Pair(None, Scripted(1), tape(tmp_path, 1, 1)) as pair:
        pair.post("/api/things")
        with pytest.raises(AssertionError, match="not asked for"):
            pair.verify()


def test_ours_may_not_be_late(tmp_path: Path) -> None:
    ours = Scripted([], ["it"])
    with Pair(None, ours, tape(tmp_path, ["it"], verb="GET")) as pair:
        pair.get("/api/things", until=lambda items: items)
        assert ours.asked == 1
        with pytest.raises(AssertionError, match="not so when it was first asked"):
            pair.verify()
    with Pair(None, Scripted([], ["it"]), tape(tmp_path, ["it"], verb="GET")) as pair:
        pair.get("/api/things", until=lambda items: items, patient=True)
        pair.verify()


def test_rabbitmq_may_be_late(tmp_path: Path) -> None:
    ours = Scripted(["it"])
    with Pair(Scripted([], [], ["it"]), ours, tape(tmp_path, ["it"], verb="GET")) as pair:
        pair.get("/api/things", until=lambda items: isinstance(items, list))
        pair.verify()
    assert ours.asked == 1


def test_what_varies_is_not_recorded(tmp_path: Path) -> None:
    value = {"memory": 5, "reductions": 7, "name": f"of {UNIQUE}", "rate": 1.5, "kinds": [1, 2]}
    with Pair(Scripted(value), Scripted(value), tape(tmp_path, is_recording=True)) as pair:
        pair.post("/api/things")
        pair.verify()
    text = (tmp_path / "things.json").read_text()
    assert UNIQUE not in text
    assert Recording("things", tmp_path).of("test", "other") == [
        ("POST /api/things", Said(200, {"memory": 0, "name": "of other", "rate": 0.0, "kinds": [1, 2]}))
    ]
