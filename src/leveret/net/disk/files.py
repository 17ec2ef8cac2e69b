"""The disk space of the broker's own files."""

from __future__ import annotations

import os
from typing import NamedTuple

from leveret.store.journal import Journal
from leveret.store.segment import SegmentStore


class FileCounts(NamedTuple):
    """Numbers of files and their sizes in bytes.

    Attributes:
        written_octets: How much of the current journal file is used.
        spares: Files that are kept for the journal to overwrite.
    """

    journal: int
    journal_octets: int
    written_octets: int
    spares: int
    segments: int
    segment_octets: int


def files_of(journal: Journal, segments: SegmentStore) -> FileCounts:
    """The current figures; a file that disappears meanwhile counts as 0 bytes."""
    numbers, pages = journal.files(), segments.numbers()
    return FileCounts(
        len(numbers),
        sum(_octets(journal.path(number)) for number in numbers),
        journal.current_size,
        journal.spare_count,
        len(pages),
        sum(_octets(segments.path(number)) for number in pages),
    )


def _octets(path: str) -> int:
    try:
        return os.stat(path).st_size
    except FileNotFoundError:
        return 0
