"""Lines of the log: text for people, or one JSON object each for programs.

No name given by a client can begin another line, act on a terminal or fill the log: control characters are escaped, and
long texts are cut. Code that logs a name puts it into quotes (`leveret.wire.errors.quoted`). A record may have `fields`
that say which connection it is about (`about`); JSON shows them beside the event.
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from leveret.broker.peer import Peer

LEVELS: Final = ("debug", "info", "warning", "error")
FORMATS: Final = ("text", "json")
# C0, DEL, C1, Unicode's line ends, and characters that change the direction of the text after them
_CONTROLS: Final = {
    number: f"\\u{number:04x}" if number > 0xFF else f"\\x{number:02x}"
    for number in (*range(0x20), *range(0x7F, 0xA0), 0x200E, 0x200F, *range(0x2028, 0x202F), *range(0x2066, 0x206A))
} | {0x0A: "\\n", 0x0D: "\\r", 0x09: "\\t"}


# how many characters of an event, and of each line of a traceback, are logged; audit lines have limits of their own
EVENT_CHARS_MAX: Final = 2000
AUDIT: Final = "leveret.audit"


def _short(text: str) -> str:
    return text if len(text) <= EVENT_CHARS_MAX else f"{text[:EVENT_CHARS_MAX]}… ({len(text)} characters)"


def _event(record: logging.LogRecord) -> str:
    return record.getMessage() if record.name == AUDIT else _short(record.getMessage())


class TextFormatter(logging.Formatter):
    """TIME LEVEL EVENT, unless `form` says otherwise; a traceback follows, each line of it indented."""

    def __init__(self, form: str = "%(asctime)s %(levelname)s %(message)s") -> None:
        super().__init__(form)

    def formatMessage(self, record: logging.LogRecord) -> str:
        record.message = _event(record)
        if not record.message.isprintable():
            record.message = record.message.translate(_CONTROLS)
        return super().formatMessage(record)

    def formatException(self, ei: Any) -> str:
        lines = super().formatException(ei).splitlines()
        return "\n".join(f"    {_short(line).translate(_CONTROLS)}" for line in lines)


class JsonFormatter(logging.Formatter):
    """{"time": RFC 3339 in UTC, "level": ..., "logger": ..., "event": ..., FIELDS, "traceback": if there is one}."""

    def format(self, record: logging.LogRecord) -> str:
        instant = datetime.fromtimestamp(record.created, UTC)
        line: dict[str, object] = {
            "time": instant.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "event": _event(record),
        }
        fields: dict[str, object] = getattr(record, "fields", {})
        line |= {name: _short(value) if isinstance(value, str) else value for name, value in fields.items()}
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


FORMATTERS: Final[dict[str, type[logging.Formatter]]] = {"text": TextFormatter, "json": JsonFormatter}


def configure(level: str, form: str) -> None:
    """Log records of at least this level to standard error, in this form. May be called again."""
    # no line says where in the program it comes from, so logging need not find out ("Optimization" in its manual)
    logging._srcfile = None
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False
    root = logging.getLogger()
    if not root.handlers:
        root.addHandler(logging.StreamHandler(sys.stderr))
    root.handlers[0].setFormatter(FORMATTERS[form]())
    root.setLevel(level.upper())


def form() -> str:
    """The current form of lines, one of FORMATS."""
    handlers = logging.getLogger().handlers
    return "json" if handlers and isinstance(handlers[0].formatter, JsonFormatter) else "text"


def about(peer: Peer) -> Mapping[str, object]:
    """The `extra` argument of a logger for an event of this connection."""
    named = {"connection": peer.name, "user": peer.user, "vhost": peer.vhost.name}
    return {"fields": {key: value for key, value in named.items() if value}}
