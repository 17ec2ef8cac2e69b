"""leveret spark replay: messages of a lake or a stream to an exchange again. docs/guides/spark/replay.md."""

from __future__ import annotations

from pathlib import Path

import click

from leveret.cli.options import options
from leveret.cli.spark.running import URL, Running, pipeline


@click.command("replay")
@pipeline
@options(
    click.option("--lake", help="What leveret spark archive has written."),
    click.option("--stream", help="A stream, or a super stream."),
    click.option("--from", "starting", metavar="PLACE", help="Of a stream: an offset or a time.  [default: earliest]"),
    click.option("--to", "ending", metavar="PLACE", help="Of a stream, exclusively.  [default: what is there now]"),
    click.option(
        "--where", metavar="SQL", help="Which messages: a predicate over the columns of docs/guides/spark/replay.md."
    ),
    click.option("--exchange", required=True, help='Where to; "" is the default exchange.'),
    click.option("--routing-key", help="One for all messages.  [default: each its own]"),
    URL,
    click.option("--source-url", help="The stream's broker.  [default: --url]"),
    click.option("--rate", type=float, help="Messages in a second, at most."),
    click.option("--speed", type=float, help="Original spacing, so many times as fast: 1 as it was."),
    click.option("--name", required=True, help="Of this replay: the value of the marker header."),
    click.option("--marker", default="x-replayed", show_default=True, help="The header that marks what was replayed."),
    click.option("--delivery", type=click.Choice(["auto", "exactly-once", "at-least-once"]), default="auto",
                 show_default=True, help="exactly-once needs a leveret."),
    click.option("--checkpoint", required=True, type=click.Path(file_okay=False, path_type=Path),
                 help="Directory of this replay, which driver and executors share."),
)  # fmt: skip
def command(
    running: Running, lake: str | None, stream: str | None, starting: str | None, ending: str | None,
    where: str | None, exchange: str, routing_key: str | None, url: str, source_url: str | None, rate: float | None,
    speed: float | None, name: str, marker: str, delivery: str, checkpoint: Path,
) -> None:  # fmt: skip
    """Publish messages of a lake or of a stream again: in order, at a pace, marked, and exactly once into leveret.

    Run it again with the same checkpoint after a crash, and it goes on where it was.
    """
    from leveret.pipelines.replays.replay import replay

    running.run(
        lambda spark, reporter, dry_run: replay(
            spark, exchange, name=name, checkpoint=checkpoint, lake=lake, stream=stream, starting=starting,
            ending=ending, where=where, routing_key=routing_key, url=url, source_url=source_url, rate=rate,
            speed=speed, marker=marker, delivery=delivery, dry_run=dry_run, reporter=reporter,
        )
    )  # fmt: skip
