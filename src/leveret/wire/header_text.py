"""A header's value as text, for rows of tables: the same in Spark's source and in sealed streams."""

from __future__ import annotations

import json
from datetime import datetime


def header_text(value: object) -> str | None:
    """Format a value: strings as they are, true/false, numbers in decimal, times in ISO 8601, tables and lists as JSON.
    """
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, (dict, list)):
        return json.dumps(value, default=header_text, separators=(",", ":"))
    return str(value)
