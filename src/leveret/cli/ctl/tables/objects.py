"""Commands that change a running broker: queues, connections, listeners, backup, limits of alarms, log level."""

from __future__ import annotations

import os
import re
from typing import Any, Final

from leveret.cli.ctl.exits import DATA, UNAVAILABLE, USAGE, Failed
from leveret.cli.ctl.spec import Given, Option, Spec, arguments
from leveret.control.refusal import BAD_REQUEST, CONFLICT, NOT_FOUND

QUEUES: Final = "Queues"
OPERATIONS: Final = "Operations"
CONFIGURATION: Final = "Configuration"
LEVELS: Final = ("debug", "info", "warning", "error", "critical", "none")
FRACTION: Final = re.compile(r"\d*\.?\d+")
AMOUNT: Final = re.compile(r"\d+\s*[a-zA-Z]*")


def _conditions(given: Given) -> dict[str, str]:
    names = [f"if queue is {word}" for word in ("empty", "unused") if given[f"if-{word}"]]
    return {"conditions": f"{' and '.join(names)} " if names else ""}


def _whose(given: Given) -> dict[str, str]:
    where = "" if given["global"] else f" in vhost {given['vhost']}"
    return {"whose": f"{given['limit'] or 'all'} connections{where}"}


def _deleted(answer: Any, given: Given) -> str:
    return f"Queue was successfully deleted with {answer['message_count']} ready messages"


def _watermark(given: Given) -> dict[str, object]:
    """Parse a fraction of the memory, or "absolute" and an amount."""
    text, amount = given["fraction"], given["value"]
    if text == "absolute":
        if not AMOUNT.fullmatch(amount or ""):
            raise Failed("Bad argument: an amount is needed, such as 500MB or 2GiB", DATA)
        return {"limit": amount}
    if not FRACTION.fullmatch(text) or amount is not None:
        raise Failed("Bad argument.", DATA)
    if float(text) > 1:
        raise Failed("Bad argument: The threshold should be a fraction between 0.0 and 1.0", DATA)
    return {"limit": f"{float(text):.9f}"}


def _free_limit(given: Given) -> dict[str, object]:
    """Parse an amount, or "mem_relative" and a multiple of the memory."""
    text, times = given["disk_limit"], given["fraction"]
    if text == "mem_relative":
        if not FRACTION.fullmatch(times or ""):
            raise Failed("Bad argument.", DATA)
        return {"limit": f"{float(times):.9f}"}
    if not AMOUNT.fullmatch(text) or times is not None:
        raise Failed("Bad argument.", DATA)
    return {"limit": int(text) if text.isdecimal() else text}


def _threshold(given: Given) -> dict[str, str]:
    return {"threshold": f"{given['value']} bytes" if given["fraction"] == "absolute" else given["fraction"]}


def _free(given: Given) -> dict[str, str]:
    is_share = given["disk_limit"] == "mem_relative"
    return {"free": f"{given['fraction']} times the total RAM" if is_share else f"{given['disk_limit']} bytes"}


def _level(given: Given) -> dict[str, object]:
    """Check the level: rabbitmqctl, too, does so before it prints the banner."""
    if given["level"] not in LEVELS:
        text = f"level {given['level']} is not supported. Try one of {', '.join(LEVELS)}"
        raise Failed(f"Error:\n{text}", UNAVAILABLE)
    return {}


SPECS: Final = (
    Spec(
        "purge_queue", QUEUES, "Remove all ready messages from a queue.", arguments("queue:name:queues"),
        takes_vhost=True, banner="Purging queue '{queue}' in vhost '{vhost}' ...",
    ),
    Spec(
        "delete_queue", QUEUES, "Delete a queue.", arguments("queue_name:name:queues"),
        (Option("if-empty", "if_empty", "flag"), Option("if-unused", "if_unused", "flag")), takes_vhost=True,
        banner="Deleting queue '{queue_name}' on vhost '{vhost}' {conditions}...", words=_conditions, show=_deleted,
        exits={NOT_FOUND: USAGE, CONFLICT: USAGE},
    ),
    Spec(
        "close_connection", OPERATIONS, "Close a connection, given by process id or name.",
        arguments("connectionpid:name:connections explanation:reason"),
        banner="Closing connection {connectionpid}, reason: {explanation}...",
    ),
    Spec(
        "close_all_connections", OPERATIONS, "Close the connections of a virtual host, or all connections.",
        arguments("explanation:reason"),
        (
            Option("global", "", "flag"),
            Option("limit", "limit", "int", "n", default=0),
            Option("per-connection-delay", "", "int", "ms"),
        ),
        takes_vhost=True, banner="Closing {whose}, reason: {explanation}...", words=_whose,
        fields=lambda given: {"vhost": None} if given["global"] else {},
        show=lambda answer, given: f"Closed {answer['count']} connections",
    ),
    Spec(
        "close_all_user_connections", OPERATIONS, "Close all connections of a user.",
        arguments("username:user:users explanation:reason"),
        banner="Closing connections of user {username}, reason: {explanation}...",
    ),
    Spec(
        "force_gc", OPERATIONS, "Collect garbage and return freed memory to the system.",
        banner="Will ask all processes on node {node} to schedule a full sweep GC",
    ),
    Spec(
        "suspend_listeners", OPERATIONS, "Stop accepting new connections.",
        banner="Will suspend client connection listeners on node {node}. "
        "The node will no longer accept client connections!",
    ),
    Spec(
        "resume_listeners", OPERATIONS, "Accept new connections again.",
        banner="Will resume client connection listeners on node {node}. "
        "The node will now accept client connections",
    ),
    Spec(
        "backup", OPERATIONS, "Back up the data directory while the broker runs.",
        arguments("directory:"), is_ours=True, banner="Copying the data directory to {directory} ...",
        fields=lambda given: {"directory": os.path.abspath(given["directory"])},
        show=lambda answer, given: f"{answer['files']} files, {answer['octets']} octets",
    ),
    Spec(
        "set_cluster_name", CONFIGURATION, "Set the cluster name.", arguments("name"),
        banner="Setting cluster name to {name} ...",
    ),
    Spec(
        "set_disk_free_limit", CONFIGURATION, "Set the free disk space below which publishers are blocked; until "
                                              "the next start.",
        arguments("disk_limit: fraction:?"), fields=_free_limit, words=_free,
        banner="Setting disk free limit on {node} to {free} ...", exits={BAD_REQUEST: DATA},
    ),
    Spec(
        "set_vm_memory_high_watermark", CONFIGURATION,
        "Set the memory use above which publishers are blocked; until the next start.",
        arguments("fraction: value:?"), fields=_watermark, words=_threshold,
        banner="Setting memory threshold on {node} to {threshold} ...", exits={BAD_REQUEST: DATA},
    ),
    Spec(
        "set_log_level", CONFIGURATION, "Set the log level; until the next start.", arguments("level"),
        fields=_level, banner='Setting log level to "{level}" ...',
    ),
)  # fmt: skip
