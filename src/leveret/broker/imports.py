"""Definitions files that are being imported, step by step: after a crash each of them is carried out to its end.

The journal has a file as one record before anything of it is done, and a second record when all of it is. So there is
all of it or nothing, though other clients act in between: what they do meanwhile is as if they had done it before.
"""

from __future__ import annotations

from typing import Final

from leveret.broker.log import Log, meta_record
from leveret.wire.table import Value

OP: Final = "import"
OP_END: Final = "import.end"
OPS: Final = (OP, OP_END)


class Imports:
    """begun: by number, what was asked for, in words of the one who did."""

    def __init__(self, log: Log) -> None:
        self.begun: dict[int, str] = {}
        self._log = log
        self._last = 0

    def begin(self, request: str) -> int:
        """From here on it will be carried out, whatever happens; returns its number, for `end`."""
        self._last += 1
        self.begun[self._last] = request
        self._log.meta(_record(self._last, request))
        return self._last

    def end(self, number: int) -> None:
        """It was carried out."""
        del self.begun[number]
        self._log.meta({"op": OP_END, "id": number})

    def restore(self, record: dict[str, Value]) -> None:
        """What the journal says."""
        number = record["id"]
        assert isinstance(number, int)
        self._last = max(self._last, number)
        if record["op"] == OP:
            self.begun[number] = str(record["request"])
        else:
            self.begun.pop(number, None)

    def snapshot(self) -> list[bytes]:
        """What a journal file says of them at its beginning."""
        return [meta_record(_record(number, request)) for number, request in self.begun.items()]


def _record(number: int, request: str) -> dict[str, Value]:
    return {"op": OP, "id": number, "request": request}
