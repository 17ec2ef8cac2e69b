"""One thing that was looked at, and what was found."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class State(Enum):
    """OK; MISSING and DIFFERENT: it has to be mended; WARNING: it works, but; UNKNOWN: it can't be told this way."""

    OK = "ok"
    MISSING = "missing"
    DIFFERENT = "different"
    WARNING = "warning"
    UNKNOWN = "unknown"

    @property
    def is_failure(self) -> bool:
        """Whether the layout does not work like this."""
        return self in (State.MISSING, State.DIFFERENT)


@dataclass(frozen=True)
class Finding:
    """what: its name; state; detail: a sentence, "" where there is nothing to say."""

    what: str
    state: State
    detail: str = ""
