"""Parsing and formatting of times, in local time unless a zone is given."""

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
    """Parse a duration: 90 (seconds), 90s, 1h30m, 2d, 250ms. Rounds up to milliseconds. Raises Failed."""
    said = f"{text}s" if _SECONDS.fullmatch(text) else text
    if not _DURATION.fullmatch(said):
        raise Failed(f"Error:\n'{text}' is not a duration: write 90s, 1h30m or 2d", DATA)
    return math.ceil(sum(Fraction(number) * _UNITS_MS[unit] for number, unit in _PART.findall(said)))


def time_ms(text: str) -> int:
    """Parse a time to milliseconds since 1970, rounded up. Raises Failed.

    A time without a zone is local; +2h is two hours from now.
    """
    if text.startswith("+"):
        return math.ceil(time.time() * 1000) + duration_ms(text[1:])
    try:
        return -((_EPOCH - datetime.fromisoformat(text).astimezone()) // timedelta(milliseconds=1))
    except (ValueError, OverflowError):
        forms = "2026-12-24 18:00, 2026-12-24T18:00:00+01:00, or +2h for two hours from now"
        raise Failed(f"Error:\n'{text}' is not a time: write {forms}", DATA) from None


def local_time(at_ms: int | None) -> str:
    """Format a time in the local zone, with milliseconds and the zone's offset; "" for None."""
    if at_ms is None:
        return ""
    at = datetime.fromtimestamp(at_ms // 1000).astimezone() + timedelta(milliseconds=at_ms % 1000)
    return at.isoformat(sep=" ", timespec="milliseconds")


def duration(ms: int) -> str:
    """Format a duration as days, hours, minutes and seconds, rounded up."""
    return str(timedelta(seconds=-(-ms // 1000)))
