"""leveret spark NAME: Spark pipelines, imported when they are called (docs/guides/spark/pipelines.md)."""

from __future__ import annotations

import importlib
from typing import Final

import click

from leveret.cli.options import CommandGroup

# pipeline -> one line of help; the command is `command` in this package's module of the same name
PIPELINES: Final[dict[str, str]] = {
    "archive": "Archive streams and queues to Parquet, Delta or Iceberg, exactly once.",
    "replay": "Republish messages of a lake or stream to an exchange, in order, at a chosen pace.",
    "schedule": "Turn a table of reminders into delayed messages; later runs apply changes.",
    "enrich": "Enrich a stream with replies of a service and with other streams.",
    "audit": "Audit the messages of several brokers: losses, duplicates, lateness, a report.",
    "deadletters": "Report dead letters, their reasons and counts; send a selection back.",
}
TOOLS: Final[dict[str, str]] = {
    "submit": "Run a pipeline or your own job on a cluster with spark-submit.",
    "zip": "Write the parts of leveret that executors need into one file.",
}


class SparkGroup(CommandGroup):
    """The commands of `leveret spark`: pipelines, then tools."""

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
