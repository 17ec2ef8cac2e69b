"""leveret errors list | retry | move: failed messages of endpoints, on leveret or on RabbitMQ.

Exit codes: 0 done; 1 some chosen messages stayed in the queue or do not exist; 2 wrong options; 3 the broker is
unreachable or refuses; 4 the queue does not exist.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any, Final

import click

from leveret.cli.options import CommandGroup, options
from leveret.client import ChannelClosed, ClientError, Connection, connect
from leveret.endpoint.error_queue import Choice, ErrorQueue, FailedMessage, Outcome
from leveret.wire.errors import NOT_FOUND

EXIT_STAYED: Final = 1
EXIT_BROKER: Final = 3
EXIT_NO_QUEUE: Final = 4

URL_DEFAULT: Final = "amqp://guest:guest@localhost:5672/"
WHERE: Final = (
    click.option("--url", envvar="LEVERET_URL", default=URL_DEFAULT, show_default=True, help="URL of the broker."),
    click.option("--queue", default="error", show_default=True, help="The error queue."),
)
WHICH: Final = (
    click.option("--id", "ids", multiple=True, metavar="ID", help="Select the message with this id; may be repeated."),
    click.option("--matching", metavar="TEXT", help="Select messages with TEXT in exception, message type or "
                                                    "endpoint."),
    click.option("--all", "everything", is_flag=True, help="Select all messages in the queue."),
    click.option("--json", "as_json", is_flag=True, help="Print the result as JSON."),
)


@click.group(cls=CommandGroup)
def command() -> None:
    """Failed messages of endpoints: list, retry or move them.

    Works on every AMQP 0-9-1 broker. Listed messages return to their places in the queue, but are
    unavailable while the command runs; a quorum queue counts a delivery for each.
    """


@command.command("list")
@options(*WHERE)
@click.option("--id", "ids", multiple=True, metavar="ID", help="Only this message, in full; may be repeated.")
@click.option("--matching", metavar="TEXT", help="Only those with TEXT in exception, message type or endpoint.")
@click.option("--single", is_flag=True, help="List single messages instead of counts by kind.")
@click.option("--full", is_flag=True, help="Include headers, stack trace and body.")
@click.option("--json", "as_json", is_flag=True, help="Print an array of JSON objects.")
def list_(
    url: str, queue: str, ids: tuple[str, ...], matching: str | None, single: bool, full: bool, as_json: bool
) -> None:
    """Count failed messages by exception, endpoint and message type."""
    choice = _choice(ids, matching)
    is_full = full or bool(ids)
    found: list[FailedMessage] = []
    groups: Counter[tuple[str, str, str]] = Counter()

    async def collect(errors: ErrorQueue) -> None:
        async for message in errors.messages():
            if not choice(message):
                continue
            if is_full or single:
                found.append(message if is_full else message.in_short())
            else:  # counted at once, as a queue may hold more messages than fit into memory
                groups[message.exception_type, message.endpoint, message.message_type] += 1

    _run(url, queue, collect)
    if is_full or single:
        _print_single(found, is_full, as_json)
    else:
        _print_groups(groups, as_json)
    if ids and len(found) < len(set(ids)):
        missing = set(ids) - {message.message_id for message in found}
        _fail(EXIT_STAYED, f"not in {queue}: {', '.join(sorted(missing))}")


@command.command()
@options(*WHERE, *WHICH)
def retry(url: str, queue: str, ids: tuple[str, ...], matching: str | None, everything: bool, as_json: bool) -> None:
    """Send messages back to the queues in which they failed, for another attempt."""
    choice = _required(ids, matching, everything)
    _report(_run(url, queue, lambda errors: errors.retry(choice)), ids, as_json, "sent back")


@command.command()
@options(*WHERE, *WHICH)
@click.option("--to", "target", required=True, metavar="QUEUE", help="Target queue; it must exist.")
def move(
    url: str, queue: str, ids: tuple[str, ...], matching: str | None, everything: bool, as_json: bool, target: str
) -> None:
    """Move messages to another queue, with all details of their failure."""
    choice = _required(ids, matching, everything)
    if target == queue:
        raise click.UsageError("--to names the queue that the messages are already in")
    _report(_run(url, queue, lambda errors: errors.move(choice, target)), ids, as_json, f"moved to {target}")


def _choice(ids: tuple[str, ...], matching: str | None) -> Choice:
    return lambda message: (not ids or message.message_id in ids) and (matching is None or message.matches(matching))


def _required(ids: tuple[str, ...], matching: str | None, everything: bool) -> Choice:
    if everything == bool(ids or matching is not None):
        raise click.UsageError("select messages with one of --id, --matching or --all")
    return _choice(ids, matching)


def _run(url: str, queue: str, work: Callable[[ErrorQueue], Awaitable[Any]]) -> Any:
    """Run the coroutine on a connection of its own; errors are reported on one line."""

    async def connected() -> Any:
        connection: Connection = await connect(url, name="leveret errors", reconnect=False)
        async with connection:
            return await work(ErrorQueue(connection, queue))

    try:
        return asyncio.run(connected())
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    except ChannelClosed as error:
        _fail(EXIT_NO_QUEUE if error.code == NOT_FOUND else EXIT_BROKER, str(error))
    except ClientError as error:
        _fail(EXIT_BROKER, str(error))


def _report(outcome: Outcome, ids: tuple[str, ...], as_json: bool, done: str) -> None:
    if as_json:
        print(json.dumps({"sent": outcome.sent, "stayed": outcome.stayed}))
    else:
        print(f"{outcome.sent} {'message' if outcome.sent == 1 else 'messages'} {done}")
    for message_id, reason in outcome.stayed.items():
        print(_shown(f"{message_id or '(no id)'} stays: {reason}"), file=sys.stderr)
    missing = len(set(ids)) - outcome.sent - len(outcome.stayed)
    if ids and missing > 0:
        _fail(EXIT_STAYED, f"{missing} of the given ids are not in the queue")
    if outcome.stayed:
        sys.exit(EXIT_STAYED)


def _print_groups(groups: Counter[tuple[str, str, str]], as_json: bool) -> None:
    rows = [
        {"messages": count, "exception": exception, "endpoint": endpoint, "message_type": kind}
        for (exception, endpoint, kind), count in groups.most_common()
    ]
    if as_json:
        print(json.dumps(rows, indent=1))
        return
    _print_rows(("messages", "exception", "endpoint", "message type"), [list(map(str, row.values())) for row in rows])
    print(f"{groups.total()} {'message' if groups.total() == 1 else 'messages'}")


def _print_single(found: list[FailedMessage], full: bool, as_json: bool) -> None:
    if as_json:
        print(json.dumps([_as_object(message, full) for message in found], indent=1))
        return
    if not full:
        rows = [
            [one.message_id, _time(one), one.endpoint, one.message_type, f"{one.exception_type}: {_line(one)}"]
            for one in found
        ]
        _print_rows(("id", "failed at", "endpoint", "message type", "exception"), rows)
        return
    for message in found:
        for name, value in sorted(message.headers.items()):
            if value != message.stack:
                print(_shown(f"{name}: {value}"))
        print(_shown(f"\n{message.stack.rstrip()}\n\n{message.body.decode('utf-8', 'backslashreplace')}\n"))


def _as_object(message: FailedMessage, full: bool) -> dict[str, object]:
    told: dict[str, object] = {
        "message_id": message.message_id,
        "failed_at": message.failed_at.isoformat() if message.failed_at else None,
        "endpoint": message.endpoint,
        "message_type": message.message_type,
        "exception": message.exception_type,
        "exception_message": message.exception_message,
        "immediate_retries": message.immediate_retries,
        "delayed_retries": message.delayed_retries,
    }
    if full:
        told |= {"headers": message.headers, "body": message.body.decode("utf-8", "backslashreplace")}
    return told


def _print_rows(names: tuple[str, ...], rows: list[list[str]]) -> None:
    lines = [list(names), *([_shown(cell) for cell in row] for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(names))]
    for row in lines:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def _shown(text: str) -> str:
    """Escape control characters, and characters that the terminal can't encode."""
    plain = text.encode("utf-8", "backslashreplace").decode()
    return "".join(mark if mark.isprintable() or mark in "\n\t" else f"\\x{ord(mark):02x}" for mark in plain)


def _time(message: FailedMessage) -> str:
    return message.failed_at.isoformat(" ", "seconds") if message.failed_at else ""


def _line(message: FailedMessage) -> str:
    """Return the first line of the exception's text."""
    return next(iter(message.exception_message.splitlines()), "")[:100]


def _fail(status: int, text: str) -> None:
    print(text, file=sys.stderr)
    sys.exit(status)
