"""leveret stream tail | head | count | export: reads messages of a stream, of leveret or RabbitMQ, over AMQP.

Exit codes: 0 done; 1 the stream does not exist; 2 wrong options; 3 the broker is unreachable or refuses; 130
interrupted.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final, TypeVar

import click

from leveret.cli.ctl.exits import Failed
from leveret.cli.ctl.times import duration_ms
from leveret.cli.options import CommandGroup, options
from leveret.cli.stream.export import ExportRefused, ExportTarget, JsonLines, LinesFile, ParquetDirectory
from leveret.cli.stream.reading import NotAStream, StreamBrowser, StreamMessage, Where
from leveret.cli.stream.shown import MessagePrinter, as_line
from leveret.cli.terminal import counted, fail
from leveret.cli.urls import CHECKED_URL
from leveret.client import BlockingConnection, ChannelClosed, ClientError
from leveret.client.protocol.url import parse_url
from leveret.wire.errors import NOT_FOUND, PRECONDITION_FAILED

EXIT_NO_STREAM: Final = 1
EXIT_BROKER: Final = 3
EXIT_BROKEN_OFF: Final = 130
Result = TypeVar("Result")


def _since(text: str) -> datetime:
    """Parse a time, or a duration before now such as 5m, 1h30m, 2d. Raises click.BadParameter."""
    try:
        return datetime.now(UTC) - timedelta(milliseconds=duration_ms(text))
    except (Failed, OverflowError):
        pass
    try:
        return datetime.fromisoformat(text).astimezone(UTC)
    except (ValueError, OverflowError):
        raise click.BadParameter(f"'{text}' is neither a duration (5m, 1h30m, 2d) nor a time") from None


WHERE: Final = (click.argument("name"), CHECKED_URL)
SINCE: Final = click.option(
    "--since", type=_since, metavar="AGO", help="Only messages of the last 5m, 1h30m, 2d; or since a time."
)
FILTER: Final = click.option("--filter", "value", metavar="VALUE", help="Only messages with this "
                                                                        "x-stream-filter-value.")
SHOWN: Final = (
    FILTER,
    click.option("--full", is_flag=True, help="Do not shorten long bodies and lines."),
    click.option("--json", "as_json", is_flag=True, help="Print each message as a line of JSON."),
)


@click.group(cls=CommandGroup)
def command() -> None:
    """Read a stream of leveret or RabbitMQ. Reading removes nothing.

    Exit codes: 0 done, 1 no such stream, 2 wrong options, 3 no connection or refused, 130 interrupted.
    """


@command.command()
@options(*WHERE)
@click.option("-n", "count", type=click.IntRange(min=0), default=20, show_default=True, help="Number of messages.")
@click.option("-f", "--follow", is_flag=True, help="Keep reading new messages until Ctrl-C.")
@SINCE
@options(*SHOWN)
def tail(
    name: str, url: str, count: int, follow: bool, since: datetime | None, value: str | None, full: bool, as_json: bool
) -> None:
    """Show the last messages. With --since: all messages since that time, whatever -n says."""
    show = _shower(full, as_json)

    def work(reader: StreamBrowser) -> None:
        end = reader.end()
        if end is not None and since is not None:
            for message in reader.messages(since, end):
                if message.is_wanted(value):
                    show(message)
        elif end is not None and count:
            for message in reader.last(count, end, value):
                show(message)
        if follow:
            for message in reader.following(0 if end is None else end, value):
                show(message)

    _run(url, name, work, 0 if follow else EXIT_BROKEN_OFF)


@command.command()
@options(*WHERE)
@click.option("-n", "count", type=click.IntRange(min=0), default=20, show_default=True, help="Number of messages.")
@click.option("--offset", type=click.IntRange(min=0), help="Start at this offset instead of the first.")
@SINCE
@options(*SHOWN)
def head(
    name: str, url: str, count: int, offset: int | None, since: datetime | None, value: str | None, full: bool,
    as_json: bool,
) -> None:  # fmt: skip
    """Show the first messages, or the first ones from an offset or a time."""
    show, begin = _shower(full, as_json), _begin(offset, since)

    def work(reader: StreamBrowser) -> None:
        left = count
        for message in _all(reader, begin) if left else ():
            if message.is_wanted(value):
                show(message)
                left -= 1
                if left == 0:
                    return

    _run(url, name, work)


@command.command("count")
@options(*WHERE)
@SINCE
def count_(name: str, url: str, since: datetime | None) -> None:
    """Count the messages by their offsets. With --since, RabbitMQ counts whole chunks."""

    def work(reader: StreamBrowser) -> int:
        first, end = reader.first(), reader.end()
        if first is None or end is None:
            return 0
        return end - (first if since is None else reader.since(since, end))

    click.echo(_run(url, name, work))


@command.command()
@options(*WHERE)
@click.option("--offset", type=click.IntRange(min=0), help="Start at this offset instead of the first.")
@SINCE
@FILTER
@click.option("--format", "kind", type=click.Choice(["jsonl", "parquet"]), default="jsonl", show_default=True,
              help="Lines of JSON, or Parquet with the columns of a stream's tables (leveret[lake]).")  # fmt: skip
@click.option("-o", "--output", type=click.Path(path_type=Path), metavar="PATH",
              help="Output file, or directory for Parquet.  [default: standard output]")  # fmt: skip
@click.option("--resume", is_flag=True, help="Continue after the last message in the output.")
def export(
    name: str, url: str, offset: int | None, since: datetime | None, value: str | None, kind: str,
    output: Path | None, resume: bool,
) -> None:  # fmt: skip
    """Write the stream's current messages to files or to standard output."""
    begin = _begin(offset, since)
    if output is None and (kind == "parquet" or resume):
        raise click.UsageError("choose one with -o: " + ("Parquet is written to a directory" if kind == "parquet" else
                                                       "--resume needs an output file"))  # fmt: skip
    try:
        _run(url, name, lambda reader: _export(reader, begin, value, _sink(kind, output, resume)))
    except ExportRefused as refused:
        raise click.UsageError(str(refused)) from None
    except OSError as error:
        if isinstance(error, BrokenPipeError):
            raise  # the reader of our output has gone; click handles that
        raise click.UsageError(f"{error.filename or output}: {error.strerror or error}") from None


