"""The result of one check."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class State(Enum):
    """The state of a checked item: MISSING and DIFFERENT must be repaired, WARNING works, UNKNOWN was not checked."""

    OK = "ok"
    MISSING = "missing"
    DIFFERENT = "different"
    WARNING = "warning"
    UNKNOWN = "unknown"

    @property
    def is_failure(self) -> bool:
        """Whether the layout does not work in this state."""
        return self in (State.MISSING, State.DIFFERENT)


@dataclass(frozen=True)
class Finding:
    """The result of one check: the name of the item, its state, and a sentence on it ("" if none is needed)."""

    what: str
    state: State
    detail: str = ""
