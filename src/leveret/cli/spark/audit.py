"""leveret spark audit: the fate of each message on several brokers (docs/guides/spark/audit.md)."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import click

from leveret.cli.spark.running import Running, pipeline

_PAIR = "BROKER=SOURCE"


@click.command("audit")
@click.option("--firehose", "firehoses", multiple=True, metavar=_PAIR,
              help="Name of a broker and its recorded firehose: an AMQP URL or the path of a lake.")
@click.option("--lake", "lakes", multiple=True, metavar=_PAIR, help="Lake with this broker's archived streams.")
@click.option("--broker", "brokers", multiple=True, metavar="BROKER=URL",
              help="Count the messages that wait in this broker's queues.")
@click.option("--table", help="Directory for the result table with one row per message, Parquet.")
@click.option("--report", type=click.Path(dir_okay=False), help="File for the HTML report.")
@click.option("--stream", default="audit", show_default=True, help="Stream that firehoses are recorded into.")
@click.option("--identity", type=click.Choice(["message_id", "content"]), default="message_id", show_default=True,
              help="content: identify messages without an id by their body.")
@click.option("--cluster", "clusters", multiple=True, metavar="CLUSTER=BROKER",
              help="Alias of a broker, if links and its firehose use different names.")
@click.option("--delay-unit-ms", "units", multiple=True, metavar="PREFIX=MS", help="Unit of a custom delay layout.")
@click.option("--since", help="Only messages published at or after this time, ISO 8601; UTC if no zone is given.")
@click.option("--until", help="Only messages published before this time.")
@click.option("--grace-ms", type=click.IntRange(0), default=0, show_default=True,
              help="Ignore messages published or due within this time before the last event.")
@click.option("--record", "recorded", multiple=True, metavar="URL",
              help="Set up this broker to record its firehose into the stream; audit nothing.")
@pipeline
def command(
    running: Running, firehoses: tuple[str, ...], lakes: tuple[str, ...], brokers: tuple[str, ...], stream: str,
    clusters: tuple[str, ...], units: tuple[str, ...], since: str | None, until: str | None, recorded: tuple[str, ...],
    **given: Any,
) -> None:
    """Audit each message: published, confirmed, forwarded, delivered, late, lost or duplicated.

    Each broker records its firehose (--record, once; leveret ctl trace_on); the audit reads all recordings.
    """  # fmt: skip
    if recorded:
        _record(recorded, stream, running.dry_run)
        return
    sources = _pairs("--firehose", firehoses)
    if not sources:
        raise click.UsageError("nothing to audit: give --firehose BROKER=SOURCE")
    kept: dict[str, list[str]] = {}
    for text in lakes:
        name, path = _pair("--lake", text)
        kept.setdefault(name, []).append(path)
    asked, named = _pairs("--broker", brokers), _pairs("--cluster", clusters)
    units_ms = {name: _number("--delay-unit-ms", value) for name, value in _pairs("--delay-unit-ms", units).items()}
    start, stop = _time("--since", since), _time("--until", until)

    from leveret.pipelines.audits.audit import audit

    running.run(
        lambda spark, reporter, is_dry: audit(
            spark, sources, lakes=kept, brokers=asked, stream=stream, clusters=named, delay_units_ms=units_ms,
            since=start, until=stop, dry_run=is_dry, reporter=reporter, **given,
        )
    )  # fmt: skip


def _record(urls: tuple[str, ...], stream: str, is_dry: bool) -> None:
    from leveret.pipelines.audits.recording import bare, record, recorded_by
    from leveret.pipelines.errors import PipelineError

    for url in urls:
        try:
            kind = recorded_by(url) if is_dry else record(url, stream)
        except PipelineError as error:
            raise click.ClickException(str(error)) from None
        will = "would record" if is_dry else "records"
        click.echo(f"{bare(url)} {will} its firehose into {kind} {stream!r} while the firehose is on: leveret ctl "
                   "trace_on")


def _pairs(option: str, texts: tuple[str, ...]) -> dict[str, str]:
    return dict(_pair(option, text) for text in texts)


def _pair(option: str, text: str) -> tuple[str, str]:
    name, is_there, value = text.partition("=")
    if not is_there or not name or not value:
        raise click.UsageError(f"{option} {text}: write NAME=VALUE")
    return name, value


def _number(option: str, text: str) -> int:
    if not text.isdigit() or int(text) == 0:
        raise click.UsageError(f"{option}: {text!r} is not a number of milliseconds")
    return int(text)


def _time(option: str, text: str | None) -> datetime | None:
    if text is None:
        return None
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        raise click.UsageError(f"{option} {text}: write a time such as 2013-01-01T06:00:00") from None
    return time if time.tzinfo is not None else time.replace(tzinfo=UTC)
