"""Federation links, as the commands of RabbitMQ's plugin rabbitmq_federation have them, and their pause."""

from __future__ import annotations

from typing import Final

from leveret.cli.ctl.spec import Argument, Column, Given, Option, Row, Spec, Table, arguments, columns
from leveret.cli.ctl.times import local_time

GROUP: Final = "Federation"
LINK: Final = arguments("link_id:id:links")


def _changed(row: Row) -> str:
    """As rabbitmqctl has it: local, to the second."""
    return _since(row)[:19]


def _since(row: Row) -> str:
    """An exchange that can't be federated never could be."""
    return "" if row["since_ms"] is None else local_time(row["since_ms"])


def _rate(row: Row) -> object:
    return row["messages_details"]["rate"]


def _or_none(name: str) -> Column:
    """A column that rabbitmqctl leaves empty where there is nothing to say."""
    return Column(name, lambda row: row.get(name, ""))


STATUS: Final = (
    _or_none("error"), *columns("exchange", "id"), Column("last_changed", _changed), _or_none("local_connection"),
    Column("queue", lambda row: ""),
    *columns("status", "type", "upstream", "upstream_exchange", "upstream_queue", "uri", "vhost"),
    *columns("policy", "messages"), Column("rate", _rate),
    *columns("lag", "unacknowledged", "looped", "known", "buried", "max_hops", "bindings", "unbound", "reconnects"),
    Column("since", _since), _or_none("warning"),
)  # fmt: skip
"""rabbitmqctl's, in its order, and ours."""
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
        (Argument("column", "columns", "columns", is_optional=True),),
        (Option("only-down", "only_down", "flag"), Option("vhost", "vhost", metavar="vhost")),
        banner="Listing federation links{which} on node {node}...", words=_which,
        show=Table(STATUS, tuple(column.name for column in STATUS), FOR_PEOPLE, is_streamed=True),
    ),
    _on_link("restart", "Restarting", "Restart a link immediately.", is_ours=False),
    _on_link("pause", "Pausing", "Disconnect a link until it is resumed; messages wait in the upstream queue."),
    _on_link("resume", "Resuming", "Reconnect a paused link."),
)  # fmt: skip
