"""Ages as RabbitMQ writes them, in x-max-age and in a consumer's x-stream-offset: "7D", "12h", "1Y"."""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

# the largest age: longer ones are cut to it; some 146,000 years in microseconds
TIME_US_MAX: Final[i64] = 1 << 62
_NO_AGE: Final[i64] = -1
# the days of a year and of a month are RabbitMQ's
_UNIT_S: Final[dict[str, int]] = {"Y": 31_536_000, "M": 2_592_000, "D": 86_400, "h": 3_600, "m": 60, "s": 1}


def age_us(text: str) -> i64:
    """Return the age in µs, at most TIME_US_MAX; -1 unless it is an integer above 0 and one of the units Y M D h m s.

    As in RabbitMQ, only the first line is read.
    """
    line = text.partition("\n")[0]
    digits, seconds = line[:-1], _UNIT_S.get(line[-1:])
    if seconds is None or not digits or any(digit not in "0123456789" for digit in digits):
        return _NO_AGE
    significant = digits.lstrip("0")
    if not significant:
        return _NO_AGE
    if len(significant) > 18:
        return TIME_US_MAX
    return min(int(significant) * seconds * 1_000_000, int(TIME_US_MAX))
