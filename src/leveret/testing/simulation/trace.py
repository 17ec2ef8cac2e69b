"""The events of a simulation in order; two runs are the same if their traces are."""

from __future__ import annotations

import hashlib
from typing import Final

from leveret.testing.simulation.clock import START_US, Clock

Detail = str | int | bytes


class Trace:
    """A list of events, each with its time, subject, description and details."""

    def __init__(self, clock: Clock) -> None:
        self._clock: Final = clock
        self._notes: list[tuple[int, str, str, tuple[Detail, ...]]] = []

    def note(self, who: str, what: str, *details: Detail) -> None:
        """Add an event."""
        self._notes.append((self._clock.now_us, who, what, details))

    def digest(self) -> str:
        """Return a hash of the whole trace, including every byte sent."""
        found = hashlib.sha256()
        for when_us, who, what, details in self._notes:
            found.update(f"{when_us} {who} {what} {details!r}\n".encode())
        return found.hexdigest()

    def lines(self, last: int | None = None) -> list[str]:
        """Return the last events (default: all) as text, oldest first."""
        notes = self._notes if last is None else self._notes[-last:]
        return [_line(*note) for note in notes]


def _line(when_us: int, who: str, what: str, details: tuple[Detail, ...]) -> str:
    shown = (f"{len(each)} octets" if isinstance(each, bytes) else str(each) for each in details)
    return " ".join((f"{(when_us - START_US) / 1e6:12.6f}", f"{who}:", what, *shown))
