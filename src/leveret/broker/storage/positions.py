"""How far the links of this broker have got in their upstream queues, journalled with the messages themselves.

A position is an epoch of the upstream's queue and the id of a message in it (epochs.py, content.py). Ids grow, and
links get messages in their order, so a link has had everything of an epoch up to the last id, except messages that were
refused here and will come again. So repetitions are told from new messages after a crash of either side, or a restored
backup.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from leveret.broker.storage.log import FORGOTTEN, REACHED, REFUSED, TAKEN, Log, position_record

EPOCHS_MAX: Final = 1024
"""Epochs of an upstream queue that are remembered, the latest ones."""


class Reach:
    """How far one epoch was read."""

    def __init__(self) -> None:
        self.id: i64 = -1  # of the last message
        self.holes: set[int] = set()  # ids up to it that were refused and have not come again

    def has(self, id: i64) -> bool:
        """Whether this message was taken."""
        return id <= self.id and (not self.holes or int(id) not in self.holes)


class LinkPosition:
    """The position of one link."""

    def __init__(self, key: str, log: Log) -> None:
        self.key = key  # its name, chosen by the caller
        self._octets = key.encode("utf-8", "surrogateescape")
        self._log = log
        self._epochs: dict[int, Reach] = {}
        self._epoch: i64 = 0  # of the last message asked for, a signed number of 64 bits
        self._reach = Reach()  # of that epoch, empty at first

    def has(self, epoch: i64, id: i64) -> bool:
        """Whether the message with this id was recorded before."""
        if epoch != self._epoch:
            reach = self._epochs.get(int(epoch))
            if reach is None:
                return False
            self._epoch = epoch
            self._reach = reach
        return self._reach.has(id)

    def reached(self, epoch: i64, id: i64) -> None:
        """Record all messages of that epoch up to this id, except those refused in this turn.

        The record goes into the journal's current batch, as do the messages themselves.
        """
        self._tell(REACHED, epoch, id)

    def refused(self, epoch: i64, id: i64) -> None:
        """Record that this message was refused, and will come again."""
        self._tell(REFUSED, epoch, id)

    def taken(self, epoch: i64, id: i64) -> None:
        """Record that this message, refused before, was taken."""
        self._tell(TAKEN, epoch, id)

    def is_missing(self, epoch: i64, id: i64) -> bool:
        """Whether it was refused and not taken since."""
        reach = self._epochs.get(int(epoch))
        return reach is not None and int(id) in reach.holes

    def is_whole(self, epoch: i64) -> bool:
        """Whether no refused message of this epoch is missing."""
        reach = self._epochs.get(int(epoch))
        return reach is None or not reach.holes

    def pass_over(self, epoch: i64, id: i64) -> None:
        """Handle a new session of the link, which begins with this id: refused messages before it are gone upstream.

        This is not journalled, because the next session will not begin with an older one.
        """
        reach = self._epochs.get(int(epoch))
        if reach is not None and reach.holes:
            reach.holes = {hole for hole in reach.holes if hole >= id}

    def restore(self, what: int, epoch: int, id: int) -> None:
        """Apply a record. what: REACHED, REFUSED or TAKEN."""
        reach = self._epochs.pop(epoch, None) or Reach()
        self._epochs[epoch] = reach  # moved to the end, as the latest one
        if what == REACHED:
            reach.id = max(reach.id, id)
        elif what == REFUSED:
            reach.id = max(reach.id, id)
            reach.holes.add(id)
        else:
            reach.holes.discard(id)
        while len(self._epochs) > EPOCHS_MAX:
            del self._epochs[next(iter(self._epochs))]

    def _tell(self, what: int, epoch: i64, id: i64) -> None:
        self.restore(what, int(epoch), int(id))
        self._log.declared(position_record(what, int(epoch), int(id), self._octets))

    def snapshot(self) -> list[bytes]:
        """Return its records for the beginning of a journal file."""
        records: list[bytes] = []
        for epoch, reach in self._epochs.items():
            records.append(position_record(REACHED, epoch, int(reach.id), self._octets))
            records += [position_record(REFUSED, epoch, hole, self._octets) for hole in sorted(reach.holes)]
        return records


class Positions:
    """The positions of all links of this broker, by their keys."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._by_key: dict[str, LinkPosition] = {}

    def of(self, key: str) -> LinkPosition:
        """Return the position of this link, always the same object."""
        found = self._by_key.get(key)
        if found is None:
            found = self._by_key[key] = LinkPosition(key, self._log)
        return found

    def forget(self, key: str) -> None:
        """Remove the position of a deleted link."""
        if self._by_key.pop(key, None) is not None:
            self._log.declared(position_record(FORGOTTEN, 0, 0, key.encode("utf-8", "surrogateescape")))

    def restore(self, what: int, epoch: int, id: int, key: str) -> None:
        """Apply a record. what: as in log.py."""
        if what == FORGOTTEN:
            self._by_key.pop(key, None)
        else:
            self.of(key).restore(what, epoch, id)

    def snapshot(self) -> list[bytes]:
        """Return the records for the beginning of a journal file."""
        return [record for position in self._by_key.values() for record in position.snapshot()]
