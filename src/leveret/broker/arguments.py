"""x-arguments of queues: their allowed values, and RabbitMQ's error texts for others."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from leveret.broker.streams.age import age_us
from leveret.broker.streams.offsets import refused_offset
from leveret.broker.terms import comparable, items_of, shown, text_of, type_of
from leveret.wire.body_schema import refused_schema
from leveret.wire.errors import quoted
from leveret.wire.table import Value, encode_value, split_table

# RabbitMQ's limits for times in milliseconds: that of an Erlang timer, and ten years for a message's time to live
EXPIRES_MS_MAX: Final = 4_294_967_295
TTL_MS_MAX: Final = 315_360_000_000

# argument -> (smallest, largest) integer, and the word in the error for a larger one
_INTEGERS: Final[dict[str, tuple[int, int, str]]] = {
    "x-message-ttl": (0, TTL_MS_MAX, "value_too_large"),
    "x-expires": (1, EXPIRES_MS_MAX, "value_too_large"),
    "x-max-length": (0, 1 << 63, "value_too_large"),
    "x-max-length-bytes": (0, 1 << 63, "value_too_large"),
    "x-max-priority": (0, 255, "max_value_exceeded"),
    "x-queue-version": (0, 1 << 63, "value_too_large"),
    # negative: no limit, as in RabbitMQ 4.0 and later
    "x-delivery-limit": (-1 << 63, 1 << 63, "value_too_large"),
    "x-stream-max-segment-size-bytes": (0, 1 << 63, "value_too_large"),
    "x-initial-cluster-size": (1, 1 << 63, "value_too_large"),
    "x-leveret-seal-after-ms": (1, TTL_MS_MAX, "value_too_large"),
}
# argument -> its allowed values
_WORDS: Final[dict[str, tuple[str, ...]]] = {
    "x-overflow": ("drop-head", "reject-publish", "reject-publish-dlx"),
    "x-queue-mode": ("default", "lazy"),
    "x-queue-type": ("classic", "quorum", "stream"),
}
# in RabbitMQ's order: of several wrong arguments, the error names the first of these
_CHECKED: Final = (
    "x-queue-type", "x-dead-letter-exchange", "x-expires", "x-message-ttl", "x-dead-letter-routing-key",
    "x-max-length", "x-max-length-bytes", "x-max-priority", "x-overflow", "x-queue-mode", "x-queue-version",
    "x-single-active-consumer", "x-delivery-limit", "x-max-age", "x-stream-max-segment-size-bytes",
    "x-initial-cluster-size", "x-leveret-schema", "x-leveret-seal-after-ms",
)  # fmt: skip
# known arguments of queues and of exchanges; others are stored, as in RabbitMQ, and have no effect
OF_QUEUES: Final = (
    *_CHECKED, "x-consumer-timeout", "x-dead-letter-strategy", "x-internal-purpose", "x-leveret-positions",
    "x-max-in-memory-bytes", "x-max-in-memory-length", "x-queue-leader-locator", "x-queue-master-locator",
    "x-quorum-initial-group-size", "x-stream-filter-size-bytes",
)  # fmt: skip
OF_EXCHANGES: Final = (
    "alternate-exchange", "hash-header", "hash-property", "x-delayed-type", "x-downstream-name", "x-downstream-vhost",
    "x-internal-purpose", "x-max-hops", "x-recent-history-length", "x-super-stream",
)  # fmt: skip
# how many unknown names are logged; more than these come from a program, not from typing errors
_TOLD_MAX: Final = 100
# consumer arguments of queues and of streams; each is refused for the other type. The filters are RabbitMQ 3.13's.
_OF_CONSUMERS: Final = ("x-priority", "x-cancel-on-ha-failover")
_OF_READERS: Final = ("x-stream-offset", "x-stream-filter", "x-stream-match-unfiltered")
_CLASSIC: Final = encode_value("classic")


def typed(table: bytes) -> dict[str, bytes]:
    """Return the encoded values of an encoded table: errors name their types, and Python has but one for integers."""
    return {name.decode("utf-8", "surrogateescape"): value for name, value in split_table(table)}


def are_equivalent(name: str, some: dict[str, bytes], others: dict[str, bytes]) -> bool:
    """Return whether two declarations agree in this argument.

    Types count: 1 equals neither "1" nor 1.0. The width of integers does not, nor does text as string or octets.
    """
    one, other = some.get(name), others.get(name)
    if name == "x-queue-type":
        one, other = one or _CLASSIC, other or _CLASSIC
    if one is None or other is None:
        return one is other
    plain, others_plain = comparable(one), comparable(other)
    return type(plain) is type(others_plain) and plain == others_plain


def plain(value: bytes) -> str:
    """Return a value as RabbitMQ writes it in the errors of declarations."""
    text = text_of(value)
    return shown(value) if text is None else text.decode(errors="replace")


def refused_argument(arguments: dict[str, Value], types: dict[str, bytes], what: str) -> str:
    """Return the text of a 406 for invalid arguments of a queue, "" if they are valid. Unknown arguments are valid.

    types: the same arguments as returned by `typed`.
    """
    for name in _CHECKED:
        if name not in arguments:
            continue
        value, kind = arguments[name], type_of(types[name])
        if name == "x-dead-letter-exchange":
            if not isinstance(value, str):
                return f"invalid type '{kind}' for arg '{name}' in {what}"
            continue
        reason = _reason(name, value, kind, arguments)
        if reason:
            return f"invalid arg '{name}' for {what}: {reason}"
    return ""


def unknown(arguments: Iterable[str], known: tuple[str, ...]) -> list[str]:
    """Return the names that this broker does not know. known: OF_QUEUES or OF_EXCHANGES."""
    return [name for name in arguments if name not in known]


class Strangers:
    """Logs arguments that this broker does not know: each name once, up to _TOLD_MAX names."""

    def __init__(self, on_event: Callable[[str], None]) -> None:
        self._on_event = on_event
        self._told: set[str] = set()

    def look(self, arguments: dict[str, Value], known: tuple[str, ...], kind: str, owner: str) -> None:
        """Check the arguments of a declaration. kind: "queue" or "exchange"; owner: its name."""
        for name in unknown(arguments, known):
            if name in self._told or len(self._told) >= _TOLD_MAX:
                continue
            self._told.add(name)
            self._on_event(
                f"{kind} {quoted(owner)}: argument {quoted(name)} means nothing to this broker and has no effect. "
                "Correct the declaration if it is a slip (each such name is told once)"
            )


def refused_of_consumer(
    arguments: dict[str, Value], types: dict[str, bytes], what: str, queue_arguments: dict[str, Value]
) -> str:
    """Return the text of a 406 for invalid arguments of a consumer, "" if they are valid.

    Invalid values are reported before arguments that the queue's type does not support. queue_arguments: of its queue.
    """
    kind = str(queue_arguments.get("x-queue-type", "classic"))
    known, strange = (_OF_READERS, _OF_CONSUMERS) if kind == "stream" else (_OF_CONSUMERS, _OF_READERS)
    for name in known:
        reason = _consumer_reason(name, arguments[name], types[name]) if name in arguments else ""
        if reason:
            return f"invalid arg '{name}' for {what}: {reason}"
    for name in arguments:
        if name in strange:
            return f"invalid arg '{name}' for {what} of queue type rabbit_{kind}_queue"
    return ""


def _consumer_reason(name: str, value: Value, encoded: bytes) -> str:
    kind = type_of(encoded)
    if name == "x-stream-offset":
        return refused_offset(encoded)
    if name == "x-priority":
        is_integer = isinstance(value, int) and not isinstance(value, bool) and kind != "timestamp"
        return "" if is_integer else _no_integer(kind)
    if name == "x-stream-filter":
        texts = items_of(encoded) if kind == "array" else [encoded]
        return "" if all(text[:1] == b"S" for text in texts) else f"{{unacceptable_type,{kind}}}"
    return "" if isinstance(value, bool) else f"{{unacceptable_type,{kind}}}"


def _reason(name: str, value: Value, kind: str, arguments: dict[str, Value]) -> str:
    if name in _INTEGERS:
        return _integer_reason(name, value, kind)
    if name == "x-single-active-consumer":
        return "" if isinstance(value, bool) else f"{{unacceptable_type,{kind}}}"
    if not isinstance(value, str):
        return f"{{unacceptable_type,{kind}}}"
    if name == "x-max-age":
        return "" if age_us(value) > 0 else "invalid_max_age"
    if name == "x-leveret-schema":
        return refused_schema(value)
    if name == "x-dead-letter-routing-key":
        return "" if "x-dead-letter-exchange" in arguments else "routing_key_but_no_dlx_defined"
    if value in _WORDS[name]:
        return ""
    return "invalid_overflow" if name == "x-overflow" else f"\"unsupported {name[2:].replace('-', ' ')} '{value}'\""


def _no_integer(kind: str) -> str:
    return f'"expected integer, got {kind}"'


def _integer_reason(name: str, value: Value, kind: str) -> str:
    if isinstance(value, bool) or not isinstance(value, int) or kind == "timestamp":
        return _no_integer(kind)
    smallest, largest, word = _INTEGERS[name]
    if value < 0 <= smallest:
        return f"{{value_negative,{value}}}"
    if value < smallest:
        return f"{{value_zero,{value}}}"
    if value > largest:
        return f"{{{word},{value}}}"
    if name == "x-queue-version" and value not in (1, 2):
        return f"\"unsupported queue version '{value}'\""
    return ""
