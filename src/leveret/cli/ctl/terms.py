"""Formatting of values as in rabbitmqctl's tables: Erlang terms on one line."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Final

# control characters that move a terminal's cursor or start a new line, and characters that change the text direction; a
# tab is kept, as in RabbitMQ
_HIDDEN: Final = re.compile("[\x00-\x08\x0a-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")


def printable(text: str) -> str:
    """Escape control characters: names come from clients and are shown on operators' terminals."""
    return _HIDDEN.sub(lambda found: found.group().encode("unicode_escape").decode(), text)


def json_text(value: object, separators: tuple[str, str] | None = None) -> str:
    """Return JSON with all characters unescaped, except those that `printable` escapes."""
    text = json.dumps(value, ensure_ascii=False, separators=separators)
    return _HIDDEN.sub(lambda found: f"\\u{ord(found.group()):04x}", text)


def cell(value: object) -> str:
    """Format a table cell: text unchanged, a table of arguments as [{"key",value},…], a list as [a, b]."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return printable(value)
    if isinstance(value, Mapping):
        return term(value)
    if isinstance(value, list | tuple):
        return f"[{', '.join(cell(item) for item in value)}]"
    return str(value)


def term(value: object) -> str:
    """Format a value within a term, where text is quoted."""
    if value is None:
        return "undefined"
    if isinstance(value, str):
        text = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\t", "\\t")
        return '"' + printable(text) + '"'
    if isinstance(value, Mapping):
        return "[" + ",".join(f"{{{term(key)},{term(item)}}}" for key, item in value.items()) + "]"
    if isinstance(value, list | tuple):
        return "[" + ",".join(term(item) for item in value) + "]"
    return cell(value)
