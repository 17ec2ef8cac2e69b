"""The audit at the end of a run with --cluster: what the four brokers recorded about each message."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from leveret.demo.account.reconcile import AccountLine
from leveret.demo.plan import AUDIT_STREAM, EXCHANGE, DemoPlan
from leveret.pipelines import Summary, audit


@dataclass(frozen=True)
class Audited:
    """The result of the audit: its summary, and its stage of the account."""

    summary: Summary
    stage: AccountLine


def audited(spark: SparkSession, plan: DemoPlan, brokers: Mapping[str, str], expected: Sequence[str]) -> Audited:
    """Audit the brokers' recordings; write ``audit.parquet`` and ``audit.html``.

    A flight that no broker has recorded counts as lost; otherwise an audit without any data would find no fault.

    Args:
        spark: the session.
        plan: of the run.
        brokers: URLs by name.
        expected: ids of the flights in the input.

    Raises:
        PipelineError: a recording can't be read, or the results can't be written.
    """
    table, report = plan.output / "audit.parquet", plan.output / "audit.html"
    summary = audit(spark, brokers, brokers=brokers, stream=AUDIT_STREAM, table=str(table), report=str(report))
    columns = ["message_id", "exchange", "lost", "duplicated", "lateness_ms"]
    rows = pq.read_table(table, columns=columns).to_pylist()
    followed = {row["message_id"] for row in rows if row["exchange"] == EXCHANGE}
    lost = {row["message_id"] or "" for row in rows if row["lost"]}
    stage = AccountLine(
        "audited",
        len(rows),
        lost=tuple(sorted(lost | (set(expected) - followed))),
        duplicated=tuple(sorted(row["message_id"] or "" for row in rows if row["duplicated"])),
        unexpected=tuple(sorted(followed - set(expected))),
        early=tuple(sorted(row["message_id"] or "" for row in rows if (row["lateness_ms"] or 0) < 0)),
    )
    return Audited(summary, stage)
