"""Messages as text for a terminal, and as JSON lines."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Final

from rich.console import Console
from rich.text import Text

from leveret.cli.messages import json_form
from leveret.cli.stream.reading import StreamMessage
from leveret.cli.terminal import plain
from leveret.client.protocol.model import Delivery
from leveret.control.tables import plain_table
from leveret.wire.table import Value

BODY_LINES: Final = 12
"""How many lines of a body are shown by default."""
_HEX_OCTETS: Final = 16
# a JSON body up to this length is shown on one line
_LINE: Final = 68


def as_object(message: StreamMessage) -> dict[str, object]:
    """Return a message as JSON values, with its offset."""
    return {"offset": message.offset} | json_form.as_object(message.delivery, message.headers)


def as_line(message: StreamMessage) -> str:
    """Return a message as JSON on one line."""
    return json_form.as_line(as_object(message))


class MessagePrinter:
    """A printer of messages. On a terminal, long lines and bodies are cut unless `is_full`."""

    def __init__(self, is_full: bool) -> None:
        self._console = Console(highlight=False, soft_wrap=True)
        self._is_short = self._console.is_terminal and not is_full

    def show_in_stream(self, message: StreamMessage) -> None:
        """Print one message of a stream, with its offset in front."""
        self.show(message.delivery, f"{message.offset:>8}", message.headers)

    def show(self, delivery: Delivery, label: str = "", headers: Mapping[str, Value] | None = None) -> None:
        """Print one message: label, time, exchange, key and size; properties; headers (None = its own); body."""
        head = Text(label, style="bold cyan")
        if headers is None:
            headers = delivery.properties.headers or {}
        if delivery.properties.timestamp is not None:
            head.append(f"  {_time(delivery.properties.timestamp)}", style="green")
        head.append(f"  {plain(delivery.exchange) or '(default)'} → {plain(delivery.routing_key)}", style="bold")
        head.append(f"  {len(delivery.body):,} {'octet' if len(delivery.body) == 1 else 'octets'}", style="dim")
        self._print(head)
        shown = json_form.shown_properties(delivery)
        shown.pop("timestamp", None)
        for values in (shown, plain_table(headers)):
            if values:
                line = ", ".join(f"{plain(name)}: {_value(value)}" for name, value in values.items())
                self._print(Text(f"          {line}", style="dim"))
        lines = body_lines(delivery.body)
        first = lines[:BODY_LINES] if self._is_short else lines
        for line in first:
            self._print(Text(f"          {line}"))
        if len(first) < len(lines):
            self._print(Text(f"          … {len(lines) - len(first):,} more lines (--full shows them)", style="dim"))

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
    return plain(value) if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


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
    lines = [plain(line.replace("\t", "    ")) for line in text.splitlines()]
    return _hex_lines(body) if "\0" in text else lines


def _hex_lines(body: bytes) -> list[str]:
    lines = []
    for at in range(0, len(body), _HEX_OCTETS):
        part = body[at : at + _HEX_OCTETS]
        marks = "".join(chr(octet) if 32 <= octet < 127 else "." for octet in part)
        lines.append(f"{at:08x}  {part.hex(' '):<{3 * _HEX_OCTETS - 1}}  {marks}")
    return lines
