"""Who changed what, from where: a line in the log for each administrative action, whatever the log's level.

audit {"user": ..., "address": ..., "via": ..., "command": ..., "arguments": {...}, "outcome": "ok" or why not}

A line is JSON in ASCII, so nothing that a caller says can begin another line or act on a terminal. Secrets are "***":
what a command calls so, passwords and their hashes wherever they stand, and what a URI has before its host.
"""

from __future__ import annotations

import json
import logging
import re
from itertools import islice
from typing import Final

import msgspec

from leveret.control.command import Command
from leveret.control.line import Caller

logger = logging.getLogger("leveret.audit")
logger.setLevel(logging.INFO)

HIDDEN: Final = "***"
ITEMS_MAX: Final = 100
"""Of a list or table, as that of the message ids of a command."""
TEXT_MAX: Final = 1000
"""Characters of one text that are said; definitions may have megabytes."""
_SECRETS: Final = frozenset({"password", "password_hash"})
_CREDENTIALS: Final = re.compile(r"(://)[^/\s]*@")


class Audit:
    """Writes to the logger "leveret.audit"."""

    def note(self, by: Caller, command: Command, outcome: str) -> None:
        """One command that was carried out or refused."""
        arguments = msgspec.to_builtins(command)
        name = arguments.pop("command")
        said = {field: HIDDEN if field in command.secrets else _say(value) for field, value in arguments.items()}
        line = {
            "user": _short(by.user), "address": _short(by.address), "via": _short(by.interface),
            "command": name, "arguments": said, "outcome": outcome,
        }  # fmt: skip
        logger.info("audit %s", json.dumps(line), extra={"fields": {"event": "audit", **line}})


def _say(value: object) -> object:
    """What may be said of a value."""
    if isinstance(value, str):
        return _short(_CREDENTIALS.sub(rf"\1{HIDDEN}@", value))
    if isinstance(value, dict):
        some = islice(value.items(), ITEMS_MAX)
        said = {key: HIDDEN if key in _SECRETS else _say(item) for key, item in some}
        return said if len(value) <= ITEMS_MAX else said | {"…": f"{len(value)} items"}
    if isinstance(value, list | tuple):
        items = [_say(item) for item in value[:ITEMS_MAX]]
        return items if len(value) <= ITEMS_MAX else [*items, f"… ({len(value)} items)"]
    return value


def _short(text: str) -> str:
    return text if len(text) <= TEXT_MAX else f"{text[:TEXT_MAX]}… ({len(text)} characters)"
