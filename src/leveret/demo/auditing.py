"""The audit at the end of a run with --cluster: what the four brokers themselves recorded of every message."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from leveret.demo.plan import AUDIT_STREAM, EXCHANGE, Plan
from leveret.demo.reconcile import Stage
from leveret.pipelines import Summary, audit


@dataclass(frozen=True)
class Audited:
    """What the audit found: its summary, and the same as a stage of the account."""

    summary: Summary
    stage: Stage


def audited(spark: SparkSession, plan: Plan, brokers: Mapping[str, str], expected: Sequence[str]) -> Audited:
    """Audits what these brokers recorded; leaves ``audit.parquet`` and ``audit.html``.

    A flight of which no broker has recorded anything is lost, too: an audit that saw nothing would find no fault.

    Args:
        spark: the session.
        plan: of the run.
        brokers: URLs by name.
        expected: ids of the flights that the input holds.

    Raises:
        PipelineError: a recording can't be read, or the results can't be written.
    """
    table, report = plan.output / "audit.parquet", plan.output / "audit.html"
    summary = audit(spark, brokers, brokers=brokers, stream=AUDIT_STREAM, table=str(table), report=str(report))
    columns = ["message_id", "exchange", "lost", "duplicated", "lateness_ms"]
    rows = pq.read_table(table, columns=columns).to_pylist()
    followed = {row["message_id"] for row in rows if row["exchange"] == EXCHANGE}
    lost = {row["message_id"] or "" for row in rows if row["lost"]}
    stage = Stage(
        "audited",
        len(rows),
        lost=tuple(sorted(lost | (set(expected) - followed))),
        duplicated=tuple(sorted(row["message_id"] or "" for row in rows if row["duplicated"])),
        unexpected=tuple(sorted(followed - set(expected))),
        early=tuple(sorted(row["message_id"] or "" for row in rows if (row["lateness_ms"] or 0) < 0)),
    )
    return Audited(summary, stage)
