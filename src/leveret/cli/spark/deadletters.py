"""leveret spark deadletters: analyses dead letters, and sends selected ones back. See
docs/guides/spark/deadletters.md."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from leveret.cli.options import options
from leveret.cli.spark.running import Running, pipeline
from leveret.cli.urls import URL


@click.command("deadletters")
@pipeline
@options(
    click.option("--queue", "queues", multiple=True, help="Queue of dead letters; may be repeated."),
    click.option("--lake", help="Lake of archived dead letters, read only."),
    URL,
    click.option("--where", metavar="SQL", help="Select dead letters: a predicate over the columns in "
                                                "docs/guides/spark/deadletters.md."),
    click.option("--group-by", default="reason,queue,exception", show_default=True, help="Group the table by these "
                                                                                         "columns."),
    click.option("--exception-header", help="Custom header that holds the error."),
    click.option("--limit", "messages_max", type=click.IntRange(1), help="Read at most this many messages per queue."),
    click.option("--send-back", is_flag=True, help="Send each to the queue in which it died first, as a new message."),
    click.option("--to", "to_exchange", metavar="EXCHANGE", help="Send to this exchange, with the original routing "
                                                                 "keys."),
    click.option("--to-queue", metavar="QUEUE", help="Send to this queue."),
    click.option("--checkpoint", type=click.Path(file_okay=False, path_type=Path),
                 help="Spool directory for messages in transit, shared by driver and executors."),
    click.option("--batch", "batch_rows", type=click.IntRange(1), default=50_000, show_default=True,
                 help="Maximum number of messages per micro-batch."),
)  # fmt: skip
def command(
    running: Running, queues: tuple[str, ...], group_by: str, exception_header: str | None, **given: Any
) -> None:
    """Report dead letters by reason, count and time; send a selection back, or elsewhere.

    Reporting leaves all messages in their queues. After a crash, run it again with the same checkpoint.
    """
    from leveret.pipelines.dead.deadletters import deadletters
    from leveret.pipelines.dead.letters import EXCEPTION

    running.run(
        lambda spark, reporter, dry_run: deadletters(
            spark, queues, group_by=[name.strip() for name in group_by.split(",")],
            exception_header=exception_header or EXCEPTION, dry_run=dry_run, reporter=reporter, **given,
        ),
        given["url"],
    )  # fmt: skip
