"""How far the links of this broker have got in their upstream queues, journalled with the messages themselves.

A position is an epoch of the upstream's queue and the id that the message got in it (epochs.py, content.py). Ids grow,
and links get them in order, so what a link has had in an epoch is all up to the last one, but for what was refused here
and has yet to come again. After a crash of either side, or a backup put back, what comes again is told from what is
new.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from leveret.broker.storage.log import FORGOTTEN, REACHED, REFUSED, TAKEN, Log, position_record

EPOCHS_MAX: Final = 1024
"""How many epochs of an upstream queue are remembered, the latest ones heard of."""


class Reach:
    """How far one epoch was read. id: the last one that came; holes: those up to it that are not here."""

    def __init__(self) -> None:
        self.id: i64 = -1
        self.holes: set[int] = set()

    def has(self, id: i64) -> bool:
        """Whether this one is here."""
        return id <= self.id and (not self.holes or int(id) not in self.holes)


class Position:
    """That of one link. key: its name, of the caller's choice; epoch: as a signed number of 64 bits."""

    def __init__(self, key: str, log: Log) -> None:
        self.key = key
        self._octets = key.encode("utf-8", "surrogateescape")
        self._log = log
        self._epochs: dict[int, Reach] = {}
        self._epoch: i64 = 0
        self._reach = Reach()  # of that epoch; of none before anything has come

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
        """All up to this id of that epoch is here, but for what is refused in this turn; by the batch under
        construction, as the messages themselves are."""
        self._tell(REACHED, epoch, id)

    def refused(self, epoch: i64, id: i64) -> None:
        """This one is not here: it will come again."""
        self._tell(REFUSED, epoch, id)

    def taken(self, epoch: i64, id: i64) -> None:
        """This one, refused before, is here after all."""
        self._tell(TAKEN, epoch, id)

    def is_missing(self, epoch: i64, id: i64) -> bool:
        """Whether it was refused before."""
        reach = self._epochs.get(int(epoch))
        return reach is not None and int(id) in reach.holes

    def is_whole(self, epoch: i64) -> bool:
        """Whether nothing of this epoch was refused that has not come again."""
        reach = self._epochs.get(int(epoch))
        return reach is None or not reach.holes

    def pass_over(self, epoch: i64, id: i64) -> None:
        """A new session of the link begins with this id: what was refused before it is gone from the upstream queue.

        The journal need not hear of it, since the next session will begin with no older one.
        """
        reach = self._epochs.get(int(epoch))
        if reach is not None and reach.holes:
            reach.holes = {hole for hole in reach.holes if hole >= id}

    def restore(self, what: int, epoch: int, id: int) -> None:
        """What a record says. what: REACHED, REFUSED or TAKEN."""
        reach = self._epochs.pop(epoch, None) or Reach()
        self._epochs[epoch] = reach  # the latest one
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
        """What a journal file says of it at its beginning."""
        records: list[bytes] = []
        for epoch, reach in self._epochs.items():
            records.append(position_record(REACHED, epoch, int(reach.id), self._octets))
            records += [position_record(REFUSED, epoch, hole, self._octets) for hole in sorted(reach.holes)]
        return records


class Positions:
    """Those of all links of this broker, by their keys."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._by_key: dict[str, Position] = {}

    def of(self, key: str) -> Position:
        """The position of this link, the same object each time."""
        found = self._by_key.get(key)
        if found is None:
            found = self._by_key[key] = Position(key, self._log)
        return found

    def forget(self, key: str) -> None:
        """The link is no more."""
        if self._by_key.pop(key, None) is not None:
            self._log.declared(position_record(FORGOTTEN, 0, 0, key.encode("utf-8", "surrogateescape")))

    def restore(self, what: int, epoch: int, id: int, key: str) -> None:
        """What a record says. what: as in log.py."""
        if what == FORGOTTEN:
            self._by_key.pop(key, None)
        else:
            self.of(key).restore(what, epoch, id)

    def snapshot(self) -> list[bytes]:
        """What a journal file says of them at its beginning."""
        return [record for position in self._by_key.values() for record in position.snapshot()]
