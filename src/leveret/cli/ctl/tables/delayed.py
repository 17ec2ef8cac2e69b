"""Commands to list, cancel and retime pending delayed messages. rabbitmqctl has no such commands."""

from __future__ import annotations

from typing import Any, Final

from leveret.cli.ctl.exits import DATA, USAGE, Failed
from leveret.cli.ctl.spec import AnswerTable, DynamicTable, Given, Option, Row, Spec, TableColumn, columns
from leveret.cli.ctl.times import duration, duration_ms, local_time, time_ms
from leveret.control.calls.blocking import ControlClient

GROUP: Final = "Delayed messages"
SINGLE: Final = ("message-id", "header", "parked", "limit")
"""Options that apply to single messages only."""

BY_DESTINATION: Final = (
    *columns("layout", "destination", "messages"),
    TableColumn("next_due", lambda row: local_time(row["next_due_ms"])),
    TableColumn("last_due", lambda row: local_time(row["last_due_ms"])),
    TableColumn("parked", "parked"),
)
BY_LEVEL: Final = columns("layout", "level", "name", "wait_ms", "messages", "parked")
BY_MESSAGE: Final = (
    *columns("message_id", "destination"),
    TableColumn("due", lambda row: local_time(row["due_ms"])),
    TableColumn("remaining", lambda row: duration(row["remaining_ms"])),
    *columns("message_bytes", "layout", "level", "state"),
)


def _table(of: tuple[TableColumn, ...]) -> AnswerTable:
    return AnswerTable(of, tuple(column.name for column in of), is_streamed=True)


SELECTION: Final = (
    Option("destination", "destination", metavar="name"),
    Option("layout", "layout", metavar="prefix"),
    Option("due-after", "", metavar="time"),
    Option("due-before", "", metavar="time"),
    Option("message-id", "", metavar="id"),
    Option("header", "", metavar="name=value"),
    Option("parked", "", "flag"),
)


def _times(given: Given) -> dict[str, object]:
    names = {"due-after": "due_after_ms", "due-before": "due_before_ms"}
    return {field: time_ms(given[name]) for name, field in names.items() if given[name] is not None}


def _selection(given: Given) -> dict[str, object]:
    """Return the fields that select messages."""
    fields = _times(given)
    if given["message-id"] is not None:
        fields["message_id"] = given["message-id"]
    if given["header"] is not None:
        name, is_there, value = given["header"].partition("=")
        if not name or not is_there:
            raise Failed(f"Error:\n'{given['header']}' is not a header: write name=value", DATA)
        fields["headers"] = {name: value}
    if given["parked"]:
        fields["parked"] = True
    return fields


def _view(given: Given) -> str:
    """Return the command that lists destinations, levels or messages, as the options require."""
    is_single = given["messages"] or any(given[name] for name in SINGLE)
    if not given["levels"]:
        return "list_delayed_messages" if is_single else "list_delayed"
    if is_single or any(given[each.name] for each in SELECTION):
        raise Failed("Error (argument validation): --levels cannot be combined with filters", USAGE)
    return "list_delay_levels"


def _listed(given: Given) -> dict[str, object]:
    """Return the fields, including the command itself."""
    view = _view(given)
    fields: dict[str, object] = {"command": view}
    if view == "list_delayed":
        fields |= _times(given)
    if view == "list_delayed_messages":
        fields |= _selection(given) | ({"limit": given["limit"]} if given["limit"] is not None else {})
    return fields


def _ask(command: str, fields: dict[str, object], data_dir: str, timeout_s: float | None) -> Any:
    with ControlClient(data_dir, timeout_s=timeout_s) as control:
        return control.call(str(fields.pop("command")), **fields)


def _rows(answer: Any, given: Given) -> DynamicTable:
    tables = {"list_delayed": BY_DESTINATION, "list_delay_levels": BY_LEVEL, "list_delayed_messages": BY_MESSAGE}
    rows: list[Row] = answer
    return DynamicTable(_table(tables[_view(given)]), rows)


def _retimed(given: Given) -> dict[str, object]:
    fields = _selection(given)
    if given["at"] is not None:
        fields["at_ms"] = time_ms(given["at"])
    if given["in"] is not None:
        fields["in_ms"] = duration_ms(given["in"])
    return fields


def _cancelled(answer: Any, given: Given) -> str:
    return f"{answer['message_count']} messages {'would be cancelled' if given['dry-run'] else 'cancelled'}"


def _moved(answer: Any, given: Given) -> str:
    what = "would be" if given["dry-run"] else "are"
    when = f" {what} due at {local_time(answer['due_ms'])}" if answer["due_ms"] is not None else " match"
    return f"{answer['message_count']} messages{when}"


CHANGE: Final = (*SELECTION, Option("all", "all", "flag"), Option("dry-run", "dry_run", "flag"))

SPECS: Final = (
    Spec(
        "delayed", GROUP, "List delayed messages by destination, by level, or one by one, without consuming them.",
        options=(
            Option("levels", "", "flag"), Option("messages", "", "flag"), *SELECTION, Option("limit", "", "int", "n"),
        ),
        takes_vhost=True, banner="Listing delayed messages for vhost {vhost} ...", call="list_delayed",
        fields=_listed, via=_ask, show=_rows, is_ours=True,
    ),
    Spec(
        "cancel_delayed", GROUP, "Cancel all delayed messages that match, or none.", options=CHANGE, takes_vhost=True,
        banner="Cancelling delayed messages in vhost {vhost} ...", fields=_selection, show=_cancelled, is_ours=True,
    ),
    Spec(
        "retime_delayed", GROUP, "Change the due time of all delayed messages that match, or of none.",
        options=(*CHANGE, Option("at", "", metavar="time"), Option("in", "", metavar="duration")), takes_vhost=True,
        banner="Changing the due time of delayed messages in vhost {vhost} ...", fields=_retimed, show=_moved,
        is_ours=True,
    ),
)  # fmt: skip
