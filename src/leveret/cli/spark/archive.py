"""leveret spark archive: archives streams and queues into a lake, each message once. See
docs/guides/spark/archive.md."""

from __future__ import annotations

from typing import Any, Final

import click

from leveret.cli.options import options
from leveret.cli.spark.running import Running, pairs, pipeline
from leveret.cli.urls import URL

_OPTIONS: Final = (
    URL,
    click.option("--stream", "streams", multiple=True, metavar="NAME", help="Stream to archive; may be repeated."),
    click.option("--queue", "queues", multiple=True, metavar="NAME", help="Queue to empty; may be repeated."),
    click.option("--follow", is_flag=True, help="Keep archiving new messages until Ctrl-C."),
    click.option("--parse", type=click.Choice(["json"]), help="Parse bodies into columns; messages that do not "
                                                              "match become dead letters."),
    click.option("--exact", is_flag=True, help="Keep the content header unchanged, as bytes."),
    click.option("--format", "form", type=click.Choice(["parquet", "delta", "iceberg"]), default="parquet",
                 show_default=True, help="Format of the lake."),
    click.option("--partition-by", default="day,exchange", show_default=True, metavar="COLUMNS",
                 help="Partition columns, separated by commas: day, exchange, source, broker."),
    click.option("--broker", help="Name of the broker in rows and files.  [default: HOST:PORT]"),
    click.option("--checkpoint", metavar="DIR", help="Directory of Spark's checkpoints.  [default: within the lake]"),
    click.option("--dead-letters", metavar="TABLE", help="Directory for messages that cannot be parsed.  [default: "
                                                         "LAKE_dead_letters]"),
    click.option("--spool-dir", metavar="DIR", help="Spool directory for messages of queues.  [default: within the "
                                                    "lake]"),
    click.option("--option", "settings", multiple=True, metavar="NAME=VALUE",
                 help="Option of the source, such as startingOffsets; may be repeated."),
    click.option("--max-rows-per-trigger", type=click.IntRange(1), default=500_000, show_default=True,
                 help="Maximum number of messages per micro-batch."),
    click.option("--max-fields", type=click.IntRange(1), default=1000, show_default=True,
                 help="Schema of the parsed bodies."),
    click.option("--trigger-s", type=click.FloatRange(0), default=10.0, show_default=True,
                 help="With --follow: seconds between micro-batches."),
    click.option("--compact-only", is_flag=True, help="Archive nothing; only merge all small files of the lake."),
    click.option("--compact-files", type=click.IntRange(2), default=8, show_default=True,
                 help="Number of small files of similar size that are merged into one."),
    click.option("--compact-below-mib", type=click.IntRange(0), default=32, show_default=True,
                 help="Files below this size are small; 0: merge nothing."),
    click.option("--compact-to-mib", type=click.IntRange(1), default=128, show_default=True,
                 help="Maximum size of merged files."),
)  # fmt: skip


@click.command("archive")
@click.argument("lake")
@options(*_OPTIONS)
@pipeline
def command(running: Running, lake: str, partition_by: str, settings: tuple[str, ...], **given: Any) -> None:
    """Archive streams and queues into LAKE, a directory or URI, exactly once.

    Each row is a message; rows are partitioned by day and exchange. Streams keep their messages, queues are emptied. A
    run archives the available messages and exits; the next run continues from there.
    """
    from leveret.pipelines import archive

    columns = tuple(filter(None, (name.strip() for name in partition_by.split(","))))
    source = pairs("--option", settings)
    running.run(
        lambda spark, reporter, dry_run: archive(
            spark, lake, partition_by=columns, options=source, dry_run=dry_run, reporter=reporter, **given
        ),
        given["url"],
    )
