"""The collector: consumes the arrival notices and records when each one arrived. A process of its own."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from threading import Event

from leveret.client import BlockingConnection
from leveret.demo.account.reconcile import Notice
from leveret.demo.plan import DELAY_HEADER, NOTICES_QUEUE, SENT_HEADER, DemoPlan
from leveret.demo.roles.role import ProgressReporter, stop_signal, write_records

TURN = 100
"""Notices that share one reading of the clock; also the prefetch, so that none waits in a buffer meanwhile.

Kept small: the clock is read after the last of them has arrived, and a later reading would hide that one was early.
"""


def collect(url: str, stop: Event, reporter: ProgressReporter) -> list[Notice]:
    """Collect until told to stop. Return the notices in order of arrival."""
    notices: list[Notice] = []
    with BlockingConnection(url, reconnect=False) as connection:
        channel = connection.channel()
        channel.consume(NOTICES_QUEUE, prefetch_count=TURN)
        reporter.state(ready=1)
        while not stop.is_set():
            turn = channel.deliveries(TURN, 0.1)
            now_ns = time.time_ns()
            if turn:
                notices += [_notice(d.properties.message_id, d.properties.headers or {}, now_ns) for d in turn]
                channel.ack(turn[-1].delivery_tag, multiple=True)
                channel.flush()
            reporter.progress(len(notices))
    return notices


def _notice(message_id: str | None, headers: Mapping[str, object], now_ns: int) -> Notice:
    """Convert a message to a Notice. Without a time or a delay it can't be proved on time, so it counts as early."""
    sent, delay = headers.get(SENT_HEADER), headers.get(DELAY_HEADER)
    if sent is None or delay is None:
        return Notice(message_id or "(no message id)", sent_ns=now_ns, delay_ms=1, received_ns=now_ns)
    return Notice(
        flight_id=message_id or "(no message id)",
        sent_ns=int(str(sent)),
        delay_ms=int(str(delay)),
        received_ns=now_ns,
    )


def main(plan: DemoPlan) -> None:
    """Collect, and write the notices as records."""
    reporter = ProgressReporter()
    notices = collect(plan.url, stop_signal(), reporter)
    write_records(
        plan.records / "delivered.parquet",
        id=[notice.flight_id for notice in notices],
        sent_ns=[notice.sent_ns for notice in notices],
        delay_ms=[notice.delay_ms for notice in notices],
        received_ns=[notice.received_ns for notice in notices],
    )
    reporter.state(count=len(notices))


if __name__ == "__main__":
    main(DemoPlan.from_json(sys.argv[1]))
