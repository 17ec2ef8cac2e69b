"""leveret spark archive: streams and queues into a lake, each message once. docs/guides/spark/archive.md."""

from __future__ import annotations

from typing import Any, Final

import click

from leveret.cli.options import options
from leveret.cli.spark.running import URL, Running, pipeline

_OPTIONS: Final = (
    URL,
    click.option("--stream", "streams", multiple=True, metavar="NAME", help="A stream to archive; may be repeated."),
    click.option("--queue", "queues", multiple=True, metavar="NAME", help="A queue to empty; may be repeated."),
    click.option("--follow", is_flag=True, help="Go on with what comes, until Ctrl-C."),
    click.option("--parse", type=click.Choice(["json"]), help="Bodies as fields; what does not fit is a dead letter."),
    click.option("--exact", is_flag=True, help="Keep the content header, to the octet."),
    click.option("--format", "form", type=click.Choice(["parquet", "delta", "iceberg"]), default="parquet",
                 show_default=True, help="What the lake is made of."),
    click.option("--partition-by", default="day,exchange", show_default=True, metavar="COLUMNS",
                 help="Of day, exchange, source, broker; with commas."),
    click.option("--broker", help="The name of the broker in rows and files.  [default: HOST:PORT]"),
    click.option("--checkpoint", metavar="DIR", help="Spark's checkpoints.  [default: within the lake]"),
    click.option("--dead-letters", metavar="TABLE", help="What can't be parsed.  [default: LAKE_dead_letters]"),
    click.option("--spool-dir", metavar="DIR", help="Through which queues go.  [default: within the lake]"),
    click.option("--option", "settings", multiple=True, metavar="NAME=VALUE",
                 help="An option of the source, as startingOffsets; may be repeated."),
    click.option("--max-rows-per-trigger", type=click.IntRange(1), default=500_000, show_default=True,
                 help="Messages of a micro-batch."),
    click.option("--max-fields", type=click.IntRange(1), default=1000, show_default=True,
                 help="Fields of parsed bodies."),
    click.option("--trigger-s", type=click.FloatRange(0), default=10.0, show_default=True,
                 help="With --follow, seconds from micro-batch to micro-batch."),
    click.option("--compact-only", is_flag=True, help="Read nothing, and merge all small files of the lake."),
    click.option("--compact-files", type=click.IntRange(2), default=8, show_default=True,
                 help="Merge so many small files of about the same size."),
    click.option("--compact-below-mib", type=click.IntRange(0), default=32, show_default=True,
                 help="Which files are small; 0: merge nothing."),
    click.option("--compact-to-mib", type=click.IntRange(1), default=128, show_default=True,
                 help="The size of merged files at most."),
)  # fmt: skip


@click.command("archive")
@click.argument("lake")
@options(*_OPTIONS)
@pipeline
def command(running: Running, lake: str, partition_by: str, settings: tuple[str, ...], **given: Any) -> None:
    """Archive streams and queues into LAKE, a directory or URI, each message once.

    Rows are messages, partitioned by day and exchange. Streams keep their messages, queues are emptied. A run takes
    what there is and ends; the next one goes on from there.
    """
    from leveret.pipelines import archive

    columns = tuple(filter(None, (name.strip() for name in partition_by.split(","))))
    pairs = [text.partition("=") for text in settings]
    if wrong := [name for name, is_there, _ in pairs if not name or not is_there]:
        raise click.UsageError(f"--option {wrong[0]}: an option is NAME=VALUE")
    source = {name: value for name, _, value in pairs}
    running.run(
        lambda spark, reporter, dry_run: archive(
            spark, lake, partition_by=columns, options=source, dry_run=dry_run, reporter=reporter, **given
        )
    )
