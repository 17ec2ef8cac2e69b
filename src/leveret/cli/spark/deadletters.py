"""leveret spark deadletters: what dead-lettered and why, and a selection on its way again.
docs/guides/spark/deadletters.md."""

from __future__ import annotations

from pathlib import Path

import click

from leveret.cli.options import options
from leveret.cli.spark.running import URL, Running, pipeline


@click.command("deadletters")
@pipeline
@options(
    click.option("--queue", "queues", multiple=True, help="A queue of dead letters; may be repeated."),
    click.option("--lake", help="Archived dead letters, to look at."),
    URL,
    click.option(
        "--where", metavar="SQL", help="Which: a predicate over the columns of docs/guides/spark/deadletters.md."
    ),
    click.option("--group-by", default="reason,queue,exception", show_default=True, help="Columns of the table."),
    click.option("--exception-header", help="A header of yours that says what went wrong."),
    click.option("--limit", type=click.IntRange(1), help="Look at so many messages of a queue at most."),
    click.option("--send-back", is_flag=True, help="Each to the queue in which it died first, as if new."),
    click.option("--to", "to_exchange", metavar="EXCHANGE", help="To this exchange, with the first routing keys."),
    click.option("--to-queue", metavar="QUEUE", help="To this queue."),
    click.option("--checkpoint", type=click.Path(file_okay=False, path_type=Path),
                 help="Where messages are while they are moved; driver and executors share it."),
    click.option("--batch", "batch_rows", type=click.IntRange(1), default=50_000, show_default=True,
                 help="Messages of a micro-batch."),
)  # fmt: skip
def command(
    running: Running, queues: tuple[str, ...], lake: str | None, url: str, where: str | None, group_by: str,
    exception_header: str | None, limit: int | None, send_back: bool, to_exchange: str | None, to_queue: str | None,
    checkpoint: Path | None, batch_rows: int,
) -> None:  # fmt: skip
    """What dead-lettered, why, how often, and when; sends a selection back, or elsewhere.

    Looking leaves all messages where they are. Run it again with the same checkpoint after a crash.
    """
    from leveret.pipelines.dead.deadletters import deadletters
    from leveret.pipelines.dead.letters import EXCEPTION

    running.run(
        lambda spark, reporter, dry_run: deadletters(
            spark, queues, lake=lake, url=url, where=where, group_by=[name.strip() for name in group_by.split(",")],
            exception_header=exception_header or EXCEPTION, send_back=send_back, to_exchange=to_exchange,
            to_queue=to_queue, checkpoint=checkpoint, messages_max=limit, batch_rows=batch_rows, dry_run=dry_run,
            reporter=reporter,
        )
    )  # fmt: skip
