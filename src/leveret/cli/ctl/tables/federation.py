"""Federation commands: those of RabbitMQ's rabbitmq_federation plugin, and pause and resume."""

from __future__ import annotations

from typing import Final

from leveret.cli.ctl.spec import (
    AnswerTable,
    Given,
    Option,
    PositionalArgument,
    Row,
    Spec,
    TableColumn,
    arguments,
    columns,
)
from leveret.cli.ctl.times import local_time

GROUP: Final = "Federation"
LINK: Final = arguments("link_id:id:links")


def _changed(row: Row) -> str:
    """Return the time of the last change as rabbitmqctl prints it: local time, in seconds."""
    return _since(row)[:19]


def _since(row: Row) -> str:
    """Return the time of the last change; "" for an exchange that can't be federated."""
    return "" if row["since_ms"] is None else local_time(row["since_ms"])


def _or_none(name: str) -> TableColumn:
    """Return a column that is empty if the row has no such field, as in rabbitmqctl."""
    return TableColumn(name, lambda row: row.get(name, ""))


STATUS: Final = (
    _or_none("error"), *columns("exchange", "id"), TableColumn("last_changed", _changed), _or_none("local_connection"),
    TableColumn("queue", lambda row: ""),
    *columns("status", "type", "upstream", "upstream_exchange", "upstream_queue", "uri", "vhost"),
    *columns("policy", "messages"), TableColumn("rate", lambda row: row["messages_details"]["rate"]),
    *columns("lag", "unacknowledged", "looped", "known", "buried", "max_hops", "bindings", "unbound", "reconnects"),
    TableColumn("since", _since), _or_none("warning"),
)  # fmt: skip
"""The columns of rabbitmqctl in its order, and leveret's own."""
FOR_PEOPLE: Final = (
    "id", "vhost", "exchange", "upstream", "status", "since", "uri", "messages", "rate", "lag", "max_hops", "error",
    "warning",
)  # fmt: skip


def _which(given: Given) -> dict[str, str]:
    return {"which": " which are down" if given["only-down"] else ""}


def _on_link(verb: str, doing: str, help: str, is_ours: bool = True) -> Spec:
    return Spec(
        f"{verb}_federation_link", GROUP, help, LINK, banner=f"{doing} federation link {{link_id}} on node {{node}}",
        is_ours=is_ours,
    )  # fmt: skip


SPECS: Final = (
    Spec(
        "federation_status", GROUP, "List federation links, and exchanges that cannot be federated, with the reason.",
        (PositionalArgument("column", "columns", "columns", is_optional=True),),
        (Option("only-down", "only_down", "flag"), Option("vhost", "vhost", metavar="vhost")),
        banner="Listing federation links{which} on node {node}...", words=_which,
        show=AnswerTable(STATUS, tuple(column.name for column in STATUS), FOR_PEOPLE, is_streamed=True),
    ),
    _on_link("restart", "Restarting", "Restart a link immediately.", is_ours=False),
    _on_link("pause", "Pausing", "Disconnect a link until it is resumed; messages wait in the upstream queue."),
    _on_link("resume", "Resuming", "Reconnect a paused link."),
)  # fmt: skip
