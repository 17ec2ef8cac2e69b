"""Messages as text for a terminal, and as JSON lines."""

from __future__ import annotations

import json
from base64 import b64encode
from dataclasses import fields
from datetime import datetime
from typing import Any, Final

from rich.console import Console
from rich.text import Text

from leveret.cli.stream.reading import StreamMessage
from leveret.control.tables import plain_table, plain_value
from leveret.wire.properties import Properties

BODY_LINES: Final = 12
"""How many lines of a body are shown by default."""
_HEX_OCTETS: Final = 16
# a JSON body up to this length is shown on one line
_LINE: Final = 68
_PROPERTIES: Final = [field.name for field in fields(Properties) if field.name not in ("headers", "timestamp")]


def as_object(message: StreamMessage) -> dict[str, object]:
    """Return a message as JSON values. A body that is not UTF-8 becomes body_base64; missing values are omitted."""
    delivery = message.delivery
    told: dict[str, object] = {
        "offset": message.offset,
        "exchange": delivery.exchange,
        "routing_key": delivery.routing_key,
    }
    properties = _properties(message)
    if delivery.properties.timestamp is not None:
        properties["timestamp"] = delivery.properties.timestamp
    told |= {"properties": properties, "headers": plain_table(message.headers)}
    try:
        return told | {"body": delivery.body.decode()}
    except UnicodeDecodeError:
        return told | {"body_base64": b64encode(delivery.body).decode()}


def _properties(message: StreamMessage) -> dict[str, Any]:
    values = {name: getattr(message.delivery.properties, name) for name in _PROPERTIES}
    return {name: plain_value(value) for name, value in values.items() if value is not None}


def as_line(message: StreamMessage) -> str:
    """Return a message as JSON on one line."""
    return json.dumps(as_object(message), ensure_ascii=False, separators=(",", ":"))


class MessagePrinter:
    """A printer of messages. On a terminal, long lines and bodies are cut unless `is_full`."""

    def __init__(self, is_full: bool) -> None:
        self._console = Console(highlight=False, soft_wrap=True)
        self._is_short = self._console.is_terminal and not is_full

    def show(self, message: StreamMessage) -> None:
        """Print one message: offset, time, exchange, key and size; properties; headers; body."""
        delivery = message.delivery
        head = Text(f"{message.offset:>8}", style="bold cyan")
        if delivery.properties.timestamp is not None:
            head.append(f"  {_time(delivery.properties.timestamp)}", style="green")
        head.append(f"  {_plain(delivery.exchange) or '(default)'} → {_plain(delivery.routing_key)}", style="bold")
        head.append(f"  {len(delivery.body):,} {'octet' if len(delivery.body) == 1 else 'octets'}", style="dim")
        self._print(head)
        for values in (_properties(message), plain_table(message.headers)):
            if values:
                line = ", ".join(f"{_plain(name)}: {_value(value)}" for name, value in values.items())
                self._print(Text(f"          {line}", style="dim"))
        lines = body_lines(delivery.body)
        shown = lines[:BODY_LINES] if self._is_short else lines
        for line in shown:
            self._print(Text(f"          {line}"))
        if len(shown) < len(lines):
            self._print(Text(f"          … {len(lines) - len(shown):,} more lines (--full shows them)", style="dim"))

    def _print(self, text: Text) -> None:
        if self._is_short:
            text.truncate(self._console.width, overflow="ellipsis")
        self._console.print(text)


def _time(seconds: int) -> str:
    try:
        return datetime.fromtimestamp(seconds).astimezone().isoformat(" ", "seconds")
    except (ValueError, OverflowError, OSError):
        return str(seconds)


def _value(value: object) -> str:
    return _plain(value) if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _plain(text: str) -> str:
    """Escape control characters, which could manipulate a terminal."""
    safe = text.encode("utf-8", "backslashreplace").decode()
    return "".join(mark if mark.isprintable() else mark.encode("unicode_escape").decode() for mark in safe)


def body_lines(body: bytes) -> list[str]:
    """Return JSON indented, other text line by line, and binary data in hexadecimal."""
    try:
        text = body.decode()
    except UnicodeDecodeError:
        return _hex_lines(body)
    if text[:1] in ("{", "["):
        try:
            value = json.loads(text)
            text = json.dumps(value, ensure_ascii=False)
            text = text if len(text) <= _LINE else json.dumps(value, indent=2, ensure_ascii=False)
        except (ValueError, RecursionError):
            pass
    lines = [_plain(line.replace("\t", "    ")) for line in text.splitlines()]
    return _hex_lines(body) if "\0" in text else lines


def _hex_lines(body: bytes) -> list[str]:
    lines = []
    for at in range(0, len(body), _HEX_OCTETS):
        part = body[at : at + _HEX_OCTETS]
        marks = "".join(chr(octet) if 32 <= octet < 127 else "." for octet in part)
        lines.append(f"{at:08x}  {part.hex(' '):<{3 * _HEX_OCTETS - 1}}  {marks}")
    return lines
