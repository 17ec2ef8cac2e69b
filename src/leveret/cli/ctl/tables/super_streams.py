"""Commands for super streams and stream tracking, as in rabbitmq-streams (3.10.8, measured; tracking as of 3.11)."""

from __future__ import annotations

import re
from typing import Final, NoReturn

from leveret.cli.ctl.exits import SOFTWARE, USAGE, Failed
from leveret.cli.ctl.spec import AnswerTable, Given, Option, Spec, arguments, columns
from leveret.control.refusal import BAD_REQUEST, NOT_FOUND

GROUP: Final = "Streams"
TRACKING: Final = columns("type", "name", "tracking_value", "lag", "is_consuming")
LOCATORS: Final = ("client-local", "balanced")
_OCTETS: Final = re.compile(r"(\d+)([kmgt]?)(i?)(b?)", re.IGNORECASE)
_POWERS: Final = "kmgt"
_DURATION: Final = re.compile(
    r"P(?=.)(?:(\d+)Y)?(?:(\d+)M)?(?:(\d+)W)?(?:(\d+)D)?(?:T(?=.)(?:(\d+)H)?(?:(\d+)M)?(?:(\d+)S)?)?"
)
_SECONDS: Final = (31_536_000, 2_592_000, 604_800, 86_400, 3_600, 60, 1)
_AGE: Final = re.compile(r"[1-9]\d*[YMDhms]")


def octets(text: str, option: str) -> int:
    """Parse an amount: 500, 50mb (millions), 1gib or 1g (1,073,741,824). Raises Failed."""
    match = _OCTETS.fullmatch(text)
    if match is None or (match[3] and not match[2]):
        _refuse(f"Invalid value for --{option}, valid example values: 100gb, 50mb")
    unit = 1000 if match[4] and not match[3] else 1024
    power = _POWERS.index(match[2].lower()) + 1 if match[2] else 0
    return int(match[1]) * int(unit**power)


def age(text: str) -> str:
    """Return a value of x-max-age for an ISO 8601 duration or a value in its own format. Raises Failed."""
    if _AGE.fullmatch(text):
        return text
    match = _DURATION.fullmatch(text)
    seconds = sum(int(part or 0) * unit for part, unit in zip(match.groups(), _SECONDS, strict=True)) if match else 0
    if seconds == 0:
        _refuse(
            "Invalid value for --max-age, the value must a ISO 8601 duration, e.g. e.g. PT10M30S for 10 minutes 30"
            " seconds, P5DT8H for 5 days 8 hours."
        )
    return f"{seconds}s"


def _refuse(text: str) -> NoReturn:
    raise Failed(f"Error (argument validation): {text}", USAGE)


def _fields(given: Given) -> dict[str, object]:
    """Return the fields of options that need conversion."""
    fields: dict[str, object] = {}
    for option in ("max-length-bytes", "stream-max-segment-size-bytes"):
        if given[option] is not None:
            fields[option.replace("-", "_")] = octets(given[option], option)
    if given["max-age"] is not None:
        fields["max_age"] = age(given["max-age"])
    if given["leader-locator"] is not None and given["leader-locator"] not in LOCATORS:
        _refuse("Invalid value for --leader-locator, valid values are client-local, balanced.")
    return fields


SPECS: Final = (
    Spec(
        "add_super_stream", GROUP, "Declare partitioned streams behind an exchange.", arguments("name"),
        (
            Option("partitions", "partitions", "int", "n"), Option("routing-keys", "routing_keys", "names", "keys"),
            Option("max-length-bytes", "", metavar="size"), Option("max-age", "", metavar="duration"),
            Option("stream-max-segment-size-bytes", "", metavar="size"),
            Option("leader-locator", "leader_locator", metavar="locator"),
            Option("initial-cluster-size", "initial_cluster_size", "int", "n"),
        ),
        takes_vhost=True, banner="Adding a super stream ...", fields=_fields,
        show=lambda answer, given: f"Super stream {given['name']} has been created", exits={BAD_REQUEST: USAGE},
        is_ours=True,
    ),
    Spec(
        "delete_super_stream", GROUP, "Delete a super stream, its partitions and all their messages.",
        arguments("name"), takes_vhost=True, banner="Deleting a super stream ...",
        show=lambda answer, given: f"Super stream {given['name']} has been deleted", exits={NOT_FOUND: SOFTWARE},
        is_ours=True,
    ),
    Spec(
        "list_stream_tracking", GROUP, "List the tracking data of a stream: consumers' offsets and publishers' "
                                       "sequence numbers.",
        arguments("stream::queues"), (Option("offset", "offset", "flag"), Option("writer", "writer", "flag")),
        takes_vhost=True, banner="Listing tracking information for stream {stream} ...",
        show=AnswerTable(TRACKING, tuple(column.name for column in TRACKING)), is_ours=True,
    ),
    Spec(
        "forget_stream_tracking", GROUP, "Delete the tracking data of a named consumer or publisher of a stream.",
        arguments("stream::queues name"), (Option("writer", "writer", "flag"),), takes_vhost=True,
        banner="Deleting the tracking data of '{name}' on stream {stream} ...", is_ours=True,
    ),
)  # fmt: skip
