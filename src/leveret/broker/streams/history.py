"""What of a stream is in its files, as the broker sees it; who has the files fills it in (net/disk/streams.py)."""

from __future__ import annotations

from collections.abc import Callable

from mypy_extensions import i64


class Fetched:
    """A chunk from a file."""

    def __init__(self, first: i64, end: i64, payload: bytes) -> None:
        self.first = first  # its first offset
        self.end = end  # the first offset of the next chunk
        self.payload = payload  # see chunk.py; empty if the chunk is lost


class History:
    """first, end: the offsets in the files, end is the first that is not there; octets: size of the files.

    fetch: the chunk with this offset, which is in the files; None if it comes later: the stream is touched then.
    pass_over: from this offset on, where the first chunk begins that this may want by its digest, or how far the search
    has come; the offset itself if it is in that chunk, or nothing is known of it.
    since: the first offset of the chunk in which, or behind which, messages arrived at this time (µs) or later.
    sealed: the messages below stand in tables, too, as far as is known; tables: the directory of these, "" while nobody
    has looked for any (net/disk/sealing.py).
    """

    def __init__(self) -> None:
        self.first: i64 = 0  # the oldest offset in the files
        self.end: i64 = 0  # the first offset that is not in the files yet
        self.octets: i64 = 0  # size of the files
        self.sealed: i64 = 0  # messages below it are known to be in tables, too
        self.tables = ""  # the tables' directory, "" until it has been asked for (net/disk/sealing.py)
        # returns the chunk with this offset; None if it is still being read: then the stream is touched afterwards
        self.fetch: Callable[[int], Fetched | None] = _nothing
        # returns where, from this offset on, the first chunk begins whose digest may_admit admits, or how far the
        # search has come; the offset itself if it is in that chunk, or nothing is known of it
        self.pass_over: Callable[[int, Callable[[bytes], bool]], int] = _no_digests
        # returns the first offset of the chunk that has, or is followed by, messages of this time (µs) or later
        self.since: Callable[[int], int] = _never


def _nothing(offset: int) -> Fetched | None:
    raise AssertionError("no files")


def _no_digests(offset: int, may_admit: Callable[[bytes], bool]) -> int:
    return offset


def _never(time_us: int) -> int:
    return 0
