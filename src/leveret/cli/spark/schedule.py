"""leveret spark schedule: a table of reminders into delayed messages. docs/guides/spark/schedule.md."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from leveret.cli.spark.running import URL, Running, pipeline
from leveret.pipelines.summary import Summary

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from leveret.pipelines.reporter import Reporter


@click.command("schedule")
@click.argument("table", required=False)
@click.option("--name", required=True, help="The schedule's name, by which its messages are known.")
@click.option("--state", required=True, metavar="DIR", help="Where it remembers what is scheduled, as Parquet.")
@click.option("--format", "form", default="parquet", show_default=True, help="parquet, csv, json, orc or jdbc.")
@click.option("--option", "given", multiple=True, metavar="NAME=VALUE", help="For Spark's reader; may be repeated.")
@click.option("--id-column", default="id", show_default=True, help="Has the id of each reminder, its message id.")
@click.option("--at-column", help="Has the times.")
@click.option("--delay-column", help="Has delays in seconds, from the run that sees the row first, instead.")
@click.option("--queue", help="The queue of all reminders.")
@click.option("--queue-column", help="Has the queue of each, instead.")
@click.option("--body-column", help="Has the bodies.  [default: all columns, as JSON]")
@click.option("--headers-column", help="Has more headers: a map, or JSON.")
@click.option("--content-type", help="Of the messages.  [default: application/json, without --body-column]")
@click.option("--past", type=click.Choice(["send", "skip"]), default="send", show_default=True,
              help="New reminders whose time is past.")  # fmt: skip
@click.option("--api-url", envvar="LEVERET_API_URL", help="leveret's HTTP API, to change what is pending.")
@click.option("--cancel", is_flag=True, help="Take back all that is pending of this schedule.")
@URL
@pipeline
def command(
    running: Running,
    *,
    table: str | None,
    given: tuple[str, ...],
    id_column: str,
    at_column: str | None,
    delay_column: str | None,
    queue: str | None,
    queue_column: str | None,
    body_column: str | None,
    headers_column: str | None,
    **rest: Any,
) -> None:
    """Schedule the reminders of TABLE as delayed messages; run again, follow what has changed in it.

    A second run over the same table changes nothing, whatever has interrupted the first.
    """
    options = {}
    for text in given:
        name, is_there, value = text.partition("=")
        if not name or not is_there:
            raise click.UsageError(f"--option {text}: an option is NAME=VALUE")
        options[name] = value

    def job(spark: SparkSession, reporter: Reporter, dry_run: bool) -> Summary:
        from leveret.pipelines.schedules.reminders import Columns
        from leveret.pipelines.schedules.schedule import schedule

        columns = Columns(id_column, at_column, delay_column, queue_column, queue, body_column, headers_column)
        return schedule(spark, table, columns=columns, options=options, dry_run=dry_run, reporter=reporter, **rest)

    running.run(job)
