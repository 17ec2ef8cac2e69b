"""An application for `taskiq worker`: a task that never ends in the first worker that gets it.

The environment has the broker's URL, a queue for reports, the name of the task queue, and a path.
"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from leveret.client import connect
from leveret.frameworks.taskiq_broker import LeveretBroker, TaskExchange, TaskQueue

URL = os.environ["TASKIQ_URL"]
NAME = os.environ["TASKIQ_NAME"]
REPORTS = os.environ["TASKIQ_REPORTS"]
KILLED = Path(os.environ["TASKIQ_KILLED"])
"""A file that exists when the first worker is to be killed."""

broker = LeveretBroker(
    URL,
    exchange=TaskExchange(NAME),
    task_queues=[TaskQueue(NAME, type="classic")],
    dead_letter_queue=TaskQueue(f"{NAME}.dead", type="classic"),
)


@broker.task("report")
async def report(is_hanging: bool) -> None:
    """Publish the process id to the queue of reports; then wait forever if is_hanging, until the process is killed.

    Whether to wait is decided before the report, which is what the test waits for to make the file and to kill.
    """
    hangs = is_hanging and not KILLED.exists()  # noqa: ASYNC240
    async with await connect(URL, reconnect=False) as connection, await connection.channel() as channel:
        await channel.confirm_select()
        await channel.publish(str(os.getpid()).encode(), routing_key=REPORTS)
    if hangs:
        await asyncio.Event().wait()
