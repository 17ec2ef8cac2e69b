"""leveret consume and leveret get: messages of a queue, or of an exchange as they pass, on the terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Final

import click

from leveret.cli.messages.json_form import as_line, as_object
from leveret.cli.messages.running import ARGUMENTS, EXIT_CODES, EXIT_INTERRUPTED, EXIT_NOT_DONE, WHERE, run
from leveret.cli.options import options
from leveret.cli.terminal import counted, fail
from leveret.client import BlockingConnection
from leveret.client.blocking_channel import BlockingChannel
from leveret.client.protocol.model import Delivery
from leveret.wire.table import Value

PREFETCH: Final = 200
SHOWN: Final = (
    click.option("-v", "--verbose", is_flag=True, help="Show exchange, routing key, properties and headers, too."),
    click.option("--json", "as_json", is_flag=True, help="Print each message as a line of JSON, which `leveret publish "
                                                         "--json-lines` reads."),
)  # fmt: skip


def _shower(is_verbose: bool, as_json: bool) -> Callable[[Delivery], None]:
    if as_json:
        return lambda delivery: click.echo(as_line(as_object(delivery)))
    if is_verbose:
        from leveret.cli.stream.shown import MessagePrinter

        return MessagePrinter(is_full=True).show
    return lambda delivery: click.echo(delivery.body)


@click.command(epilog=f"Exit codes: {EXIT_CODES}.")
@click.argument("queue", required=False)
@click.option("--exchange", "-e", metavar="NAME", help="Read what is published to this exchange from now on, by a "
                                                       "queue that ends with the command.")  # fmt: skip
@click.option("--key", "-k", "keys", multiple=True, metavar="KEY", help="With --exchange: bind with this routing key. "
                                                                        "May be repeated.  [default: #]")  # fmt: skip
@click.option("-n", "--count", type=click.IntRange(1), help="Stop after this number of messages.")
@click.option("--timeout-s", type=click.FloatRange(min=0), help="Stop when no message arrives for this long.")
@click.option("--prefetch", type=click.IntRange(1, 65535), default=PREFETCH, show_default=True,
              help="How many messages may be on their way.")  # fmt: skip
@ARGUMENTS
@options(*SHOWN)
@WHERE
def consume(
    queue: str | None, exchange: str | None, keys: tuple[str, ...], count: int | None, timeout_s: float | None,
    prefetch: int, arguments: tuple[tuple[str, Value], ...], verbose: bool, as_json: bool, url: str,
) -> None:  # fmt: skip
    """Print the messages of QUEUE, or with --exchange what passes there, until Ctrl-C.

    A message is acknowledged when it has been printed. For a stream say --argument x-stream-offset=first.
    """
    if (queue is None) == (exchange is None):
        raise click.UsageError("say which messages: a QUEUE, or --exchange NAME")
    if keys and exchange is None:
        raise click.UsageError("--key is for --exchange")
    show = _shower(verbose, as_json)

    def work(_: BlockingConnection, channel: BlockingChannel) -> int:
        source = queue if exchange is None else _tap(channel, exchange, keys or ("#",))
        assert source is not None
        channel.consume(source, prefetch_count=min(prefetch, count or prefetch), arguments=dict(arguments))
        done = 0
        while count is None or done < count:
            delivery = channel.next_delivery(timeout_s)
            if delivery is None:
                break
            show(delivery)
            sys.stdout.flush()
            channel.ack(delivery.delivery_tag)
            done += 1
        channel.flush()
        return done

    try:
        done = run(url, "consume", work)
    except SystemExit as ended:
        if ended.code == EXIT_INTERRUPTED and count is None:
            sys.exit(0)  # Ctrl-C is how it is meant to end
        raise
    if count is not None and done < count:
        fail(EXIT_NOT_DONE, f"{counted(done, 'message')} came, of {count:,}: none for {timeout_s:g} s")


def _tap(channel: BlockingChannel, exchange: str, keys: tuple[str, ...]) -> str:
    """Declare a queue that gets what passes an exchange; returns its name."""
    name = channel.declare_queue("", durable=False, exclusive=True, auto_delete=True).name
    for key in keys:
        channel.bind_queue(name, exchange, key)
    return name


@click.command(epilog=f"Exit codes: {EXIT_CODES}.")
@click.argument("queue")
@click.option("-n", "--count", type=click.IntRange(1), default=1, show_default=True, help="Maximum number of messages.")
@click.option("--requeue", is_flag=True, help="Put them back; later readers see them as redelivered.")
@options(*SHOWN)
@WHERE
def get(queue: str, count: int, requeue: bool, verbose: bool, as_json: bool, url: str) -> None:
    """Take the first messages of QUEUE, and print them. Exit code 1 if it is empty."""
    show = _shower(verbose, as_json)

    def work(_: BlockingConnection, channel: BlockingChannel) -> int:
        taken = 0
        last = 0
        while taken < count and (delivery := channel.get(queue)) is not None:
            show(delivery)
            sys.stdout.flush()
            if requeue:
                last = delivery.delivery_tag
            else:
                channel.ack(delivery.delivery_tag)
            taken += 1
        if last:
            channel.nack(last, multiple=True)
        channel.flush()
        return taken

    if not run(url, "get", work):
        fail(EXIT_NOT_DONE, f"queue '{queue}' is empty")
