#!/usr/bin/env python3
"""What listing costs a broker with many queues: how long a query takes, and the longest pause that it causes.

    bench/queries.py
    bench/queries.py --queues 20000 --seconds 5

The broker runs in this process, with --queues queues of one message each. Queries are answered one after the other, for
--seconds each, while another task needs the loop all the time, as messages would. Prints milliseconds of processor
time, which other load on the machine hardly affects: of a query (median), and of the longest time that the other task
waited for the loop. The exit status is 1 if that exceeds --pause-ms-max anywhere.
"""

import argparse
import asyncio
import gc
import os
import statistics
import sys
import time
from typing import Any

import leveret
from leveret.broker.broker import Broker, Settings
from leveret.broker.methods.queue_methods import make_queue
from leveret.control.calls.line import SOMEBODY, call_line
from leveret.control.control import Control
from leveret.control.node import BrokerNode
from leveret.net.alarms import Alarms, Gauges, ResourceLimits
from leveret.net.server import Server
from leveret.store.disk import MemoryDisk
from leveret.store.journal import Journal
from leveret.store.reserve import Reserve
from leveret.store.segment import SegmentStore
from leveret.wire.frames import content_frames
from leveret.wire.properties import Properties, encode_header
from leveret.wire.table import encode_short
from run import positive

PAGE: dict[str, Any] = {"page": 1, "page_size": 100}
QUERIES: dict[str, tuple[str, dict[str, Any]]] = {
    "ping": ("ping", {}),
    "list_queues, page of 100": ("list_queues", PAGE),
    "list_queues, page of 100, a queue came or went": ("list_queues", PAGE),
    "list_queues, page by messages": ("list_queues", PAGE | {"sort": "messages", "sort_reverse": True}),
    "list_queues, page by a rate": ("list_queues", PAGE | {"sort": "message_stats.publish_details.rate"}),
    "list_queues, page by name": ("list_queues", PAGE | {"name": "Q49"}),
    "list_queues, page by pattern": ("list_queues", PAGE | {"name": "q.*9$", "use_regex": True}),
    "list_queues, names of all": ("list_queues", {"columns": ["name"]}),
    "list_queues, all": ("list_queues", {}),
    "list_bindings, all": ("list_bindings", {}),
    "overview": ("overview", {}),
    "list_vhosts": ("list_vhosts", {}),
    "list_nodes": ("list_nodes", {}),
    "get_queue": ("get_queue", {"vhost": "/", "name": "q1000"}),
}
CONTENT = content_frames(1, encode_header(Properties(delivery_mode=1), 100), bytes(100), 131072)


def house(queues: int) -> BrokerNode:
    """Return a broker without connections."""
    broker = Broker(Settings(), os.urandom)
    vhost = broker.vhosts["/"]
    disk = MemoryDisk()
    limits, gauges = ResourceLimits(0, 1 << 40), Gauges(lambda: 1 << 40, lambda: 1 << 20, lambda: None)
    journal, segments = Journal(disk, "/journal"), SegmentStore(disk, "/segments")
    server = Server(broker, journal, segments, Reserve(disk, "/reserve"), Alarms(limits, gauges))
    now_us = server.now_us()
    for number in range(queues):
        name = f"q{number * 7919 % queues}"  # in no particular order
        queue = make_queue(vhost, name, False, False, {})
        vhost.add_queue(queue, 0, now_us)
        queue.message_list.enqueue(CONTENT, encode_short("") + encode_short(name), 0, 0)
        queue.counters.publish = number
    return BrokerNode(broker, server, "leveret@bench", "/", leveret.__version__, leveret.core())


class Pauses:
    """A task that needs the loop all the time and records the longest wait for it."""

    def __init__(self) -> None:
        self.longest_ns = 0
        self._task = asyncio.ensure_future(self._run())

    async def _run(self) -> None:
        while True:
            before_ns = time.thread_time_ns()
            await asyncio.sleep(0)
            self.longest_ns = max(self.longest_ns, time.thread_time_ns() - before_ns)

    async def stop(self) -> float:
        """Stop the task; return the longest pause in milliseconds."""
        self._task.cancel()
        await asyncio.sleep(0)
        return self.longest_ns / 1e6


async def measure(node: BrokerNode, name: str, seconds: float) -> tuple[float, float]:
    """Return the milliseconds of a query (median), and of the longest pause during any of them."""
    control = Control(node)
    command, fields = QUERIES[name]
    line = call_line(command, fields, SOMEBODY).rstrip()
    vhost = node.broker.vhosts["/"]
    took: list[float] = []
    _ = [piece async for piece in control.answer(line)]
    pauses = Pauses()
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if name.endswith("went"):
            if "new" in vhost.queues:
                vhost.delete_queue(vhost.queues["new"])
            else:
                vhost.add_queue(make_queue(vhost, "new", False, False, {}), 0, 0)
        before_ns = time.thread_time_ns()
        answer = [piece async for piece in control.answer(line)]
        took.append((time.thread_time_ns() - before_ns) / 1e6)
        await asyncio.sleep(0)
        if not answer[0].startswith(b'{"ok"'):
            raise SystemExit(f"{name}: {answer}")
    return statistics.median(took), await pauses.stop()


async def run(queues: int, seconds: float) -> float:
    """Print the table; return the longest pause of all."""
    node = house(queues)
    gc.collect()
    gc.freeze()
    gc.disable()
    print(f"{queues:,} queues, {leveret.core()} core\n\n| query | ms | longest pause, ms |\n| --- | ---: | ---: |")
    worst = 0.0
    for name in QUERIES:
        took_ms, pause_ms = await measure(node, name, seconds)
        worst = max(worst, pause_ms)
        print(f"| {name} | {took_ms:.2f} | {pause_ms:.2f} |", flush=True)
    return worst


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--queues", type=positive, default=5000)
    parser.add_argument("--seconds", type=float, default=2.0, help="for each query")
    parser.add_argument("--pause-ms-max", type=float, default=5.0)
    options = parser.parse_args()
    worst = asyncio.run(run(options.queues, options.seconds))
    sys.exit(worst > options.pause_ms_max)


if __name__ == "__main__":
    main()
