"""Arguments of declarations: how they compare, which mean nothing, and those of consumers. See queue_arguments.py."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from leveret.broker.queues.queue_arguments import no_integer, unacceptable
from leveret.broker.streams.offsets import refused_offset
from leveret.broker.terms import comparable, items_of, shown, text_of, type_of
from leveret.wire.errors import quoted
from leveret.wire.table import Value, encode_value, split_table

# how many unknown names are logged; more than these come from a program, not from typing errors
_TOLD_MAX: Final = 100
# consumer arguments of queues and of streams; each is refused for the other type. The filters are RabbitMQ 3.13's.
_OF_CONSUMERS: Final = ("x-priority", "x-cancel-on-ha-failover")
_OF_READERS: Final = ("x-stream-offset", "x-stream-filter", "x-stream-match-unfiltered", "x-leveret-arrived")
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


def unknown(arguments: Iterable[str], known: tuple[str, ...]) -> list[str]:
    """Return the names that this broker does not know. known: `queue_arguments.NAMES` or
    `exchange_arguments.EXCHANGE_ARGUMENT_NAMES`."""
    return [name for name in arguments if name not in known]


class UnknownArguments:
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
                f"{kind} {quoted(owner)}: argument {quoted(name)} is unknown to this broker and has no effect. Correct "
                "the declaration if this is a typo (logged once per name)"
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
        return "" if is_integer else no_integer(kind)
    if name == "x-stream-filter":
        texts = items_of(encoded) if kind == "array" else [encoded]
        return "" if all(text[:1] == b"S" for text in texts) else unacceptable(kind)
    return "" if isinstance(value, bool) else unacceptable(kind)
