"""Numbers that a stream keeps by name: the offsets of named consumers, and the last sequence numbers of publishers.

However many change, the journal gets one record per stream and batch; and the stream's own record, at the beginning of
each journal file, has all of them.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from leveret.wire.table import Value

# number of names that are kept, those used last
NAMES_MAX: Final = 1000
# of a name in UTF-8, which in the journal is the name of a field
NAME_OCTETS_MAX: Final = 255


class Mark:
    """A number and who may change it."""

    def __init__(self, value: i64) -> None:
        self.value = value
        self.id: i64 = 0  # the journal's id of the message with this number, 0 = it is on disk
        self.owner: i64 = 0  # number of the reader that may move it, 0 = none


class Marks:
    """The numbers of one kind, of one stream."""

    def __init__(self) -> None:
        self._by_name: dict[str, Mark] = {}  # the one used last is at the end
        self._changed: dict[str, Value] = {}

    def get(self, name: str) -> Mark | None:
        """Return the number of this name, None if it is unknown."""
        return self._by_name.get(name)

    def put(self, name: str, value: i64) -> Mark:
        """Set the number of this name. The caller makes sure that the journal asks for `changes`."""
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
        """Remove a name; False if it is unknown."""
        if self._by_name.pop(name, None) is None:
            return False
        self._changed[name] = None
        return True

    def changes(self) -> dict[str, Value]:
        """Return what has changed since the last call, by name; None stands for a removed name."""
        changed, self._changed = self._changed, {}
        return changed

    def table(self) -> dict[str, Value]:
        """Return all numbers by name, least recently used first."""
        return {name: int(mark.value) for name, mark in self._by_name.items()}

    def restore(self, table: Value) -> None:
        """Apply a record of `changes`."""
        if not isinstance(table, dict):
            return
        for name, value in table.items():
            self._by_name.pop(name, None)
            if isinstance(value, int):
                self._by_name[name] = Mark(value)

    def reset(self, table: Value) -> None:
        """Replace everything by a record of `table`."""
        self._by_name.clear()
        self.restore(table)