def _sink(kind: str, output: Path | None, is_resumed: bool) -> ExportTarget:
    if output is None:
        return JsonLines(sys.stdout)
    return LinesFile(output, is_resumed) if kind == "jsonl" else ParquetDirectory(output, is_resumed)


def _export(reader: StreamBrowser, begin: Where, value: str | None, sink: ExportTarget) -> None:
    from leveret.cli.stream.bar import Bar

    if sink.next_offset is not None:
        begin = sink.next_offset
    count = 0
    try:
        end = reader.end()
        if end is not None and not (isinstance(begin, int) and begin >= end):
            with Bar(end) as bar:
                for message in reader.messages(begin, end):
                    if message.is_wanted(value):
                        sink.write(message)
                        count += 1
                    bar.show(message.offset)
    finally:
        sink.close()
    click.echo(f"{counted(count, 'message')} written", err=True)


def _begin(offset: int | None, since: datetime | None) -> Where:
    if offset is not None and since is not None:
        raise click.UsageError("--offset and --since exclude each other")
    return since or ("first" if offset is None else offset)


def _all(reader: StreamBrowser, begin: Where) -> Iterator[StreamMessage]:
    """Return the existing messages from `begin` on."""
    end = reader.end()
    if end is None or (isinstance(begin, int) and begin >= end):
        return iter(())
    return reader.messages(begin, end)


def _shower(is_full: bool, as_json: bool) -> Callable[[StreamMessage], None]:
    if as_json:
        return lambda message: print(as_line(message), flush=True)
    return MessagePrinter(is_full).show_in_stream


def _run(url: str, name: str, work: Callable[[StreamBrowser], Result], broken_off: int = EXIT_BROKEN_OFF) -> Result:
    """Run the work on a connection of its own; errors are reported on one line, with an exit code."""
    address = parse_url(url)
    where = f"virtual host '{address.vhost}' of {address.host}:{address.port}"
    try:
        with BlockingConnection(url, name="leveret stream", reconnect=False) as connection:
            return work(StreamBrowser(connection, name))
    except KeyboardInterrupt:
        sys.exit(broken_off)
    except ChannelClosed as error:
        if error.code == NOT_FOUND:
            fail(EXIT_NO_STREAM, f"stream '{name}' does not exist in {where}")
        if error.code == PRECONDITION_FAILED and "x-stream-offset" in error.text:
            fail(EXIT_NO_STREAM, _not_a_stream(name, where))
        fail(EXIT_BROKER, str(error))
    except NotAStream:
        fail(EXIT_NO_STREAM, _not_a_stream(name, where))
    except ClientError as error:
        fail(EXIT_BROKER, str(error))


def _not_a_stream(name: str, where: str) -> str:
    return f"'{name}' in {where} is a queue, not a stream: reading would remove its messages"
