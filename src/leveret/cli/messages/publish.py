"""leveret publish and leveret request: messages from the shell, confirmed, and questions with their answers."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from time import monotonic
from typing import Final

import click

from leveret.cli.messages import outgoing
from leveret.cli.messages.json_form import OutgoingMessage, as_line, as_object
from leveret.cli.messages.running import AS_JSON, EXIT_CODES, WHERE, pair, run, told
from leveret.cli.options import options
from leveret.cli.terminal import counted
from leveret.client import BlockingConnection
from leveret.client.blocking_channel import BlockingChannel
from leveret.wire.properties import Properties
from leveret.wire.table import Value

BODY: Final = (
    click.argument("bodies", nargs=-1, metavar="[BODY]..."),
    click.option("--file", "files", type=click.Path(path_type=Path), multiple=True, metavar="PATH",
                 help="The content of a file is one message. May be repeated."),
)  # fmt: skip
PROPERTIES: Final = (
    click.option("--header", "headers", type=pair, multiple=True, metavar="NAME=VALUE",
                 help="A header: NAME=TEXT, or NAME:=JSON. May be repeated."),
    click.option("--content-type", metavar="TYPE", help="Such as application/json."),
    click.option("--message-id", metavar="ID"),
    click.option("--correlation-id", metavar="ID"),
    click.option("--type", "kind", metavar="NAME", help="The property type."),
    click.option("--app-id", metavar="NAME"),
    click.option("--priority", type=click.IntRange(0, 255)),
    click.option("--expiration-ms", type=click.IntRange(0), help="The message's time to live."),
    click.option("--transient", is_flag=True, help="Do not store the message on disk."),
)  # fmt: skip
EXCHANGE: Final = click.option(
    "--exchange", "-e", default="", metavar="NAME",
    help="Exchange to publish to.  [default: the default exchange, which routes to the queue named KEY]",
)  # fmt: skip


def _properties(
    headers: tuple[tuple[str, Value], ...], content_type: str | None, message_id: str | None,
    correlation_id: str | None, kind: str | None, app_id: str | None, priority: int | None,
    expiration_ms: int | None, transient: bool, reply_to: str | None = None,
) -> Properties:  # fmt: skip
    return Properties(
        content_type=content_type, headers=dict(headers) or None, delivery_mode=1 if transient else 2,
        priority=priority, correlation_id=correlation_id, reply_to=reply_to,
        expiration=None if expiration_ms is None else str(expiration_ms), message_id=message_id, type=kind,
        app_id=app_id,
    )  # fmt: skip


@click.command(epilog=f"Exit codes: {EXIT_CODES}.")
@click.argument("key", required=False)
@options(*BODY)
@click.option("--lines", is_flag=True, help="Each line of standard input is a message.")
@click.option("--json-lines", is_flag=True, help="Each line of standard input is a message in JSON, with its exchange, "
                                                 "routing_key, properties and headers, as `leveret consume --json` "
                                                 "prints it.")  # fmt: skip
@EXCHANGE
@options(*PROPERTIES)
@click.option("--reply-to", metavar="QUEUE")
@click.option("-n", "--count", type=click.IntRange(1), default=1, help="Number of times to publish each message.")
@click.option("--template", is_flag=True, help=f"Replace {outgoing.TEMPLATES} in body, key and properties.")
@click.option("--optional", is_flag=True, help="Accept messages that no queue takes (mandatory=false).")
@click.option("--no-confirm", is_flag=True, help="Do not wait until the broker has stored the messages.")
@AS_JSON
@WHERE
def publish(
    key: str | None, bodies: tuple[str, ...], files: tuple[Path, ...], lines: bool, json_lines: bool, exchange: str,
    count: int, template: bool, optional: bool, no_confirm: bool, as_json: bool, url: str, **values: object,
) -> None:  # fmt: skip
    """Publish messages with the routing key KEY, and wait until the broker confirms them.

    A message's body is an argument, a file, a line of standard input, or all of standard input.
    """
    if key is None and not json_lines:
        raise click.UsageError("Missing argument 'KEY': the routing key, or with --json-lines one in each line")
    messages = outgoing.read(bodies, files, lines, json_lines, _properties(**values))  # type: ignore[arg-type]
    default = key or ""

    def work(_: BlockingConnection, channel: BlockingChannel) -> int:
        if not no_confirm:
            channel.confirm_select()
        done = 0
        for message in _shown(_keyed(messages, default, json_lines and key is None), count, template):
            where = exchange if message.exchange is None else message.exchange
            channel.publish(message.body, where, message.routing_key or "", message.properties, not optional)
            done += 1
        if no_confirm:
            channel.flush()
        else:
            channel.wait_for_confirms()
        return done

    began_s = monotonic()
    done = run(url, "publish", work)
    took_s = monotonic() - began_s
    how = "published" if no_confirm else "published and confirmed"
    result = {"published": done, "confirmed": 0 if no_confirm else done, "took_s": round(took_s, 3)}
    told(f"{counted(done, 'message')} {how} in {took_s:.2f} s", as_json, result)


def _keyed(messages: Iterable[OutgoingMessage], key: str, needs_own: bool) -> Iterator[OutgoingMessage]:
    """Give a routing key to each message that has none."""
    for message in messages:
        if message.routing_key is None and needs_own:
            raise click.UsageError("a line has no routing_key, and there is no KEY for it")
        yield message if message.routing_key is not None else message._replace(routing_key=key)


def _shown(messages: Iterator[OutgoingMessage], count: int, is_template: bool) -> Iterator[OutgoingMessage]:
    """Return the messages, with a bar on a terminal while many of them are on their way."""
    if count == 1 or not sys.stderr.isatty():
        yield from outgoing.repeated(messages, count, is_template)
        return
    from rich import progress

    from leveret.cli.bars import Bars

    found = list(messages)
    with Bars(progress.BarColumn(), progress.MofNCompleteColumn(), progress.TimeRemainingColumn()) as bars:
        yield from bars.track(outgoing.repeated(found, count, is_template), len(found) * count)


@click.command(epilog=f"Exit codes: {EXIT_CODES}.")
@click.argument("key")
@options(*BODY)
@EXCHANGE
@options(*PROPERTIES)
@click.option("--timeout-s", type=click.FloatRange(min=0, min_open=True), default=30.0, show_default=True,
              help="How long each request waits for its reply.")  # fmt: skip
@AS_JSON
@WHERE
def request(
    key: str, bodies: tuple[str, ...], files: tuple[Path, ...], exchange: str, timeout_s: float, as_json: bool,
    url: str, **values: object,
) -> None:  # fmt: skip
    """Send requests with the routing key KEY, and print the replies, which come by direct reply-to."""
    messages = list(outgoing.read(bodies, files, False, False, _properties(**values)))  # type: ignore[arg-type]

    def work(connection: BlockingConnection, _: BlockingChannel) -> None:
        with connection.rpc() as rpc:
            for message in messages:
                reply = rpc.call(message.body, exchange, key, message.properties, timeout_s, mandatory=True)
                with contextlib.suppress(BrokenPipeError):
                    if as_json:
                        click.echo(as_line(as_object(reply)))
                    else:
                        click.echo(reply.body)

    run(url, "request", work)
