"""x-arguments of queues: which values are allowed, and RabbitMQ's words for those that are not."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from typing import Final

from leveret.wire.table import Value

# RabbitMQ's limit for times in milliseconds: what an Erlang timer can take, and ten years for a message's life
EXPIRES_MS_MAX: Final = 4_294_967_295
TTL_MS_MAX: Final = 315_360_000_000

# argument -> (smallest, largest) integer; a larger one is answered with the word beside it
_INTEGERS: Final[dict[str, tuple[int, int, str]]] = {
    "x-message-ttl": (0, TTL_MS_MAX, "value_too_large"),
    "x-expires": (1, EXPIRES_MS_MAX, "value_too_large"),
    "x-max-length": (0, 1 << 63, "value_too_large"),
    "x-max-length-bytes": (0, 1 << 63, "value_too_large"),
    "x-max-priority": (0, 255, "max_value_exceeded"),
    "x-queue-version": (0, 1 << 63, "value_too_large"),
    # negative: no limit, as from RabbitMQ 4.0 on
    "x-delivery-limit": (-1 << 63, 1 << 63, "value_too_large"),
}
# argument -> the words it may be
_WORDS: Final[dict[str, tuple[str, ...]]] = {
    "x-overflow": ("drop-head", "reject-publish", "reject-publish-dlx"),
    "x-queue-mode": ("default", "lazy"),
    "x-queue-type": ("classic", "quorum", "stream"),
}
# of several arguments that are wrong RabbitMQ names the first of these
_CHECKED: Final = (
    "x-queue-type", "x-dead-letter-exchange", "x-expires", "x-message-ttl", "x-dead-letter-routing-key",
    "x-max-length", "x-max-length-bytes", "x-max-priority", "x-overflow", "x-queue-mode", "x-queue-version",
    "x-single-active-consumer", "x-delivery-limit",
)  # fmt: skip
# what other types of queues take, and a classic one refuses
_NOT_CLASSIC: Final = (
    "x-max-in-memory-length", "x-max-in-memory-bytes", "x-quorum-initial-group-size", "x-dead-letter-strategy",
    "x-queue-leader-locator", "x-max-age", "x-stream-max-segment-size-bytes", "x-initial-cluster-size",
)  # fmt: skip
_TYPE_NAMES: Final[dict[type, str]] = {
    type(None): "void", bytes: "binary", datetime: "timestamp", Decimal: "decimal", float: "double", dict: "table",
    list: "array",
}  # fmt: skip


def type_name(value: Value) -> str:
    """RabbitMQ's name for the type of a table value."""
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, int):
        return "signedint" if -(1 << 31) <= value < 1 << 31 else "long"
    return _TYPE_NAMES.get(type(value), "longstr")


def shown(value: Value) -> str:
    """A value as RabbitMQ writes it into its errors."""
    if value is None:
        return "undefined"
    if isinstance(value, bool):
        return str(value).lower()
    return str(_plain(value)) if not isinstance(value, bytes) else value.decode(errors="replace")


def quoted(value: Value) -> str:
    """The same where two values are compared."""
    return "none" if value is None else f"'{shown(value)}'"


def are_equivalent(name: str, some: dict[str, Value], others: dict[str, Value]) -> bool:
    """Whether two declarations say the same in this argument: 1 is no "1", nor 1.0; how wide an integer is, is no
    matter, nor whether text came as text or as octets."""
    if name == "x-queue-type" and some.get(name, "classic") == others.get(name, "classic"):
        return True
    one, other = _plain(some.get(name)), _plain(others.get(name))
    return (name in some) == (name in others) and type(one) is type(other) and one == other


def _plain(value: Value) -> Value:
    if isinstance(value, datetime):
        return int(value.timestamp())
    if isinstance(value, bytes):
        return value.decode("utf-8", "surrogateescape")
    return value


def invalid_type(name: str, value: Value, what: str) -> str:
    """The text for an exchange name that is no text."""
    return f"invalid type '{type_name(value)}' for arg '{name}' in {what}"


def refused_argument(arguments: dict[str, Value], what: str) -> str:
    """The text of the 406 that these arguments of a queue deserve, "" if they are fine. Unknown ones are fine."""
    for name in _CHECKED:
        if name not in arguments:
            continue
        value = arguments[name]
        if name == "x-dead-letter-exchange":
            if not isinstance(value, str):
                return invalid_type(name, value, what)
            continue
        reason = _reason(name, value, arguments)
        if reason:
            return f"invalid arg '{name}' for {what}: {reason}"
    if arguments.get("x-queue-type", "classic") == "classic":
        for name in arguments:
            if name in _NOT_CLASSIC:
                return f"invalid arg '{name}' for {what} of queue type rabbit_classic_queue"
    return ""


def refused_of_consumer(arguments: dict[str, Value], what: str, queue_arguments: dict[str, Value]) -> str:
    """The same for the arguments of a consumer; queue_arguments: of its queue."""
    if "x-priority" in arguments and not _is_integer(arguments["x-priority"]):
        return f"invalid arg 'x-priority' for {what}: {_no_integer(arguments['x-priority'])}"
    failover = arguments.get("x-cancel-on-ha-failover", False)
    if not isinstance(failover, bool):
        return f"invalid arg 'x-cancel-on-ha-failover' for {what}: {{unacceptable_type,{type_name(failover)}}}"
    if "x-stream-offset" in arguments:
        kind = shown(queue_arguments.get("x-queue-type", "classic"))
        return f"invalid arg 'x-stream-offset' for {what} of queue type rabbit_{kind}_queue"
    return ""


def _reason(name: str, value: Value, arguments: dict[str, Value]) -> str:
    if name in _INTEGERS:
        reason = _integer_reason(name, value)
        if not reason and name == "x-queue-version" and value not in (1, 2):
            return f"\"unsupported queue version '{shown(value)}'\""
        return reason
    if name == "x-single-active-consumer":
        return "" if isinstance(value, bool) else f"{{unacceptable_type,{type_name(value)}}}"
    if not isinstance(value, str):
        return f"{{unacceptable_type,{type_name(value)}}}"
    if name == "x-dead-letter-routing-key":
        return "" if "x-dead-letter-exchange" in arguments else "routing_key_but_no_dlx_defined"
    if value in _WORDS[name]:
        return ""
    return "invalid_overflow" if name == "x-overflow" else f"\"unsupported {name[2:].replace('-', ' ')} '{value}'\""


def _is_integer(value: Value) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _no_integer(value: Value) -> str:
    return f'"expected integer, got {type_name(value)}"'


def _integer_reason(name: str, value: Value) -> str:
    if isinstance(value, bool) or not isinstance(value, int):
        return _no_integer(value)
    smallest, largest, word = _INTEGERS[name]
    if value < 0 <= smallest:
        return f"{{value_negative,{value}}}"
    if value < smallest:
        return f"{{value_zero,{value}}}"
    return f"{{{word},{value}}}" if value > largest else ""
