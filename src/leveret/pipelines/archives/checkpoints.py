"""Reads a query's checkpoint: its planned micro-batches, and the offset up to which everything is done."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from leveret.pipelines.archives.storage import Storage


class Checkpoint:
    """The checkpoint of a query with one source."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage

    @property
    def location(self) -> str:
        """The location as Spark writes it."""
        return self._storage.spark()

    @property
    def id(self) -> str:
        """Spark's id of the query; it stays the same as long as the checkpoint exists."""
        return str(json.loads(self._storage.read("metadata"))["id"])

    def last(self) -> int:
        """Return the number of the last planned micro-batch, or -1."""
        return max(self._numbers("offsets"), default=-1)

    def done(self) -> dict[str, Any]:
        """Return the source's offset after the last completed micro-batch, empty before the first one."""
        committed = max(self._numbers("commits"), default=-1)
        if committed < 0:
            return {}
        found: dict[str, Any] = json.loads(self._storage.read(f"offsets/{committed}").splitlines()[2])
        return found

    def planned(self, batch: int) -> str:
        """Return a hash that identifies the plan of a micro-batch; the plan is on disk when this returns."""
        path = f"offsets/{batch}"
        self._storage.sync(path)
        self._storage.sync_directories({"offsets"})
        return hashlib.sha256(self._storage.read(path)).hexdigest()[:32]

    def _numbers(self, log: str) -> list[int]:
        return [int(name) for name in self._storage.names(log) if name.isdecimal()]
