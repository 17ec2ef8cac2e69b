"""Recorded answers of RabbitMQ to scripts, kept in a file, to compare leveret with where there is no RabbitMQ.

`LEVERET_RECORD=1 pytest tests/interop/differential -k fresh` writes it, and needs a RabbitMQ.
"""

from __future__ import annotations

import json
import lzma
import os
from pathlib import Path
from typing import Final

from ...conformance.raw import Typed
from .player import Player, Seen
from .script import Script, show, step

__all__ = ["HOW_TO_RECORD", "IS_RECORDING", "Recorder", "Recording", "Undefined", "read"]

FILE: Final = Path(__file__).with_name("recorded.jsonl.xz")
IS_RECORDING: Final = os.environ.get("LEVERET_RECORD") == "1"
HOW_TO_RECORD: Final = "LEVERET_RECORD=1 pytest tests/interop/differential -k fresh"
PLAYS: Final = 3
"""How often RabbitMQ plays a script that is recorded: a script whose results vary is left out."""


def read(text: str) -> Script:
    """Reverse `show`."""
    script = eval(text, {"step": step, "Typed": Typed})
    assert isinstance(script, list)
    return script


class Recording:
    """Plays scripts from the recording.

    Attributes:
        seen: Script, as `show` prints it -> RabbitMQ's results.
        random: The random scripts among them.
    """

    def __init__(self) -> None:
        self.seen: dict[str, list[Seen]] = {}
        self.random: list[Script] = []

    @classmethod
    def load(cls, file: Path = FILE) -> Recording:
        """Load the committed recording; return an empty one if there is none."""
        recording = cls()
        for line in lzma.decompress(file.read_bytes()).decode().splitlines() if file.exists() else ():
            text, is_random, steps = json.loads(line)
            recording.seen[text] = [
                Seen(frames, {name: tuple(state) for name, state in queues.items()}) for frames, queues in steps
            ]
            if is_random:
                recording.random.append(read(text))
        return recording

    def save(self, file: Path = FILE) -> None:
        """Write it: one script a line, compressed."""
        random = {show(script) for script in self.random}
        lines = [
            json.dumps([text, text in random, [(each.frames, each.queues) for each in seen]], sort_keys=True)
            for text, seen in sorted(self.seen.items())
        ]
        file.write_bytes(lzma.compress("\n".join(lines).encode(), preset=9 | lzma.PRESET_EXTREME))

    def play(self, script: Script) -> list[Seen]:
        """Return RabbitMQ's results; raise AssertionError if the script is not recorded."""
        text = show(script)
        assert text in self.seen, f"not recorded, {HOW_TO_RECORD} does that: {text}"
        return self.seen[text]


class Undefined(Exception):
    """RabbitMQ's results vary."""


class Recorder:
    """Plays scripts on RabbitMQ, and records the results."""

    def __init__(self, player: Player) -> None:
        self._player = player
        self.recording = Recording()

    def play(self, script: Script) -> list[Seen]:
        """Return the results, step by step; raise Undefined if they vary."""
        seen = self._player.play(script)
        if any(self._player.play(script) != seen for _ in range(PLAYS - 1)):
            raise Undefined
        self.recording.seen[show(script)] = seen
        return seen
