"""What RabbitMQ was seen to do with scripts, kept in a file: what leveret is compared with where there is no RabbitMQ.

It is written by `LEVERET_RECORD=1 pytest tests/interop/differential -k fresh`, which needs one.
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
"""How often RabbitMQ plays a script that is recorded: what it does not always answer alike says nothing."""


def read(text: str) -> Script:
    """The reverse of `show`."""
    script = eval(text, {"step": step, "Typed": Typed})
    assert isinstance(script, list)
    return script


class Recording:
    """Plays scripts from memory.

    Attributes:
        seen: what RabbitMQ was seen to do, by script as `show` prints it.
        random: the random scripts among them.
    """

    def __init__(self) -> None:
        self.seen: dict[str, list[Seen]] = {}
        self.random: list[Script] = []

    @classmethod
    def load(cls, file: Path = FILE) -> Recording:
        """The committed one; an empty one if there is none."""
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
        """Writes it: one script a line, compressed."""
        random = {show(script) for script in self.random}
        lines = [
            json.dumps([text, text in random, [(each.frames, each.queues) for each in seen]], sort_keys=True)
            for text, seen in sorted(self.seen.items())
        ]
        file.write_bytes(lzma.compress("\n".join(lines).encode(), preset=9 | lzma.PRESET_EXTREME))

    def play(self, script: Script) -> list[Seen]:
        """What RabbitMQ was seen to do. Raises AssertionError if it was not asked."""
        text = show(script)
        assert text in self.seen, f"not recorded, {HOW_TO_RECORD} does that: {text}"
        return self.seen[text]


class Undefined(Exception):
    """RabbitMQ does now this, now that."""


class Recorder:
    """Plays scripts on RabbitMQ, and keeps what is seen."""

    def __init__(self, player: Player) -> None:
        self._player = player
        self.recording = Recording()

    def play(self, script: Script) -> list[Seen]:
        """Everything that is seen, step by step. Raises Undefined if that is not always the same."""
        seen = self._player.play(script)
        if any(self._player.play(script) != seen for _ in range(PLAYS - 1)):
            raise Undefined
        self.recording.seen[show(script)] = seen
        return seen
