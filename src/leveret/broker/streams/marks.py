"""Numbers that a stream keeps by name: how far a consumer has come, and what a publisher sent last.

The journal hears of what has changed once for each batch, whatever the number of changes, by one record for each
stream; and the stream's own record, with which a file of the journal begins, has them all.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from leveret.wire.table import Value

# how many names are remembered, those used last
NAMES_MAX: Final = 1000
# of a name in UTF-8: in the journal it is the name of a field
NAME_OCTETS_MAX: Final = 255


class Mark:
    """value: the number. id: the journal's of the message with it, 0 = it is on disk; owner: the number of the reader
    who may move it, 0 = none."""

    def __init__(self, value: i64) -> None:
        self.value = value
        self.id: i64 = 0
        self.owner: i64 = 0


class Marks:
    """Those of one kind of one stream."""

    def __init__(self) -> None:
        self._by_name: dict[str, Mark] = {}  # the one used last stands last
        self._changed: dict[str, Value] = {}

    def get(self, name: str) -> Mark | None:
        """None if the name is not known."""
        return self._by_name.get(name)

    def put(self, name: str, value: i64) -> Mark:
        """This number from now on. Whoever calls it sees to it that the journal asks for `changes`."""
        mark = self._by_name.pop(name, None)
        if mark is None:
            mark = Mark(value)
            if len(self._by_name) >= NAMES_MAX:
                self.forget(next(iter(self._by_name)))
        mark.value = value
        self._by_name[name] = mark
        self._changed[name] = int(value)
        return mark

    def forget(self, name: str) -> bool:
        """False if there was no such name."""
        if self._by_name.pop(name, None) is None:
            return False
        self._changed[name] = None
        return True

    def changes(self) -> dict[str, Value]:
        """What has changed since the last call, by name; None for what is forgotten."""
        changed, self._changed = self._changed, {}
        return changed

    def table(self) -> dict[str, Value]:
        """All of them, the one used longest ago first."""
        return {name: int(mark.value) for name, mark in self._by_name.items()}

    def restore(self, table: Value) -> None:
        """What `changes` said."""
        if not isinstance(table, dict):
            return
        for name, value in table.items():
            self._by_name.pop(name, None)
            if isinstance(value, int):
                self._by_name[name] = Mark(value)

    def reset(self, table: Value) -> None:
        """What `table` said: there are no others."""
        self._by_name.clear()
        self.restore(table)
