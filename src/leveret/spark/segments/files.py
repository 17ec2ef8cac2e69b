"""Sealed files by their names, which are all that planning needs (docs/guides/streams-as-tables.md)."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

_FILE: Final = re.compile(r"(\d{20})-(\d{20})-([0-9a-f]{16})\.parquet")


@dataclass(frozen=True, slots=True, order=True)
class SealedFile:
    """A Parquet file.

    Attributes:
        first: offset of the first message.
        last: offset of the last message, inclusive.
        path: where it is; None if only the name is known.
        octets: its size; 0 if unknown.
    """

    first: int
    last: int
    name: str
    path: str | None = None
    octets: int = 0


def named(name: str, creation: str, path: str | None = None, octets: int = 0) -> SealedFile | None:
    """Return the file with this name, or None if it is not one of the stream with this creation."""
    match = _FILE.fullmatch(name)
    if match is None or match[3] != creation:
        return None
    return SealedFile(int(match[1]), int(match[2]), name, path, octets)


def listed(directory: str, creation: str) -> list[SealedFile]:
    """Return the sealed files of this creation in a stream's directory, in order of offsets.

    The directory may also have files of an earlier stream of the same name. Raises OSError if it cannot be read.
    """
    found = []
    with os.scandir(directory) as dates:
        days = [date.path for date in dates if date.name.startswith("date=")]
    for day in days:
        try:
            with os.scandir(day) as entries:
                files = [named(entry.name, creation, entry.path) for entry in entries]
        except FileNotFoundError:
            continue  # retention removed the last file of that day
        found += [file for file in files if file is not None]
    return sorted(found)


def covering(files: Iterable[SealedFile], first: int, end: int) -> list[SealedFile]:
    """Return the files that hold the offsets from `first` up to `end`, until the first gap."""
    found: list[SealedFile] = []
    at = first
    for file in files:  # in order of offsets
        if at >= end or file.first > at:
            break
        if file.last >= at:
            found.append(file)
            at = file.last + 1
    return found
