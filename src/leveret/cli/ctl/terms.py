"""Values as rabbitmqctl prints them in its tables: Erlang's terms, on one line."""

from __future__ import annotations

from collections.abc import Mapping


def cell(value: object) -> str:
    """A value in a table: text as it is, a table of arguments as [{"key",value},…], a list as [a, b]."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return value
    if isinstance(value, Mapping):
        return term(value)
    if isinstance(value, list | tuple):
        return f"[{', '.join(cell(item) for item in value)}]"
    return str(value)


def term(value: object) -> str:
    """A value inside of a term, where texts have quotation marks."""
    if value is None:
        return "undefined"
    if isinstance(value, str):
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\t", "\\t") + '"'
    if isinstance(value, Mapping):
        return "[" + ",".join(f"{{{term(key)},{term(item)}}}" for key, item in value.items()) + "]"
    if isinstance(value, list | tuple):
        return "[" + ",".join(term(item) for item in value) + "]"
    return cell(value)
