"""The collector: consumes the arrival notices and records when each one arrived. A process of its own."""

from __future__ import annotations

import sys
import time
from threading import Event

from leveret.client import BlockingConnection
from leveret.demo.plan import NOTICES_QUEUE, DemoPlan
from leveret.demo.roles.role import ProgressReporter, stop_signal, write_records
from leveret.wire.properties import text_property

TURN = 100
"""Notices that share one reading of the clock.

Kept small: the clock is read after the last of them has arrived, and a later reading would hide that one was early.
"""


def collect(url: str, stop: Event, reporter: ProgressReporter) -> tuple[list[str], list[int]]:
    """Collect until told to stop. Return the notices' ids in order of arrival, and the times of arrival, in nanoseconds
    since the epoch."""
    ids: list[str] = []
    received_ns: list[int] = []
    with BlockingConnection(url, reconnect=False) as connection:
        channel = connection.channel()
        channel.consume(NOTICES_QUEUE, prefetch_count=10 * TURN)
        reporter.state(ready=1)
        while not stop.is_set():
            turn = channel.deliveries(TURN, 0.1)
            now_ns = time.time_ns()
            if turn:
                channel.ack(turn[-1].delivery_tag, multiple=True)
                channel.flush()
                ids += [text_property(delivery.header, "message_id") or "(no message id)" for delivery in turn]
                received_ns += [now_ns] * len(turn)
            reporter.progress(len(ids))
    return ids, received_ns


def main(plan: DemoPlan) -> None:
    """Collect, and write the notices as records."""
    reporter = ProgressReporter()
    ids, received_ns = collect(plan.url, stop_signal(), reporter)
    write_records(plan.records / "delivered.parquet", id=ids, received_ns=received_ns)
    reporter.state(count=len(ids))


if __name__ == "__main__":
    main(DemoPlan.from_json(sys.argv[1]))
