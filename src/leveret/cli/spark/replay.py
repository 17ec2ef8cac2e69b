"""leveret spark replay: publishes messages of a lake or a stream again. See docs/guides/spark/replay.md."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from leveret.cli.options import options
from leveret.cli.spark.running import Running, pipeline
from leveret.cli.urls import URL


@click.command("replay")
@pipeline
@options(
    click.option("--lake", help="Lake written by leveret spark archive."),
    click.option("--stream", help="Stream or super stream."),
    click.option("--from", "starting", metavar="PLACE", help="Start of a stream: an offset or a time.  [default: "
                                                             "earliest]"),
    click.option("--to", "ending", metavar="PLACE", help="End of a stream, exclusive.  [default: the current end]"),
    click.option("--where", metavar="SQL", help="Select messages: a predicate over the columns in "
                                                              "docs/guides/spark/replay.md."),
    click.option("--exchange", required=True, help='Target exchange; "" is the default exchange.'),
    click.option("--routing-key", help="Routing key for all messages.  [default: the original keys]"),
    URL,
    click.option("--source-url", help="URL of the stream's broker.  [default: --url]"),
    click.option("--rate", type=float, help="Maximum messages per second."),
    click.option("--speed", type=float, help="Original timing, sped up by this factor; 1: original speed."),
    click.option("--name", required=True, help="Id of this replay, the value of the marker header."),
    click.option("--marker", default="x-replayed", show_default=True, help="Header that marks replayed messages."),
    click.option("--delivery", type=click.Choice(["auto", "exactly-once", "at-least-once"]), default="auto",
                 show_default=True, help="exactly-once requires leveret as target."),
    click.option("--checkpoint", required=True, type=click.Path(file_okay=False, path_type=Path),
                 help="Checkpoint directory of this replay, shared by driver and executors."),
)  # fmt: skip
def command(running: Running, exchange: str, **given: Any) -> None:
    """Republish messages of a lake or stream: in order, at a chosen pace, marked, exactly once into leveret.

    After a crash, run it again with the same checkpoint to continue.
    """
    from leveret.pipelines.replays.replay import replay

    running.run(
        lambda spark, reporter, dry_run: replay(spark, exchange, dry_run=dry_run, reporter=reporter, **given),
        given["url"],
    )
