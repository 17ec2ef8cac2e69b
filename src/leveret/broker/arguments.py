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
    # negative: no limit, as from RabbitMQ 4.0 on
    "x-delivery-limit": (-1 << 63, 1 << 63, "value_too_large"),
}
_OVERFLOWS: Final = ("drop-head", "reject-publish", "reject-publish-dlx")
_TYPE_NAMES: Final[dict[type, str]] = {
    type(None): "void", bytes: "binary", datetime: "timestamp", Decimal: "decimal", float: "double", dict: "table",
    list: "array",
}  # fmt: skip
_TYPES: Final = ("classic", "quorum", "stream")


def type_name(value: Value) -> str:
    """RabbitMQ's name for the type of a table value."""
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, int):
        return "signedint" if -(1 << 31) <= value < 1 << 31 else "long"
    return _TYPE_NAMES.get(type(value), "longstr")


def invalid_type(name: str, value: Value, what: str) -> str:
    """The text for an exchange name that is no text."""
    return f"invalid type '{type_name(value)}' for arg '{name}' in {what}"


def refused_argument(arguments: dict[str, Value], what: str) -> str:
    """The text of the 406 that these arguments of a queue deserve, "" if they are fine. Unknown ones are fine."""
    for name, value in arguments.items():
        if name == "x-dead-letter-exchange" and not isinstance(value, str):
            return invalid_type(name, value, what)
        reason = _reason(name, value, arguments)
        if reason:
            return f"invalid arg '{name}' for {what}: {reason}"
    return ""


def _reason(name: str, value: Value, arguments: dict[str, Value]) -> str:
    if name in _INTEGERS:
        return _integer_reason(name, value)
    if name == "x-dead-letter-routing-key":
        if not isinstance(value, str):
            return f"{{unacceptable_type,{type_name(value)}}}"
        return "" if "x-dead-letter-exchange" in arguments else "routing_key_but_no_dlx_defined"
    if name == "x-overflow":
        if not isinstance(value, str):
            return f"{{unacceptable_type,{type_name(value)}}}"
        return "" if value in _OVERFLOWS else "invalid_overflow"
    if name == "x-queue-type" and value not in _TYPES:
        return f"\"unsupported queue type '{value!s}'\""
    if name == "x-single-active-consumer" and not isinstance(value, bool):
        return f"{{unacceptable_type,{type_name(value)}}}"
    return ""


def _integer_reason(name: str, value: Value) -> str:
    if isinstance(value, bool) or not isinstance(value, int):
        return f'"expected integer, got {type_name(value)}"'
    smallest, largest, word = _INTEGERS[name]
    if value < 0 <= smallest:
        return f"{{value_negative,{value}}}"
    if value < smallest:
        return f"{{value_zero,{value}}}"
    return f"{{{word},{value}}}" if value > largest else ""
