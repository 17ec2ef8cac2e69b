"""How long a table of reminders takes: to schedule, to compare again unchanged, to change some times, to cancel all.

    .venv/bin/python bench/pipeline_schedule.py --reminders 1000000 --edits 10000

Starts a broker. Prints a line for each figure.
"""

import argparse
import tempfile

from pyspark.sql import SparkSession

from leveret import core
from leveret.client import BlockingConnection
from leveret.pipelines import Reporter, Summary, schedule
from leveret.pipelines.schedules.reminders import Columns
from leveret.spark import session
from leveret.testing.processes import LeveretProcess

DAYS = 30
QUEUE = "reminders"


class Said(Reporter):
    def phase(self, text: str) -> None:
        print(f"  {text}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--reminders", type=int, default=1_000_000)
    parser.add_argument("--edits", type=int, default=10_000)
    parser.add_argument("--master", default="local[*]")
    given = parser.parse_args()
    print(f"core: {core()}")
    spark = session("bench", **{"spark.master": given.master, "spark.driver.memory": "2g"})
    spark.sparkContext.setLogLevel("ERROR")
    with LeveretProcess(admin=True) as broker, tempfile.TemporaryDirectory() as directory:
        with BlockingConnection(broker.url, reconnect=False) as connection:
            connection.channel().declare_queue(QUEUE)
        broker.said("the HTTP API is on")
        run(spark, broker, directory, given.reminders, given.edits)
    spark.stop()


def run(spark: SparkSession, broker: LeveretProcess, directory: str, count: int, edits: int) -> None:
    made = spark.range(count).selectExpr(
        "concat('reminder-', id) as id",
        f"timestamp_seconds(unix_timestamp() + 86400 + (id * 7919) % {DAYS * 86400}) as at",
        "cast(id as string) as customer", "'your flight leaves soon' as text",
    )  # fmt: skip
    made.write.parquet(f"{directory}/table")
    table = spark.read.parquet(f"{directory}/table")
    every = max(1, count // edits)
    is_edited = f"cast(customer as bigint) % {every} = 0"
    table.selectExpr("id", f"if({is_edited}, at + interval 1 hour, at) as at", "customer", "text").write.parquet(
        f"{directory}/edited"
    )

    def once(what: str, path: str | None, **options: bool) -> None:
        columns = Columns(at="at", queue_name=QUEUE)
        found = schedule(
            spark, path, name="bench", state=f"{directory}/state", columns=columns, url=broker.url,
            api_url=broker.admin_url, reporter=Said(), **options,
        )  # fmt: skip
        print(f"{what}: {told(found)}", flush=True)

    once(f"{count:,} reminders over {DAYS} days", f"{directory}/table")
    once("the same table again", f"{directory}/table")
    once(f"about {edits:,} with another time", f"{directory}/edited")
    once("all taken back", None, cancel=True)


def told(summary: Summary) -> str:
    return ", ".join(
        f"{name} {value:,}" for name, value in summary.figures.items() if value and not isinstance(value, str)
    )


if __name__ == "__main__":
    main()
