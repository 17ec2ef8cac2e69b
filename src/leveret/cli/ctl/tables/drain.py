"""The command that moves a queue's messages to another broker. rabbitmqctl has no such command."""

from __future__ import annotations

from typing import Any, Final
from urllib.parse import urlsplit

from leveret.cli.ctl.exits import USAGE, Failed
from leveret.cli.ctl.spec import Given, Option, Spec, arguments


def _asked(given: Given) -> dict[str, object]:
    if given["to"] is None:
        raise Failed("Error (argument validation): give the target broker with --to URL", USAGE)
    return {option: given[option] for option in ("to", "from", "queue", "count", "prefetch", "declare", "follow")}


def _whereto(given: Given) -> dict[str, str]:
    """Return the target's URL without user and password."""
    parts = urlsplit(given["to"] or "")
    return {"target": f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"}


def _drained(answer: Any, given: Given) -> str:
    text = f"{answer['moved']} messages moved"
    if answer["without_user_id"]:
        text += (
            f"; {answer['without_user_id']} of them lost their user id, which differs from the target's login"
        )
    return text


def _drain(command: str, fields: dict[str, object], data_dir: str, timeout_s: float | None) -> Any:
    from leveret.cli.ctl.draining import drain  # imported here, as it loads the client, which no other command needs

    return drain(command, fields, data_dir, timeout_s)


SPECS: Final = (
    Spec(
        "drain", "Queues",
        "Move the messages of a queue to a queue of another broker, leveret or RabbitMQ, with publisher confirms.",
        arguments("queue_name:name:queues"),
        (
            Option("to", "", metavar="url"), Option("from", "", metavar="url"), Option("queue", "", metavar="name"),
            Option("count", "", "int", "n"), Option("prefetch", "", "int", "n", 500), Option("declare", "", "flag"),
            Option("follow", "", "flag"),
        ),
        takes_vhost=True, banner="Draining queue {queue_name} to {target} ...", call="get_queue", fields=_asked,
        words=_whereto, via=_drain, show=_drained, is_ours=True,
    ),
)  # fmt: skip
