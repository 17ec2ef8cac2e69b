"""Errors of reading sealed segments."""

from __future__ import annotations


class SegmentsUnavailable(Exception):
    """Segments cannot be read as the options ask; the text names the option to change."""


class SegmentGone(Exception):
    """A file is gone, or is not visible to this process. All rows before `first` were yielded; those of [first, end)
    may still be read over AMQP. The text says what would have helped."""

    def __init__(self, name: str, first: int, end: int, reason: str) -> None:
        super().__init__(name, first, end, reason)
        self.name = name
        self.first = first
        self.end = end
        self.reason = reason

    def __str__(self) -> str:
        return (
            f"the sealed file {self.name} no longer existed when offsets {self.first} to {self.end - 1} were to be "
            f"read ({self.reason}). A lease keeps files for as long as a query needs them: option apiUrl; option "
            "failOnDataLoss=false skips lost messages"
        )


class SealedFileDamaged(Exception):
    """A file's content does not match its name."""

    def __init__(self, name: str, what: str) -> None:
        super().__init__(name, what)
        self.name = name
        self.what = what

    def __str__(self) -> str:
        return f"the sealed file {self.name} is damaged: {self.what}; option segments=amqp reads the messages instead"
