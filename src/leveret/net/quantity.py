"""Amounts of memory and disk as operators write them: bytes, "50MB", "1GiB", or a share of the machine's memory."""

from __future__ import annotations

import re
from typing import Final

# RabbitMQ's information units: with "b" alone powers of 1,000, else powers of 1,024
UNITS: Final[dict[str, int]] = {"": 1} | {
    name: size
    for power, letter in enumerate("kmgt", 1)
    for names, size in (((letter, f"{letter}i", f"{letter}ib"), 1024**power), ((f"{letter}b",), 1000**power))
    for name in names
}
_AMOUNT: Final = re.compile(r"(\d+)\s*([a-zA-Z]*)")
_SHARE: Final = re.compile(r"\d*\.\d+|0|1")


def octets(given: object, whole: int) -> int:
    """An amount in bytes. A number with a decimal point, 0 and 1 are shares of `whole`. ValueError if it is neither."""
    text = str(given).strip() if isinstance(given, int | float | str) and not isinstance(given, bool) else ""
    if _SHARE.fullmatch(text):
        return int(float(text) * whole)
    match = _AMOUNT.fullmatch(text)
    if match is None or match[2].lower() not in UNITS:
        forms = "write a number of octets, 50MB, 1GiB, or 0.4 for a share of the machine's memory"
        raise ValueError(f"{given!r} is not an amount: {forms}")
    return int(match[1]) * UNITS[match[2].lower()]
