"""leveret spark schedule: turns a table of reminders into delayed messages. See docs/guides/spark/schedule.md."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from leveret.cli.spark.running import Running, pairs, pipeline
from leveret.cli.urls import URL
from leveret.pipelines.summary import Summary

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from leveret.pipelines.reporter import Reporter


@click.command("schedule")
@click.argument("table", required=False)
@click.option("--name", required=True, help="Name of the schedule, which identifies its messages.")
@click.option("--state", required=True, metavar="DIR", help="Directory for its state, as Parquet.")
@click.option("--format", "form", default="parquet", show_default=True, help="parquet, csv, json, orc or jdbc.")
@click.option("--option", "given", multiple=True, metavar="NAME=VALUE", help="Option of Spark's reader; may be "
                                                                             "repeated.")
@click.option("--id-column", default="id", show_default=True, help="Column with the id of each reminder, used as "
                                                                   "message id.")
@click.option("--at-column", help="Column with the due times.")
@click.option("--delay-column", help="Column with delays in seconds, counted from the first run that reads the row, "
                                     "in place of times.")
@click.option("--queue", help="Queue for all reminders.")
@click.option("--queue-column", help="Column with the queue of each reminder, in place of --queue.")
@click.option("--body-column", help="Column with the bodies.  [default: all columns, as JSON]")
@click.option("--headers-column", help="Column with additional headers: a map, or JSON.")
@click.option("--content-type", help="Content type of the messages.  [default: application/json, without "
                                     "--body-column]")
@click.option("--past", type=click.Choice(["send", "skip"]), default="send", show_default=True,
              help="What to do with new reminders that are overdue.")  # fmt: skip
@click.option("--api-url", envvar="LEVERET_API_URL", help="URL of leveret's HTTP API, to change pending messages.")
@click.option("--cancel", is_flag=True, help="Cancel all pending messages of this schedule.")
@URL
@pipeline
def command(
    running: Running, *, table: str | None, given: tuple[str, ...], id_column: str, at_column: str | None,
    delay_column: str | None, queue: str | None, queue_column: str | None, body_column: str | None,
    headers_column: str | None, **rest: Any,
) -> None:  # fmt: skip
    """Schedule the reminders in TABLE as delayed messages; later runs apply changes to the table.

    A second run over the same table changes nothing, even if the first was interrupted.
    """
    options = pairs("--option", given)

    def job(spark: SparkSession, reporter: Reporter, dry_run: bool) -> Summary:
        from leveret.pipelines.schedules.reminders import Columns
        from leveret.pipelines.schedules.schedule import schedule

        columns = Columns(id_column, at_column, delay_column, queue_column, queue, body_column, headers_column)
        return schedule(spark, table, columns=columns, options=options, dry_run=dry_run, reporter=reporter, **rest)

    running.run(job, rest["url"])
