"""The epochs of this broker: each start begins one, with a random name, and knows the id of its first message.

After a crash or a restored backup, ids are used a second time. Epoch and id together identify one message for ever:
this is its position, by which a link on another broker knows which messages it has had (positions.py).
"""

from __future__ import annotations

from bisect import bisect_right
from typing import Final

from mypy_extensions import i64

from leveret.broker.storage.log import Log, epoch_record

NO_EPOCH: Final[i64] = 0
"""Not the name of any epoch."""
EPOCHS_MAX: Final = 1024
"""How many of the last epochs are remembered. Older messages have no position."""


class Epochs:
    """The current epoch and those before it. name: of the current one, 8 random octets as a signed number."""

    def __init__(self, log: Log, name: i64) -> None:
        self._log = log
        self._name: i64 = name if name != NO_EPOCH else 1
        self._first: i64 = 1  # id of its first message
        # names and first ids of the epochs before it, oldest first
        self._names: list[int] = []
        self._firsts: list[int] = []

    def of(self, id: i64) -> i64:
        """Return the epoch in which a message got its id; NO_EPOCH for id 0, and if the epoch is no longer known."""
        if id >= self._first:
            return self._name
        index = bisect_right(self._firsts, int(id)) - 1
        return self._names[index] if index >= 0 else NO_EPOCH

    def begin(self) -> None:
        """Begin the current epoch, after the journal was read: from here on ids belong to it.

        The journal records it with the first batch, before any message of this epoch is visible. Until then nothing is
        written, so a start needs no disk space.
        """
        self._first = self._log.next_id
        self._cut(int(self._first))
        del self._firsts[: 1 - EPOCHS_MAX], self._names[: 1 - EPOCHS_MAX]
        self._log.preface = epoch_record(int(self._first), int(self._name))

    def restore(self, first_id: int, name: int) -> None:
        """Restore an epoch that began with this id; the journal may contain it several times."""
        if name not in self._names:
            self._cut(first_id)
            self._firsts.append(first_id)
            self._names.append(name)

    def _cut(self, first_id: int) -> None:
        """Remove epochs that began at this id or later: their messages were lost, or are newer than the backup."""
        while self._firsts and self._firsts[-1] >= first_id:
            del self._firsts[-1], self._names[-1]

    def snapshot(self) -> list[bytes]:
        """Return the records for the beginning of a journal file."""
        past = [epoch_record(first, name) for first, name in zip(self._firsts, self._names, strict=True)]
        return [*past, epoch_record(int(self._first), int(self._name))]
