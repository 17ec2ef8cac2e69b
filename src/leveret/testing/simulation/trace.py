"""What happened in a simulation, event by event: two runs are the same if their traces are."""

from __future__ import annotations

import hashlib
from typing import Final

from leveret.testing.simulation.clock import START_US, Clock

Detail = str | int | bytes


class Trace:
    """Notes, each with its time, who it is about, what happened, and details."""

    def __init__(self, clock: Clock) -> None:
        self._clock: Final = clock
        self._notes: list[tuple[int, str, str, tuple[Detail, ...]]] = []

    def note(self, who: str, what: str, *details: Detail) -> None:
        """Add one."""
        self._notes.append((self._clock.now_us, who, what, details))

    def digest(self) -> str:
        """A hash of it all, to the last byte on the wires."""
        found = hashlib.sha256()
        for when_us, who, what, details in self._notes:
            found.update(f"{when_us} {who} {what} {details!r}\n".encode())
        return found.hexdigest()

    def lines(self, last: int | None = None) -> list[str]:
        """The notes for people, oldest first; last: only so many."""
        notes = self._notes if last is None else self._notes[-last:]
        return [_line(*note) for note in notes]


def _line(when_us: int, who: str, what: str, details: tuple[Detail, ...]) -> str:
    shown = (f"{len(each)} octets" if isinstance(each, bytes) else str(each) for each in details)
    return " ".join((f"{(when_us - START_US) / 1e6:12.6f}", f"{who}:", what, *shown))
