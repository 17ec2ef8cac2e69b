"""What Spark's checkpoint says of a query: which micro-batches are planned, and up to where all is done."""

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
        """What Spark calls it."""
        return self._storage.spark()

    @property
    def id(self) -> str:
        """Spark's id of the query, which stays the same as long as the checkpoint does."""
        return str(json.loads(self._storage.read("metadata"))["id"])

    def last(self) -> int:
        """The last micro-batch that is planned; -1 = none."""
        return max(self._numbers("offsets"), default=-1)

    def done(self) -> dict[str, Any]:
        """The source's offset behind the last micro-batch that is done; empty = none is."""
        committed = max(self._numbers("commits"), default=-1)
        if committed < 0:
            return {}
        found: dict[str, Any] = json.loads(self._storage.read(f"offsets/{committed}").splitlines()[2])
        return found

    def planned(self, batch: int) -> str:
        """What tells the plan of a micro-batch from any other; the plan is on the disk when this returns."""
        path = f"offsets/{batch}"
        self._storage.sync(path)
        self._storage.sync_directories({"offsets"})
        return hashlib.sha256(self._storage.read(path)).hexdigest()[:32]

    def _numbers(self, log: str) -> list[int]:
        return [int(name) for name in self._storage.names(log) if name.isdecimal()]
