"""The epochs of this broker: each start is a new one, with a random name, and knows the ids of its first message.

After a crash, or when a backup was put back, ids are given out a second time. An epoch and an id together are one
message only, for ever: that is its position, by which a link on another broker tells what it has had (positions.py).
"""

from __future__ import annotations

from bisect import bisect_right
from typing import Final

from mypy_extensions import i64

from leveret.broker.log import Log, epoch_record

NO_EPOCH: Final[i64] = 0
"""The name that no epoch has."""
EPOCHS_MAX: Final = 1024
"""How many epochs are known, the last ones. Messages that are older have no position."""


class Epochs:
    """name: of the epoch that begins now, 8 octets by chance as a signed number."""

    def __init__(self, log: Log, name: i64) -> None:
        self._log = log
        self._name: i64 = name if name != NO_EPOCH else 1
        self._first: i64 = 1  # the id with which it began
        # of the epochs before it, oldest first
        self._names: list[int] = []
        self._firsts: list[int] = []

    def of(self, id: i64) -> i64:
        """The name of the epoch in which a message got its id; NO_EPOCH for 0, and if that was too long ago."""
        if id >= self._first:
            return self._name
        index = bisect_right(self._firsts, int(id)) - 1
        return self._names[index] if index >= 0 else NO_EPOCH

    def begin(self) -> None:
        """All that the journal has is read: from here on ids are of this epoch.

        The journal hears of it with the first batch, before anybody hears of a message of this epoch; until then there
        is nothing to write, and a start needs no room on the disk.
        """
        self._first = self._log.next_id
        self._cut(int(self._first))
        del self._firsts[: 1 - EPOCHS_MAX], self._names[: 1 - EPOCHS_MAX]
        self._log.preface = epoch_record(int(self._first), int(self._name))

    def restore(self, first_id: int, name: int) -> None:
        """The journal knows an epoch that began with this id; it may say so several times."""
        if name not in self._names:
            self._cut(first_id)
            self._firsts.append(first_id)
            self._names.append(name)

    def _cut(self, first_id: int) -> None:
        """What older epochs would have given out from this id on was lost, or put back to before it was given out."""
        while self._firsts and self._firsts[-1] >= first_id:
            del self._firsts[-1], self._names[-1]

    def snapshot(self) -> list[bytes]:
        """What a journal file says of them at its beginning."""
        past = [epoch_record(first, name) for first, name in zip(self._firsts, self._names, strict=True)]
        return [*past, epoch_record(int(self._first), int(self._name))]
