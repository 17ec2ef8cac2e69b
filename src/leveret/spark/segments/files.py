"""Sealed files as their names tell them, which is all that must be known to plan (docs/guides/streams-as-tables.md)."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

_FILE: Final = re.compile(r"(\d{20})-(\d{20})-([0-9a-f]{16})\.parquet")


@dataclass(frozen=True, slots=True, order=True)
class SealedFile:
    """One Parquet file. first, last: its offsets, inclusive; path: where it is, None = known by its name only;
    octets: its size, 0 = not known."""

    first: int
    last: int
    name: str
    path: str | None = None
    octets: int = 0


def named(name: str, creation: str, path: str | None = None, octets: int = 0) -> SealedFile | None:
    """The file of this name, if it is one of the stream of this creation."""
    match = _FILE.fullmatch(name)
    if match is None or match[3] != creation:
        return None
    return SealedFile(int(match[1]), int(match[2]), name, path, octets)


def listed(directory: str, creation: str) -> list[SealedFile]:
    """Those of this creation in a stream's directory, in the order of their offsets.

    Another stream that had this name before may have left some there. OSError if it can't be read.
    """
    found = []
    with os.scandir(directory) as dates:
        days = [date.path for date in dates if date.name.startswith("date=")]
    for day in days:
        try:
            with os.scandir(day) as entries:
                files = [named(entry.name, creation, entry.path) for entry in entries]
        except FileNotFoundError:
            continue  # retention took the last one of that day
        found += [file for file in files if file is not None]
    return sorted(found)


def covering(files: Iterable[SealedFile], first: int, end: int) -> list[SealedFile]:
    """Those that hold the offsets from `first` on, as far as they follow each other without a gap, up to `end`."""
    found: list[SealedFile] = []
    at = first
    for file in files:  # in the order of their offsets
        if at >= end or file.first > at:
            break
        if file.last >= at:
            found.append(file)
            at = file.last + 1
    return found
