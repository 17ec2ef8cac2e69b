"""A query: who publishes batches by stages, and which batch was the last to be released."""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from leveret.broker.staging.stage import Stage
from leveret.wire.table import Value

QUERY: Final = "query.declare"


class Query:
    """owner: the user who came first; last_batch: the last one released, -1 = none yet. stages: those that are not
    released, by batch and attempt. used_us: when something was staged or released last, to within a day; 0 = an older
    journal does not say."""

    def __init__(self, name: str, owner: str, used_us: i64) -> None:
        self.name = name
        self.owner = owner
        self.used_us = used_us
        self.last_batch = -1
        self.is_forgotten = False
        self.stages: dict[tuple[int, str], Stage] = {}

    def record(self, vhost: str) -> dict[str, Value]:
        """The journal's record of it."""
        fields: dict[str, Value] = {"op": QUERY, "vhost": vhost, "query": self.name, "owner": self.owner}
        return fields | {"last_batch": self.last_batch, "used_us": int(self.used_us)}
