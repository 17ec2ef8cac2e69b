"""Imports of definitions files, which run in steps and are completed after a crash.

The journal has a file as one record before anything of it is done, and a second record when all of it is done. So an
import is done as a whole or not at all, although other clients act in between: their changes count as made before it.
"""

from __future__ import annotations

from typing import Final

from leveret.broker.storage.log import Log, meta_record
from leveret.wire.table import Value

OP: Final = "import"
OP_END: Final = "import.end"
OPS: Final = (OP, OP_END)


class Imports:
    """The imports that have begun and not ended."""

    def __init__(self, log: Log) -> None:
        self.begun: dict[int, str] = {}  # request of each import, by number
        self._log = log
        self._last = 0

    def begin(self, request: str) -> int:
        """Journal an import, which from now on will be completed, even after a crash; return its number for `end`."""
        self._last += 1
        self.begun[self._last] = request
        self._log.meta(_record(self._last, request))
        return self._last

    def end(self, number: int) -> None:
        """Journal that an import is complete."""
        del self.begun[number]
        self._log.meta({"op": OP_END, "id": number})

    def restore(self, record: dict[str, Value]) -> None:
        """Apply a journal record."""
        number = record["id"]
        assert isinstance(number, int)
        self._last = max(self._last, number)
        if record["op"] == OP:
            self.begun[number] = str(record["request"])
        else:
            self.begun.pop(number, None)

    def snapshot(self) -> list[bytes]:
        """Return the records for the beginning of a journal file."""
        return [meta_record(_record(number, request)) for number, request in self.begun.items()]


def _record(number: int, request: str) -> dict[str, Value]:
    return {"op": OP, "id": number, "request": request}
