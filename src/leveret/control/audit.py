"""The audit log: one log line for each administrative change, whatever the log level.

audit {"user": ..., "address": ..., "via": ..., "command": ..., "arguments": {...}, "outcome": "ok" or error kind}

A line is ASCII JSON, so a caller's text cannot start a new line or send control characters to a terminal. Secrets are
written as "***": the fields that a command declares as secret, passwords and their hashes at any depth, and the
credentials of a URI.
"""

from __future__ import annotations

import json
import logging
import re
from itertools import islice
from typing import Final

import msgspec

from leveret.control.calls.line import Caller
from leveret.control.command import Command

logger = logging.getLogger("leveret.audit")
logger.setLevel(logging.INFO)

HIDDEN: Final = "***"
ITEMS_MAX: Final = 100
"""Items logged of one list or table, for example of a command's message ids."""
TEXT_MAX: Final = 1000
"""Characters logged of one text; definitions may have megabytes."""
_SECRETS: Final = frozenset({"password", "password_hash"})
_CREDENTIALS: Final = re.compile(r"(://)[^/\s]*@")


class Audit:
    """Writes audit lines to the logger "leveret.audit"."""

    def note(self, by: Caller, command: Command, outcome: str) -> None:
        """Log one command that was carried out or refused."""
        arguments = msgspec.to_builtins(command)
        name = arguments.pop("command")
        said = {field: HIDDEN if field in command.secrets else _say(value) for field, value in arguments.items()}
        line = {
            "user": _short(by.user), "address": _short(by.address), "via": _short(by.interface),
            "command": name, "arguments": said, "outcome": outcome,
        }  # fmt: skip
        logger.info("audit %s", json.dumps(line), extra={"fields": {"event": "audit", **line}})


def _say(value: object) -> object:
    """Return the value as it may be logged: secrets replaced, long texts and collections cut."""
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
