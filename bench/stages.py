#!/usr/bin/env python3
"""What a stage costs: the same messages with confirms, published directly into a durable queue or by a stage that is
released.

    bench/stages.py [--count 200000] [--size 200] [--rounds 3]

Prints the best round of each: messages per second until all are confirmed and until all are in the queue, and the
broker's processor time per message.
"""

import argparse
import time
from pathlib import Path

from leveret.client import BlockingChannel, BlockingConnection, Properties
from leveret.testing.processes import LeveretProcess

WINDOW = 10_000
QUEUE = "staged"
PERSISTENT = Properties(delivery_mode=2)


def publish(channel: BlockingChannel, count: int, body: bytes) -> None:
    """Publish all messages and await their confirms."""
    for _ in range(count):
        channel.publish(body, "", QUEUE, PERSISTENT, mandatory=False)
    channel.wait_for_confirms()


def cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100


def wait_until_there(channel: BlockingChannel, count: int) -> None:
    """Wait until the queue has `count` messages."""
    while channel.declare_queue(QUEUE, passive=True).message_count < count:
        time.sleep(0.001)


def run(broker: LeveretProcess, batch: int, count: int, body: bytes, is_staged: bool) -> tuple[float, float, float]:
    """Return messages per second until confirmed and until in the queue, and the broker's µs per message."""
    with BlockingConnection(broker.url, reconnect=False) as connection:
        channel, driver = connection.channel(), connection.channel()
        driver.declare_queue(QUEUE, durable=True)
        driver.purge_queue(QUEUE)
        channel.confirm_select()
        channel.confirm_window = WINDOW
        before_s, start = cpu_s(broker.pid), time.perf_counter()
        if is_staged:
            channel.attach_stage("bench", batch, "a")
        publish(channel, count, body)
        confirmed_s = time.perf_counter() - start
        if is_staged:
            driver.release_stages("bench", batch, ["a"])
        wait_until_there(driver, count)
        there_s = time.perf_counter() - start
        return count / confirmed_s, count / there_s, (cpu_s(broker.pid) - before_s) / count * 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=200_000)
    parser.add_argument("--size", type=int, default=200, help="octets of a body")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    with LeveretProcess() as broker:
        for is_staged in (False, True):
            rounds = [
                run(broker, batch, options.count, bytes(options.size), is_staged) for batch in range(options.rounds)
            ]
            confirmed, there, cpu_us = max(rounds, key=lambda each: each[1])
            name = "staged" if is_staged else "straight"
            print(f"{name:9} {confirmed:10,.0f}/s confirmed {there:10,.0f}/s there {cpu_us:6.2f} us of the broker")


if __name__ == "__main__":
    main()
