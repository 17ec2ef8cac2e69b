"""How long an audit takes of the recorded firehoses of three brokers: Parquet files written here, with known faults.

    python bench/pipeline_audit.py --messages 1000000 --master 'local[2]'

Messages are published at A or B, cross a link to C and are delivered there; a tenth are delayed, a tenth are requests
with replies. One in 10,000 is lost, and as many are duplicated. Prints figures as lines; exits with status 1 if the
audit finds other numbers.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from leveret import spark as leveret_spark
from leveret.pipelines import audit

BEGAN_US = 1_356_998_400_000_000
FILE_ROWS = 500_000
FAULTS = 10_000
SCHEMA = pa.schema([
    ("exchange", pa.string()), ("routing_key", pa.string()), ("headers", pa.map_(pa.string(), pa.string())),
    ("source", pa.string()), ("offset", pa.int64()), ("body", pa.binary()),
])  # fmt: skip
LEVEL, DIGITS = "nsb.ms.delay-level-09", ".".join(format(1000, "028b")) + ".notices"


class Lake:
    """Events of one broker, in large files."""

    def __init__(self, directory: Path, node: str) -> None:
        directory.mkdir()
        self.directory, self.node = directory, node
        self.count = 0
        self._keys: list[str] = []
        self._headers: list[list[tuple[str, str]]] = []

    def tell(self, key: str, us: int, properties: str, *more: tuple[str, str]) -> None:
        headers = [("node", self.node), ("connection", "c"), ("channel", "1"), ("timestamp_in_us", str(BEGAN_US + us))]
        self._keys.append(key)
        self._headers.append([*headers, ("properties", properties), *more])
        if len(self._keys) == FILE_ROWS:
            self.flush()

    def publish(self, us: int, number: int, exchange: str, key: str, queues: str, properties: str) -> None:
        names = (("exchange_name", exchange), ("routing_keys", f'["{key}"]'), ("routed_queues", queues))
        self.tell(f"publish.{exchange}", us, properties, *names, ("publish_seq_no", str(number)))

    def deliver(self, us: int, queue: str, exchange: str, key: str, properties: str) -> None:
        names = (("exchange_name", exchange), ("routing_keys", f'["{key}"]'), ("redelivered", "0"))
        self.tell(f"deliver.{queue}", us, properties, *names)

    def confirm(self, us: int, first: int, last: int) -> None:
        self.tell("confirm.ack", us, "{}", ("first_seq_no", str(first)), ("last_seq_no", str(last)))

    def flush(self) -> None:
        rows = len(self._keys)
        if rows:
            offsets = np.arange(self.count, self.count + rows)
            nothing = pa.nulls(rows, pa.binary())
            columns = [["amq.rabbitmq.trace"] * rows, self._keys, self._headers, ["audit"] * rows, offsets, nothing]
            arrays = [pa.array(column, kind.type) for column, kind in zip(columns, SCHEMA, strict=True)]
            pq.write_table(pa.table(arrays, schema=SCHEMA), self.directory / f"part-{self.count:012d}.parquet")
        self.count += rows
        self._keys, self._headers = [], []


def write(directory: Path, messages: int) -> tuple[dict[str, str], int]:
    """Write the lakes; return their paths by broker, and the number of events."""
    lakes = {name: Lake(directory / name, f"node-{name}") for name in "ABC"}
    at_c = lakes["C"]
    numbers = dict.fromkeys("ABC", 0)
    for number in range(messages):
        us = number * 100
        fault = number % FAULTS
        kind = number % 10
        properties = f'{{"message_id":"m{number}"}}'
        if kind == 0:
            numbers["C"] += 1
            at_c.publish(us, numbers["C"], LEVEL, DIGITS, f'["{LEVEL}"]', properties)
            death = f'[{{"queue":"{LEVEL}","exchange":"{LEVEL}","routing-keys":["{DIGITS}"],"count":1}}]'
            died = f'{{"message_id":"m{number}","headers":{{"x-death":{death}}}}}'
            at_c.deliver(us + 1_001_000, "notices", LEVEL, DIGITS, died)
            continue
        if kind == 1:
            numbers["C"] += 2
            call = f'"correlation_id":"{number}","reply_to":"amq.rabbitmq.reply-to.x"'
            at_c.publish(us, numbers["C"] - 1, "", "service", '["service"]', f'{{"message_id":"m{number}",{call}}}')
            at_c.deliver(us + 200, "service", "", "service", f'{{"message_id":"m{number}",{call}}}')
            reply = f'{{"correlation_id":"{number}"}}'
            at_c.publish(us + 900, numbers["C"], "", "amq.rabbitmq.reply-to.x", "[]", reply)
            continue
        name = "AB"[number & 1]
        numbers[name] += 1
        numbers["C"] += 1
        lakes[name].publish(us, numbers[name], "flights", "k", '["federation: flights -> node-C"]', properties)
        lakes[name].deliver(us + 100, "federation: flights -> node-C", "flights", "k", properties)
        hop = f'[{{"uri":"amqp://{name}","exchange":"flights","redelivered":false,"cluster-name":"node-{name}"}}]'
        came = f'{{"message_id":"m{number}","headers":{{"x-received-from":{hop}}}}}'
        at_c.publish(us + 400, numbers["C"], "flights", "k", '["arrivals"]', came)
        for _ in range(0 if fault == 7 else 2 if fault == 8 else 1):
            at_c.deliver(us + 600, "arrivals", "flights", "k", came)
        for broker in (name, "C"):
            if numbers[broker] % 50 == 0:
                lakes[broker].confirm(us + 500, numbers[broker] - 49, numbers[broker])
    for lake in lakes.values():
        lake.flush()
    return {name: str(lake.directory) for name, lake in lakes.items()}, sum(lake.count for lake in lakes.values())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument("--master", default="local[2]")
    parser.add_argument("--memory", default="2g", help="of the driver")
    given = parser.parse_args()
    conf = {"spark.master": given.master, "spark.driver.memory": given.memory, "spark.sql.shuffle.partitions": 8}
    spark = leveret_spark.session("bench-audit", **conf)
    spark.sparkContext.setLogLevel("OFF")
    with tempfile.TemporaryDirectory() as directory:
        began_s = time.monotonic()
        lakes, events = write(Path(directory), given.messages)
        print(f"events: {events}")
        print(f"written_s: {time.monotonic() - began_s:.1f}", flush=True)
        began_s = time.monotonic()
        told = {name: spark.read.parquet(path) for name, path in lakes.items()}
        found = audit(spark, told, table=f"{directory}/table", report=f"{directory}/report.html").figures
        seconds = time.monotonic() - began_s
        print(f"audit_s: {seconds:.1f}")
        print(f"messages_per_second: {given.messages / seconds:.0f}")
        print(f"events_per_second: {events / seconds:.0f}")
    spark.stop()
    faults = {fault: len(range(fault, given.messages, FAULTS)) for fault in (7, 8)}
    expected = (given.messages, faults[7], faults[8], 0)
    seen = (found["published"], found["lost"], found["duplicated"], found["early"])
    print(f"published, lost, duplicated, early: {seen}")
    sys.exit(seen != expected)


if __name__ == "__main__":
    main()
