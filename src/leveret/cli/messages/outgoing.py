"""The messages that a command publishes: from arguments, files or standard input, with templates and counts."""

from __future__ import annotations

import secrets
import sys
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import click

from leveret.cli.messages.json_form import OutgoingMessage, from_line, present
from leveret.wire.properties import Properties

TEMPLATES: Final = "{{count}}, {{time}}, {{id}} and {{random}}"


def read(
    bodies: tuple[str, ...], files: tuple[Path, ...], lines: bool, json_lines: bool, properties: Properties
) -> Iterable[OutgoingMessage]:
    """Return the messages of a command line, one by one. Raises click.UsageError.

    Args:
        bodies: Contents given as arguments.
        files: Files that are one message each.
        lines: Each line of standard input is a message.
        json_lines: Each line of standard input is a message in JSON.
        properties: Those that the options say; lines of JSON have their own, which count first.
    """
    if bool(bodies) + bool(files) + lines + json_lines > 1:
        raise click.UsageError("choose one of BODY, --file, --lines and --json-lines")
    if bodies:
        return [OutgoingMessage(body.encode("utf-8", "surrogateescape"), properties) for body in bodies]
    if files:
        return (OutgoingMessage(_content(path), properties) for path in files)
    if lines:
        return (OutgoingMessage(line.rstrip(b"\r\n"), properties) for line in sys.stdin.buffer)
    if json_lines:
        return _json_lines(properties)
    if sys.stdin.isatty():
        raise click.UsageError("there is no body: give one as an argument, by --file, or on standard input")
    return [OutgoingMessage(sys.stdin.buffer.read(), properties)]


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise click.UsageError(f"{path}: {error.strerror or error}") from None


def _json_lines(given: Properties) -> Iterator[OutgoingMessage]:
    for number, line in enumerate(sys.stdin, 1):
        if not line.strip():
            continue
        try:
            message = from_line(line)
        except ValueError as error:
            before = "; the lines before it are published" if number > 1 else ""
            raise click.UsageError(f"line {number} of standard input: {error}{before}") from None
        own = present(message.properties)
        if given.headers or message.properties.headers:
            own["headers"] = {**(given.headers or {}), **(message.properties.headers or {})}
        yield message._replace(properties=replace(given, **own))


def repeated(messages: Iterable[OutgoingMessage], count: int, is_template: bool) -> Iterator[OutgoingMessage]:
    """Return each message `count` times; in templates TEMPLATES are replaced in body, key and properties of text."""
    number = 0
    for message in messages:
        for _ in range(count):
            number += 1
            yield _filled(message, number) if is_template else message


def _filled(message: OutgoingMessage, number: int) -> OutgoingMessage:
    values = {
        "{{count}}": str(number),
        "{{time}}": datetime.now(UTC).isoformat(timespec="milliseconds"),
        "{{id}}": str(uuid.uuid4()),
        "{{random}}": str(secrets.randbelow(1_000_000_000)),
    }

    def fill(text: str) -> str:
        for name, value in values.items():
            text = text.replace(name, value)
        return text

    given = present(message.properties)
    texts: dict[str, Any] = {name: fill(value) for name, value in given.items() if isinstance(value, str)}
    body = message.body
    for name, value in values.items():
        body = body.replace(name.encode(), value.encode())
    key = None if message.routing_key is None else fill(message.routing_key)
    return OutgoingMessage(body, replace(message.properties, **texts), message.exchange, key)
