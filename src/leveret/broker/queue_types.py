"""Queue types: which arguments and properties classic queues, quorum queues and streams take, in RabbitMQ's words.

A quorum queue here is one copy on one disk. What it adds to a classic queue: every message is kept and synced, requeued
deliveries are counted, and dead letters may be kept until a queue takes them. Of newer RabbitMQ's arguments for
streams, x-stream-filter-size-bytes is known; x-leveret-* are our own.
"""

from __future__ import annotations

from typing import Final

from leveret.broker.arguments import refused_argument
from leveret.broker.streams.limits import SEGMENT_OCTETS_MAX
from leveret.broker.terms import type_of
from leveret.wire.table import Value

CLASSIC: Final = "classic"
QUORUM: Final = "quorum"
STREAM: Final = "stream"
_OF_STREAMS: Final = (
    "x-max-age", "x-stream-max-segment-size-bytes", "x-initial-cluster-size", "x-leveret-schema",
    "x-leveret-seal-after-ms",
)  # fmt: skip
# known arguments that this type does not take
_REFUSED: Final[dict[str, tuple[str, ...]]] = {
    CLASSIC: (
        "x-dead-letter-strategy", "x-max-in-memory-length", "x-max-in-memory-bytes", "x-quorum-initial-group-size",
        "x-queue-leader-locator", *_OF_STREAMS,
    ),
    QUORUM: (
        "x-max-priority", "x-queue-mode", "x-queue-version", "x-queue-master-locator", *_OF_STREAMS,
    ),
    STREAM: (
        "x-expires", "x-message-ttl", "x-dead-letter-exchange", "x-dead-letter-routing-key", "x-dead-letter-strategy",
        "x-max-length", "x-max-in-memory-length", "x-max-in-memory-bytes", "x-max-priority", "x-overflow",
        "x-queue-mode", "x-queue-version", "x-single-active-consumer", "x-quorum-initial-group-size",
        "x-delivery-limit", "x-queue-master-locator",
    ),
}  # fmt: skip
_STRATEGIES: Final = ("at-most-once", "at-least-once")
_LOCATORS: Final = ("client-local", "balanced", "random", "least-leaders")


def queue_type(arguments: dict[str, Value]) -> str:
    """Return the type of a queue with these arguments."""
    return str(arguments.get("x-queue-type", CLASSIC))


def is_at_least_once(arguments: dict[str, Value]) -> bool:
    """Whether dead letters stay until a queue takes them. Like RabbitMQ, this requires reject-publish."""
    return (
        queue_type(arguments) == QUORUM
        and arguments.get("x-dead-letter-strategy") == "at-least-once"
        and arguments.get("x-overflow") == "reject-publish"
        and "x-dead-letter-exchange" in arguments
    )


def refused_declaration(arguments: dict[str, Value], types: dict[str, bytes], what: str) -> str:
    """Return the text of the 406 for a queue with these arguments, "" if they are valid. types: see arguments.typed.

    As in RabbitMQ, values are checked first, but only of arguments that the type takes; the name of an exchange in any
    case.
    """
    kind = queue_type(arguments)
    strange = _REFUSED.get(kind, ())
    looked_at = [name for name in arguments if name not in strange or name == "x-dead-letter-exchange"]
    known = {name: arguments[name] for name in looked_at}
    refused = refused_argument(known, types, what)
    if refused:
        return refused
    if kind != CLASSIC:
        for name, value in known.items():
            reason = _replica_reason(name, value, type_of(types[name]))
            if reason:
                return f"invalid arg '{name}' for {what}: {reason}"
    for name in arguments:
        if name in strange:
            return f"invalid arg '{name}' for {what} of queue type rabbit_{kind}_queue"
    return ""


def refused_property(arguments: dict[str, Value], durable: bool, exclusive: bool, auto_delete: bool, what: str) -> str:
    """Return the text of the 406 for a quorum queue or stream that is not permanent, "" if it is.

    It also checks those sizes of a stream that RabbitMQ checks last.
    """
    kind = queue_type(arguments)
    if kind == CLASSIC:
        return ""
    for is_wrong, name in ((auto_delete, "auto-delete"), (exclusive, "exclusive-owner"), (not durable, "non-durable")):
        if is_wrong:
            return f"invalid property '{name}' for {what}"
    return _refused_size(arguments) if kind == STREAM else ""


def _refused_size(arguments: dict[str, Value]) -> str:
    segment = arguments.get("x-stream-max-segment-size-bytes", 0)
    if isinstance(segment, int) and segment > SEGMENT_OCTETS_MAX:
        return "Exceeded max value for x-stream-max-segment-size-bytes"
    filter_size = arguments.get("x-stream-filter-size-bytes", 16)
    if isinstance(filter_size, int) and not isinstance(filter_size, bool) and 16 <= filter_size <= 255:
        return ""
    return "Invalid value for  x-stream-filter-size-bytes"


def _replica_reason(name: str, value: Value, kind: str) -> str:
    if name in ("x-max-in-memory-length", "x-max-in-memory-bytes", "x-quorum-initial-group-size"):
        if isinstance(value, bool) or not isinstance(value, int):
            return f'"expected integer, got {kind}"'
        if value < 0:
            return f"{{value_negative,{value}}}"
        return f"{{value_zero,{value}}}" if value == 0 and name == "x-quorum-initial-group-size" else ""
    words, complaint = {
        "x-dead-letter-strategy": (_STRATEGIES, "invalid_dlx_strategy"),
        "x-queue-leader-locator": (_LOCATORS, "invalid_queue_locator_arg"),
    }.get(name, ((), ""))
    if not words:
        return ""
    if not isinstance(value, str):
        return f"{{unacceptable_type,{kind}}}"
    return "" if value in words else complaint
