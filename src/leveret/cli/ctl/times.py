"""Times as people write and read them: local ones, or with the zone that they say."""

from __future__ import annotations

import math
import re
import time
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from typing import Final

from leveret.cli.ctl.exits import DATA, Failed

_EPOCH: Final = datetime.fromtimestamp(0, UTC)
_UNITS_MS: Final = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
_DURATION: Final = re.compile(r"(?:\d+(?:\.\d+)?(?:ms|[smhdw])\s*)+", re.ASCII)
_PART: Final = re.compile(r"(\d+(?:\.\d+)?)(ms|[smhdw])", re.ASCII)
_SECONDS: Final = re.compile(r"\d+(?:\.\d+)?", re.ASCII)


def duration_ms(text: str) -> int:
    """90 (seconds), 90s, 1h30m, 2d, 250ms; parts of a millisecond are rounded up. Failed for anything else."""
    said = f"{text}s" if _SECONDS.fullmatch(text) else text
    if not _DURATION.fullmatch(said):
        raise Failed(f"Error:\n'{text}' is not a duration: write 90s, 1h30m or 2d", DATA)
    return math.ceil(sum(Fraction(number) * _UNITS_MS[unit] for number, unit in _PART.findall(said)))


def time_ms(text: str) -> int:
    """Milliseconds since 1970, rounded up; a time without a zone is a local one, +2h is two hours from now. Failed for
    what is no time."""
    if text.startswith("+"):
        return math.ceil(time.time() * 1000) + duration_ms(text[1:])
    try:
        return -((_EPOCH - datetime.fromisoformat(text).astimezone()) // timedelta(milliseconds=1))
    except (ValueError, OverflowError):
        forms = "2026-12-24 18:00, 2026-12-24T18:00:00+01:00, or +2h for two hours from now"
        raise Failed(f"Error:\n'{text}' is not a time: write {forms}", DATA) from None


def local_time(at_ms: int | None) -> str:
    """In the local zone, to the millisecond, with the zone's offset; "" for none."""
    if at_ms is None:
        return ""
    at = datetime.fromtimestamp(at_ms // 1000).astimezone() + timedelta(milliseconds=at_ms % 1000)
    return at.isoformat(sep=" ", timespec="milliseconds")


def duration(ms: int) -> str:
    """Days, hours, minutes and seconds, rounded up."""
    return str(timedelta(seconds=-(-ms // 1000)))
