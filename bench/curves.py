#!/usr/bin/env python3
"""How the cost of a message grows with queue length, queues, bindings, connections, consumers, body size, headers.

    bench/curves.py                         all curves, leveret and RabbitMQ: about 10 minutes
    bench/curves.py --only topic,queues
    bench/curves.py --plot-only             draw earlier measurements

Each curve is measured on a fresh broker. Every point is appended to build/bench/curves.jsonl; the newest point of each
broker is drawn, into docs/assets/curves/. docs/internals/cost-curves.md interprets the pictures. Costs are processor
time of the broker, all its threads, divided by the number of operations; the load of the client does not count, and
other load on the machine hardly does.
"""

import argparse
import json
import shutil
import signal
import sys
import time
from typing import NamedTuple

import growth
from growth import Measure, Place
from leveret.testing.processes import ProcessFailed
from line import Failed
from plots import Point, draw, newest
from run import TOP, WORK, available, server

RESULTS = WORK / "curves.jsonl"
PICTURES = TOP / "docs" / "assets" / "curves"


class Curve(NamedTuple):
    measure: Measure
    axis: str
    sizes: tuple[int, ...]  # what leveret is measured at
    fewer: int  # the largest of them for RabbitMQ, which takes longer


THOUSANDS = (1000, 3000, 10_000, 30_000, 100_000, 300_000, 1_000_000)
CURVES = {
    "length": Curve(growth.length, "messages that wait", (0, 1000, 10_000, 100_000, 1_000_000, 10_000_000), 100_000),
    "queues": Curve(growth.queues, "queues", (1, 100, 1000, 3000, 10_000, 20_000, 50_000), 1000),
    "direct": Curve(growth.direct, "bindings", THOUSANDS, 3000),
    "topic": Curve(growth.topic, "bindings", THOUSANDS, 3000),
    "durable": Curve(growth.durable, "durable bindings", (1000, 10_000, 100_000, 1_000_000), 1000),
    "headers-bindings": Curve(growth.headers_bindings, "bindings", (1, 10, 100, 1000, 10_000), 1000),
    "fanout": Curve(growth.fanout, "queues of the exchange", (1, 10, 100, 1000, 10_000), 1000),
    "connections": Curve(growth.connections, "connections", (10, 100, 300, 1000, 3000, 10_000), 1000),
    "channels": Curve(growth.channels, "channels of the connection", (1, 10, 100, 500, 1000, 2000), 1000),
    "consumers": Curve(growth.consumers, "consumers of the queue", (1, 10, 100, 1000, 3000, 10_000), 1000),
    "body": Curve(growth.body, "octets of the body", tuple(16 * 4**power for power in range(11)), 16 << 20),
    "headers": Curve(growth.headers, "headers of the message", (0, 1, 5, 10, 20, 50, 100, 200), 200),
}


def measure(name: str, broker: str) -> list[Point]:
    """Measure one curve of one broker, on a data directory of its own."""
    curve = CURVES[name]
    sizes = [size for size in curve.sizes if broker != "rabbitmq" or size <= curve.fewer]
    directory = WORK / "data" / "curves"
    shutil.rmtree(directory, ignore_errors=True)
    points: list[Point] = []
    with server(broker, directory) as process:
        place = Place(process.url, process.pid)
        try:
            for sample in curve.measure(place, sizes):
                points.append(Point(name, broker, *sample))
                print(f"{name:17}{broker:20}{sample.series:50}{sample.x:>12,.0f}{sample.y:>14,.2f}", flush=True)
        finally:
            place.close()
    shutil.rmtree(directory, ignore_errors=True)
    return points


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    here = [name for name in available() if name in ("leveret", "rabbitmq")]
    parser.add_argument("--brokers", type=lambda names: names.split(","), default=here, help="comma separated")
    parser.add_argument("--only", type=lambda names: names.split(","), default=list(CURVES), help="comma separated")
    parser.add_argument("--plot-only", action="store_true", help="measure nothing, draw what is there")
    options = parser.parse_args()
    if unknown := set(options.only) - set(CURVES):
        parser.error(f"unknown curves: {', '.join(sorted(unknown))}")
    if not options.plot_only and not options.brokers:
        parser.error("no broker to measure: leveret's core is not compiled (see CONTRIBUTING.md)")
    return options


def main() -> None:
    options = arguments()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that the brokers are stopped, too
    WORK.mkdir(parents=True, exist_ok=True)
    for name in [] if options.plot_only else options.only:
        for broker in options.brokers:
            began = time.monotonic()
            try:
                points = measure(name, broker)
            except (Failed, ProcessFailed) as error:
                sys.exit(f"{name}, {broker}: {error}")
            except KeyboardInterrupt:
                sys.exit("interrupted")
            with RESULTS.open("a") as results:
                results.writelines(json.dumps(point._asdict()) + "\n" for point in points)
            print(f"{name}, {broker}: {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)
    if not RESULTS.exists():
        sys.exit(f"nothing was measured yet: {RESULTS.relative_to(TOP)} is not there")
    points = newest(Point(**json.loads(line)) for line in RESULTS.read_text().splitlines())
    PICTURES.mkdir(parents=True, exist_ok=True)
    for name in options.only:
        mine = [point for point in points if point.curve == name]
        if mine:
            (PICTURES / f"{name}.svg").write_text(draw(mine, CURVES[name].axis))


if __name__ == "__main__":
    main()
