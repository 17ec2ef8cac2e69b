"""What the broker's own files take on the disk."""

from __future__ import annotations

import os
from typing import NamedTuple

from leveret.store.journal import Journal
from leveret.store.segment import SegmentStore


class Files(NamedTuple):
    """Of the journal and of the segments: how many files, and their lengths in octets. spares: files kept for the
    journal to overwrite; written_octets: of the current journal file, how much of it says something."""

    journal: int
    journal_octets: int
    written_octets: int
    spares: int
    segments: int
    segment_octets: int


def files_of(journal: Journal, segments: SegmentStore) -> Files:
    """As of now; a file that goes meanwhile counts for nothing."""
    numbers, pages = journal.files(), segments.numbers()
    return Files(
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
