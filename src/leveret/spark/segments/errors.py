"""What may be wrong with sealed segments."""

from __future__ import annotations


class SegmentsUnavailable(Exception):
    """They can't be had as the options say; the text names the option to change."""


class SegmentGone(Exception):
    """A file is not there any more, or cannot be seen from here. All rows before `first` were yielded, and those of
    [first, end) may still be had over AMQP; the text says what would have helped."""

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


class SegmentDamaged(Exception):
    """A file holds something else than its name says."""

    def __init__(self, name: str, what: str) -> None:
        super().__init__(name, what)
        self.name = name
        self.what = what

    def __str__(self) -> str:
        return f"the sealed file {self.name} is damaged: {self.what}; option segments=amqp reads the messages instead"
