"""What a running Spark task knows of itself: query, batch and partition that it writes."""

from __future__ import annotations

import uuid
from dataclasses import dataclass

from pyspark import TaskContext


@dataclass(frozen=True)
class Task:
    """The place of a task in its query.

    Attributes:
        attempt: an id of its own for each attempt.
        query: id of the streaming query, "" outside of one.
        batch: number of the micro-batch, -1 outside of a streaming query.
    """

    partition: int
    attempt: str
    query: str
    batch: int

    @staticmethod
    def current() -> Task:
        """Return the running task. Spark passes query and batch not to writers, but to tasks as local properties."""
        context = TaskContext.get()
        if context is None:
            return Task(0, uuid.uuid4().hex, "", -1)
        query = context.getLocalProperty("sql.streaming.queryId") or ""
        batch = int(context.getLocalProperty("streaming.sql.batchId") or -1)
        attempt = f"{context.partitionId()}-{context.attemptNumber()}-{uuid.uuid4().hex}"
        return Task(context.partitionId(), attempt, query, batch)
