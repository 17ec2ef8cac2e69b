"""Read-only commands that explain routing and browse queues. rabbitmqctl has no such commands."""

from __future__ import annotations

import json
from typing import Any, Final

from leveret.cli.ctl.exits import DATA, Failed
from leveret.cli.ctl.explained import tree
from leveret.cli.ctl.spec import AnswerTable, DynamicTable, Given, Option, Spec, TableColumn, arguments
from leveret.cli.ctl.times import local_time
from leveret.cli.terminal import plain

GROUP: Final = "Looking"
# how many characters of a body a table shows
TEXT_MAX: Final = 60


def _question(given: Given) -> dict[str, object]:
    """Return the message's properties from --properties and --headers (JSON) and --expiration."""
    properties: dict[str, Any] = _object(given, "properties")
    if given["headers"] is not None:
        properties["headers"] = properties.get("headers", {}) | _object(given, "headers")
    if given["expiration"] is not None:
        properties["expiration"] = given["expiration"]
    return {"properties": properties} if properties else {}


def _object(given: Given, name: str) -> dict[str, Any]:
    text = given[name]
    try:
        value = {} if text is None else json.loads(text)
    except ValueError as error:
        raise Failed(f"Error:\n--{name} is not valid JSON: {error}", DATA) from None
    if not isinstance(value, dict):
        raise Failed(f'Error:\n--{name} must be an object, such as {{"colour": "red"}}', DATA)
    return value


def _holder(row: Any) -> str:
    held = row.get("held_by")
    return "" if held is None else f"{plain(held['connection'])} ({held['channel']})"


def _time(name: str) -> TableColumn:
    return TableColumn(name.removesuffix("_ms"), lambda row: "" if row.get(name) is None else local_time(row[name]))


def _body(row: Any) -> str:
    text = plain(row["payload"])
    is_whole = len(text) <= TEXT_MAX and row["payload_encoding"] == "string"
    return text if is_whole else f"{text[:TEXT_MAX]}…"


COLUMNS: Final = (
    TableColumn("offset", "offset"),
    TableColumn("place", "place"),
    TableColumn("exchange", lambda row: plain(row["exchange"])),
    TableColumn("routing_key", lambda row: plain(row["routing_key"])),
    TableColumn("redelivered", "redelivered"),
    TableColumn("payload_bytes", "payload_bytes"),
    TableColumn("message_id", "properties.message_id"),
    TableColumn("held_by", _holder),
    _time("expires_ms"),
    _time("arrived_ms"),
    TableColumn("payload", _body),
)
SHOWN: Final = ("offset", "routing_key", "redelivered", "payload_bytes", "message_id", "held_by", "payload")
MESSAGES: Final = AnswerTable(COLUMNS, tuple(column.name for column in COLUMNS), SHOWN, is_streamed=True)


def _messages(answer: Any, given: Given) -> DynamicTable:
    return DynamicTable(MESSAGES, answer["items"])


SPECS: Final = (
    Spec(
        "explain_route", GROUP, "Explain which queues a message would reach, and why; nothing is published.",
        arguments("exchange routing_key?"),
        (
            Option("headers", "", metavar="json"), Option("properties", "", metavar="json"),
            Option("expiration", "", metavar="ms"), Option("destination", "destination", metavar="queue"),
            Option("user", "user", metavar="user"), Option("payload-bytes", "payload_bytes", "int", "n"),
            Option("mandatory", "mandatory", "flag"), Option("limit", "limit", "int", "n"),
            Option("depth", "depth", "int", "n"),
        ),
        takes_vhost=True, banner="Explaining the route from exchange {exchange} in vhost {vhost} ...",
        fields=_question, show=tree, is_ours=True,
    ),
    Spec(
        "browse_queue", GROUP, "Show the messages of a queue or stream without consuming them.",
        arguments("queue::queues"),
        (
            Option("state", "state", metavar="ready|unacked|parked"), Option("offset", "offset", "int", "n"),
            Option("limit", "limit", "int", "n"), Option("text", "text", metavar="text"),
            Option("truncate", "truncate", "int", "bytes"),
        ),
        takes_vhost=True, banner="Messages of queue {queue} in vhost {vhost} ...", show=_messages, is_ours=True,
    ),
)  # fmt: skip
