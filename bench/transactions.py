#!/usr/bin/env python3
"""What a transaction costs compared with publisher confirms: the "factor of 250" in RabbitMQ's document on confirms.

    bench/transactions.py
    bench/transactions.py --messages 2000 --per-transaction 10 --brokers rabbitmq,leveret --rounds 5

Publishes the same persistent messages to a durable queue in two ways: in transactions, each of which is committed and
awaited before the next one begins, and with publisher confirms, of which up to --window are awaited at a time. Both use
leveret's blocking client on one connection. The brokers take turns (A B A B …), each with its data on the disk of this
directory. Prints the medians of messages per second, of the time of one commit, and of the factor between the two ways
for each broker; and last, the ratios of the other brokers to the first.

The factor depends on the disk and the round trip as much as on the broker: a transaction waits for both alone, a
confirm shares them with its window. The faster a broker's confirms, the larger its factor. Compare ratios within one
run, not figures across runs.
"""

import argparse
import statistics
import sys
import time
from typing import NamedTuple

from leveret.client import BlockingChannel, BlockingConnection, Properties
from leveret.testing.processes import ProcessFailed
from run import available, positive, servers

QUEUE = "bench.transactions"
PERSISTENT = Properties(delivery_mode=2)
CHOICES = ("rabbitmq", "leveret", "leveret-interpreted")


class Rates(NamedTuple):
    """Messages per second in the two ways."""

    transactions: float
    confirms: float


def with_transactions(channel: BlockingChannel, options: argparse.Namespace) -> None:
    """Publish all messages in transactions of --per-transaction."""
    body = b"x" * options.size
    channel.tx_select()
    for first in range(0, options.messages, options.per_transaction):
        for _ in range(min(options.per_transaction, options.messages - first)):
            channel.publish(body, "", QUEUE, PERSISTENT)
        channel.tx_commit()


def with_confirms(channel: BlockingChannel, options: argparse.Namespace) -> None:
    """Publish all messages with at most --window of them unconfirmed."""
    body = b"x" * options.size
    channel.confirm_window = options.window
    channel.confirm_select()
    for _ in range(options.messages):
        channel.publish(body, "", QUEUE, PERSISTENT)
    channel.wait_for_confirms()


def measure(url: str, options: argparse.Namespace) -> Rates:
    """Run both ways once, each with a new channel and a new queue; check that no message is missing in the queue."""
    rates = []
    with BlockingConnection(url, reconnect=False) as connection:
        for way in (with_transactions, with_confirms):
            with connection.channel() as channel:
                channel.declare_queue(QUEUE)
                started_s = time.perf_counter()
                way(channel, options)
                rates.append(options.messages / (time.perf_counter() - started_s))
                if (count := channel.delete_queue(QUEUE)) != options.messages:
                    sys.exit(f"{way.__name__}: {count} of {options.messages} messages are in the queue")
    return Rates(*rates)


def report(rates: dict[str, list[Rates]], options: argparse.Namespace) -> str:
    lines = [f"{'':20} {'transactions':>14} {'ms per commit':>14} {'confirms':>14} {'factor':>8}"]
    medians: dict[str, Rates] = {}
    for name, rows in rates.items():
        median = Rates(statistics.median(r.transactions for r in rows), statistics.median(r.confirms for r in rows))
        commit_ms = 1000 * options.per_transaction / median.transactions
        factor = statistics.median(row.confirms / row.transactions for row in rows)
        ways = f"{median.transactions:12,.0f}/s {commit_ms:14.2f} {median.confirms:12,.0f}/s"
        lines.append(f"{name:20} {ways} {factor:8.1f}")
        medians[name] = median
    base, *others = medians
    for name in others:
        transactions = medians[name].transactions / medians[base].transactions
        confirms = medians[name].confirms / medians[base].confirms
        lines.append(f"{name} / {base}: transactions {transactions:.2f}, confirms {confirms:.2f}")
    return "\n".join(lines)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    here = [name for name in available() if name in ("rabbitmq", "leveret")] + ["leveret-interpreted"]
    brokers = f"comma separated, of {', '.join(CHOICES)}; the first is the base (default: {','.join(here[:2])})"
    parser.add_argument("--brokers", type=lambda names: names.split(","), default=here[:2], help=brokers)
    parser.add_argument("--messages", type=positive, default=5000, help="in each way and round (default: 5000)")
    parser.add_argument("--size", type=positive, default=200, help="octets of a body (default: 200)")
    parser.add_argument("--window", type=positive, default=1000, help="unconfirmed publishes at most (default: 1000)")
    parser.add_argument("--per-transaction", type=positive, default=1, help="publishes in each (default: 1)")
    parser.add_argument("--rounds", type=positive, default=3, help="how often each broker has its turn (default: 3)")
    options = parser.parse_args()
    if unknown := set(options.brokers) - set(CHOICES):
        parser.error(f"unknown brokers: {', '.join(sorted(unknown))}")
    return options


def main() -> None:
    options = arguments()
    rates: dict[str, list[Rates]] = {name: [] for name in options.brokers}
    try:
        with servers(options.brokers) as brokers:
            for turn in range(1, options.rounds + 1):
                for name, broker in brokers.items():
                    rates[name].append(measure(broker.url, options))
                    row = rates[name][-1]
                    text = f"transactions {row.transactions:,.0f}/s, confirms {row.confirms:,.0f}/s"
                    print(f"{turn}/{options.rounds} {name:20} {text}", file=sys.stderr, flush=True)
    except ProcessFailed as error:
        sys.exit(str(error))
    print(report(rates, options))


if __name__ == "__main__":
    main()
