"""How far the links of this broker have got in their upstream queues, journalled with the messages themselves.

A position is a life of the upstream's queue and the id that the message got in it (lives.py, content.py). Ids grow, and
links get them in order, so what a link has had in a life is all up to the last one, but for what was refused here and
has yet to come again. After a crash of either side, or a backup put back, what comes again is told from what is new.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from leveret.broker.log import FORGOTTEN, REACHED, REFUSED, TAKEN, Log, position_record

LIVES_MAX: Final = 1024
"""So many lives of an upstream queue are remembered, the latest ones heard of."""


class Reach:
    """How far one life was read. id: the last one that came; holes: those up to it that are not here."""

    def __init__(self) -> None:
        self.id: i64 = -1
        self.holes: set[int] = set()

    def has(self, id: i64) -> bool:
        """Whether this one is here."""
        return id <= self.id and (not self.holes or int(id) not in self.holes)


class Position:
    """That of one link. key: its name, of the caller's choice; life: as a signed number of 64 bits."""

    def __init__(self, key: str, log: Log) -> None:
        self.key = key
        self._octets = key.encode("utf-8", "surrogateescape")
        self._log = log
        self._lives: dict[int, Reach] = {}
        self._life: i64 = 0
        self._reach = Reach()  # of that life; of none before anything has come

    def has(self, life: i64, id: i64) -> bool:
        """Whether the message with this id was recorded before."""
        if life != self._life:
            reach = self._lives.get(int(life))
            if reach is None:
                return False
            self._life = life
            self._reach = reach
        return self._reach.has(id)

    def reached(self, life: i64, id: i64) -> None:
        """All up to this id of that life is here, but for what is refused in this turn; by the batch under
        construction, as the messages themselves are."""
        self._tell(REACHED, life, id)

    def refused(self, life: i64, id: i64) -> None:
        """This one is not here: it will come again."""
        self._tell(REFUSED, life, id)

    def taken(self, life: i64, id: i64) -> None:
        """This one, refused before, is here after all."""
        self._tell(TAKEN, life, id)

    def is_missing(self, life: i64, id: i64) -> bool:
        """Whether it was refused before."""
        reach = self._lives.get(int(life))
        return reach is not None and int(id) in reach.holes

    def is_whole(self, life: i64) -> bool:
        """Whether nothing of this life was refused that has not come again."""
        reach = self._lives.get(int(life))
        return reach is None or not reach.holes

    def pass_over(self, life: i64, id: i64) -> None:
        """A new session of the link begins with this id: what was refused before it is gone from the upstream queue.

        The journal need not hear of it, since the next session will begin with no older one.
        """
        reach = self._lives.get(int(life))
        if reach is not None and reach.holes:
            reach.holes = {hole for hole in reach.holes if hole >= id}

    def restore(self, what: int, life: int, id: int) -> None:
        """What a record says. what: REACHED, REFUSED or TAKEN."""
        reach = self._lives.pop(life, None) or Reach()
        self._lives[life] = reach  # the latest one
        if what == REACHED:
            reach.id = max(reach.id, id)
        elif what == REFUSED:
            reach.id = max(reach.id, id)
            reach.holes.add(id)
        else:
            reach.holes.discard(id)
        while len(self._lives) > LIVES_MAX:
            del self._lives[next(iter(self._lives))]

    def _tell(self, what: int, life: i64, id: i64) -> None:
        self.restore(what, int(life), int(id))
        self._log.declared(position_record(what, int(life), int(id), self._octets))

    def snapshot(self) -> list[bytes]:
        """What a journal file says of it at its beginning."""
        records: list[bytes] = []
        for life, reach in self._lives.items():
            records.append(position_record(REACHED, life, int(reach.id), self._octets))
            records += [position_record(REFUSED, life, hole, self._octets) for hole in sorted(reach.holes)]
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

    def restore(self, what: int, life: int, id: int, key: str) -> None:
        """What a record says. what: as in log.py."""
        if what == FORGOTTEN:
            self._by_key.pop(key, None)
        else:
            self.of(key).restore(what, life, id)

    def snapshot(self) -> list[bytes]:
        """What a journal file says of them at its beginning."""
        return [record for position in self._by_key.values() for record in position.snapshot()]
