"""leveret spark NAME: pipelines on Spark, imported when they are called (docs/guides/spark/pipelines.md)."""

from __future__ import annotations

import importlib
from typing import Final

import click

from leveret.cli.options import Group

# pipeline -> one line of help; its module in this package has the name of the pipeline, and `command` in it
PIPELINES: Final[dict[str, str]] = {
    "archive": "Streams and queues into a lake of Parquet, Delta or Iceberg, exactly once.",
    "replay": "Messages of a lake or a stream to an exchange again, in order, at a pace of your choice.",
    "schedule": "A table of reminders into delayed messages; run again, it follows the table.",
    "enrich": "A stream, with what a service and other streams know, into a stream.",
    "audit": "What became of each message on several brokers: losses, duplicates, lateness, a report.",
    "deadletters": "What dead-lettered, why and how often; sends a selection back.",
}
TOOLS: Final[dict[str, str]] = {
    "submit": "Run a pipeline, or a job of yours, by spark-submit on a cluster.",
    "zip": "Write what executors need of leveret into one file.",
}


class SparkGroup(Group):
    """The pipelines, then the tools."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*PIPELINES, *TOOLS]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in PIPELINES and cmd_name not in TOOLS:
            return None
        command = importlib.import_module(f"leveret.cli.spark.{cmd_name}").command
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for title, commands in (("Pipelines", PIPELINES), ("Tools", TOOLS)):
            with formatter.section(title):
                formatter.write_dl(list(commands.items()))


@click.group("spark", cls=SparkGroup)
def command() -> None:
    """Pipelines on Spark: queues and streams to tables, and tables to messages (docs/guides/spark/pipelines.md)."""
