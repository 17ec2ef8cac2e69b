"""A query: a producer that publishes batches by stages, and its last released batch."""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from leveret.broker.staging.stage import Stage
from leveret.wire.table import Value

QUERY: Final = "query.declare"


class Producer:
    """A producer of batches, known to the broker by its name."""

    def __init__(self, name: str, owner: str, used_us: i64) -> None:
        self.name = name
        self.owner = owner  # the user who used it first
        self.used_us = used_us  # last staging or release, to within a day; 0 = unknown, from an older journal
        self.last_batch = -1  # the last released one, -1 = none
        self.messages = self.octets = 0  # released since the broker started
        self.is_forgotten = False
        self.stages: dict[tuple[int, str], Stage] = {}  # unreleased, by batch and attempt

    def record(self, vhost: str) -> dict[str, Value]:
        """Return the journal's record of it."""
        fields: dict[str, Value] = {"op": QUERY, "vhost": vhost, "query": self.name, "owner": self.owner}
        return fields | {"last_batch": self.last_batch, "used_us": int(self.used_us)}
