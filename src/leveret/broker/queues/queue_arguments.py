"""The arguments of queues, in one table: their values, the queue types that take them, and what policies may set.

A new argument is a row of `ARGUMENTS` and the code that reads it (`queue_settings.py`). Error texts are those of
RabbitMQ 3.10.8, measured; of later versions it has `x-consumer-timeout`, negative delivery limits and
`x-stream-filter-size-bytes`, of the plugin rabbitmq-message-deduplication `x-message-deduplication`. Arguments that
begin with `x-leveret-` are leveret's own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from leveret.broker.policy_keys import DECLARED, LONG_MAX, SMALLER, PolicyKey, is_boolean, is_text, one_of, whole
from leveret.broker.queues.queue_types import CLASSIC, QUORUM, STREAM, queue_type
from leveret.broker.streams.age import age_us
from leveret.broker.streams.limits import SEGMENT_OCTETS_MAX
from leveret.broker.terms import type_of
from leveret.wire.body_schema import refused_schema
from leveret.wire.table import Value

# RabbitMQ's limits in milliseconds: what an Erlang timer takes, and ten years for the life of a message
EXPIRES_MS_MAX: Final = 4_294_967_295
TTL_MS_MAX: Final = 315_360_000_000

Arguments = dict[str, Value]
# (name, value, AMQP type, all arguments) -> why a declaration with this value is refused, "" if it is accepted
Check = Callable[[str, Value, str, Arguments], str]


def any_value(name: str, value: Value, kind: str, arguments: Arguments) -> str:
    """Accept every value, as RabbitMQ does for arguments that it does not check."""
    return ""


def integer(smallest: int, largest: int = LONG_MAX, word: str = "value_too_large") -> Check:
    """Return a check for an integer in these bounds. word: RabbitMQ's for a larger one."""

    def check(name: str, value: Value, kind: str, arguments: Arguments) -> str:
        if isinstance(value, bool) or not isinstance(value, int) or kind == "timestamp":
            return no_integer(kind)
        if value < 0 <= smallest:
            return f"{{value_negative,{value}}}"
        if value < smallest:
            return f"{{value_zero,{value}}}"
        return f"{{{word},{value}}}" if value > largest else ""

    return check


def words(*known: str, complaint: str = "") -> Check:
    """Return a check for one of these words. complaint: RabbitMQ's answer to another one, if it does not quote it."""

    def check(name: str, value: Value, kind: str, arguments: Arguments) -> str:
        if not isinstance(value, str):
            return unacceptable(kind)
        what = name[2:].replace("-", " ")
        return "" if value in known else complaint or f"\"unsupported {what} '" + value + "'\""

    return check


def boolean(name: str, value: Value, kind: str, arguments: Arguments) -> str:
    """Accept true and false."""
    return "" if isinstance(value, bool) else unacceptable(kind)


def unacceptable(kind: str) -> str:
    """Return RabbitMQ's complaint about a value of this AMQP type."""
    return f"{{unacceptable_type,{kind}}}"


def no_integer(kind: str) -> str:
    """Return RabbitMQ's complaint about a value of this AMQP type where an integer is expected."""
    return f'"expected integer, got {kind}"'


def _version(name: str, value: Value, kind: str, arguments: Arguments) -> str:
    reason = integer(0)(name, value, kind, arguments)
    return reason or ("" if value in (1, 2) else f"\"unsupported queue version '{value!r}'\"")


def _routing_key(name: str, value: Value, kind: str, arguments: Arguments) -> str:
    if not isinstance(value, str):
        return unacceptable(kind)
    return "" if "x-dead-letter-exchange" in arguments else "routing_key_but_no_dlx_defined"


def _age(name: str, value: Value, kind: str, arguments: Arguments) -> str:
    if not isinstance(value, str):
        return unacceptable(kind)
    return "" if age_us(value) > 0 else "invalid_max_age"


def _schema(name: str, value: Value, kind: str, arguments: Arguments) -> str:
    return refused_schema(value) if isinstance(value, str) else unacceptable(kind)


def _is_age(value: object) -> bool:
    return isinstance(value, str) and age_us(value) > 0


class Argument:
    """One argument of queues.

    Attributes:
        name: with its `x-`.
        check: why a declaration with a value is refused.
        not_of: the queue types that refuse it, whatever its value.
        compared: the place in which redeclarations of classic queues, quorum queues and streams are compared with what
            there is: of several differences RabbitMQ names the first; 0 = it is not compared.
        setting: what policies may say, None = nothing.
        key: by which policies say it: the name, by default without its `x-`.
    """

    def __init__(
        self, name: str, check: Check, *, not_of: tuple[str, ...] = (), compared: tuple[int, int, int] = (0, 0, 0),
        setting: PolicyKey | None = None, key: str = "",
    ) -> None:  # fmt: skip
        self.name = name
        self.check = check
        self.not_of = not_of
        self.compared = compared
        self.setting = setting
        self.key = key or name.removeprefix("x-")
        if setting is not None:
            setting.argument = name


_OVERFLOWS: Final = ("drop-head", "reject-publish", "reject-publish-dlx")
_STRATEGIES: Final = ("at-most-once", "at-least-once")
_LOCATORS: Final = ("client-local", "balanced", "random", "least-leaders")
_NO_STREAM: Final = (STREAM,)
_ONLY_CLASSIC: Final = (QUORUM, STREAM)
_ONLY_QUORUM: Final = (CLASSIC, STREAM)
_ONLY_STREAM: Final = (CLASSIC, QUORUM)

# in the order in which values are checked: of several wrong ones the first is named
ARGUMENTS: Final = (
    Argument("x-queue-type", words(CLASSIC, QUORUM, STREAM), compared=(12, 11, 2)),
    Argument(
        "x-dead-letter-exchange", any_value, not_of=_NO_STREAM, compared=(3, 1, 0),
        setting=PolicyKey(is_text, "is not a valid dead letter exchange name", DECLARED),
    ),
    Argument(
        "x-expires", integer(1, EXPIRES_MS_MAX), not_of=_NO_STREAM, compared=(1, 4, 0),
        setting=PolicyKey(whole(1), "is not a valid queue expiry", SMALLER, (QUORUM,), is_for_operators=True),
    ),
    Argument(
        "x-message-ttl", integer(0, TTL_MS_MAX), not_of=_NO_STREAM, compared=(2, 14, 0),
        setting=PolicyKey(whole(0), "is not a valid message TTL", SMALLER, is_for_operators=True),
    ),
    Argument(
        "x-dead-letter-routing-key", _routing_key, not_of=_NO_STREAM, compared=(4, 2, 0),
        setting=PolicyKey(is_text, "is not a valid dead letter routing key", DECLARED),
    ),
    Argument(
        "x-dead-letter-strategy", words(*_STRATEGIES, complaint="invalid_dlx_strategy"), not_of=_ONLY_QUORUM,
        compared=(0, 3, 0),
        setting=PolicyKey(one_of(*_STRATEGIES), "is not a valid dead letter strategy", DECLARED),
    ),
    Argument(
        "x-max-length", integer(0), not_of=_NO_STREAM, compared=(5, 5, 0),
        setting=PolicyKey(whole(0), "is not a valid maximum length", SMALLER, is_for_operators=True),
    ),
    Argument(
        "x-max-length-bytes", integer(0), compared=(6, 6, 1),
        setting=PolicyKey(
            whole(0), "is not a valid maximum length in bytes", SMALLER, (STREAM,), is_for_operators=True
        ),
    ),
    Argument(
        "x-max-in-memory-length", integer(0), not_of=_ONLY_QUORUM, compared=(0, 7, 0),
        setting=PolicyKey(
            whole(0), "is not a valid maximum memory in bytes", is_for_operators=True, not_of=_NO_STREAM
        ),
    ),
    Argument(
        "x-max-in-memory-bytes", integer(0), not_of=_ONLY_QUORUM, compared=(0, 8, 0),
        setting=PolicyKey(
            whole(0), "is not a valid maximum memory in bytes", is_for_operators=True, not_of=_NO_STREAM
        ),
    ),
    Argument("x-max-priority", integer(0, 255, "max_value_exceeded"), not_of=_ONLY_CLASSIC, compared=(7, 0, 0)),
    Argument(
        "x-overflow", words(*_OVERFLOWS, complaint="invalid_overflow"), not_of=_NO_STREAM, compared=(8, 9, 0),
        setting=PolicyKey(one_of(*_OVERFLOWS), "is not a valid overflow value", DECLARED, (QUORUM,)),
    ),
    Argument(
        "x-queue-mode", words("default", "lazy"), not_of=_ONLY_CLASSIC, compared=(9, 0, 0),
        setting=PolicyKey(one_of("default", "lazy"), "is not a valid queue-mode value"),
    ),
    Argument(
        "x-queue-version", _version, not_of=_ONLY_CLASSIC, compared=(10, 0, 0),
        setting=PolicyKey(whole(1, 2), "is not a valid queue-version value", not_of=()),
    ),
    Argument("x-single-active-consumer", boolean, not_of=_NO_STREAM, compared=(11, 10, 0)),
    Argument("x-quorum-initial-group-size", integer(1), not_of=_ONLY_QUORUM, compared=(0, 12, 0)),
    Argument(
        "x-max-age", _age, not_of=_ONLY_STREAM, compared=(0, 0, 3),
        setting=PolicyKey(_is_age, "is not a valid max age", DECLARED, (STREAM,)),
    ),
    Argument(
        "x-stream-max-segment-size-bytes", integer(0), not_of=_ONLY_STREAM, compared=(0, 0, 4),
        setting=PolicyKey(whole(0, SEGMENT_OCTETS_MAX), "is not a valid segment size", DECLARED, (STREAM,)),
    ),
    Argument(
        "x-initial-cluster-size", integer(1), not_of=_ONLY_STREAM, compared=(0, 0, 5),
        setting=PolicyKey(whole(0), "is not a valid cluster size"),
    ),
    Argument(
        "x-queue-leader-locator", words(*_LOCATORS, complaint="invalid_queue_locator_arg"), not_of=(CLASSIC,),
        compared=(0, 15, 6),
        setting=PolicyKey(one_of(*_LOCATORS), "is not a valid queue leader locator value"),
    ),
    Argument(
        "x-delivery-limit", integer(-LONG_MAX), not_of=_NO_STREAM, compared=(14, 13, 0),
        setting=PolicyKey(
            whole(0), "is not a valid delivery limit", SMALLER, is_for_operators=True, not_of=_ONLY_QUORUM
        ),
    ),
    Argument("x-leveret-schema", _schema, not_of=_ONLY_STREAM, compared=(0, 0, 8)),
    Argument("x-leveret-seal-after-ms", integer(1, TTL_MS_MAX), not_of=_ONLY_STREAM, compared=(0, 0, 9)),
    Argument(
        "x-queue-master-locator", any_value, not_of=_ONLY_CLASSIC, compared=(13, 0, 0),
        setting=PolicyKey(one_of("client-local", "min-masters", "random"), "invalid queue-master-locator value"),
    ),
    Argument("x-stream-filter-size-bytes", any_value, compared=(0, 0, 7)),
    Argument(
        "x-consumer-timeout", any_value,
        setting=PolicyKey(whole(0), "is not a valid consumer timeout", SMALLER),
    ),
    Argument(
        "x-message-deduplication", boolean, not_of=_ONLY_CLASSIC, key="x-message-deduplication",
        setting=PolicyKey(is_boolean, "is not a valid x-message-deduplication value", DECLARED, (CLASSIC,)),
    ),
    Argument("x-internal-purpose", any_value),
    Argument("x-leveret-positions", any_value),
)  # fmt: skip
NAMES: Final = tuple([argument.name for argument in ARGUMENTS])
SETTINGS: Final[dict[str, PolicyKey]] = {
    argument.key: argument.setting for argument in ARGUMENTS if argument.setting is not None
}


def _compared(place: int) -> tuple[str, ...]:
    found = [(argument.compared[place], argument.name) for argument in ARGUMENTS if argument.compared[place] > 0]
    return tuple([name for _, name in sorted(found)])


# the arguments in which redeclarations of a queue of this type must agree with it, in the order of comparison
COMPARED: Final[dict[str, tuple[str, ...]]] = {
    CLASSIC: _compared(0),
    QUORUM: _compared(1),
    STREAM: _compared(2),
}


def settings_not_of(kind: str) -> set[str]:
    """Return the keys with which a policy does not match queues of this type."""
    found: set[str] = set()
    for argument in ARGUMENTS:
        setting = argument.setting
        if setting is not None and kind in (argument.not_of if setting.not_of is None else setting.not_of):
            found.add(argument.key)
    return found


# -- declarations ------------------------------------------------------------------------------------------------------


def refused_declaration(arguments: Arguments, types: dict[str, bytes], what: str) -> str:
    """Return the text of the 406 for these arguments of a queue, "" if they are accepted. Unknown ones are.

    As in RabbitMQ, the values of arguments that the queue type takes come first; the name of an exchange is checked
    for all types.

    Args:
        arguments: the decoded arguments.
        types: the encoded values, see `arguments.typed`.
        what: the queue, as error texts name it.
    """
    kind = queue_type(arguments)
    strange: list[str] = []
    for argument in ARGUMENTS:
        name = argument.name
        if name not in arguments:
            continue
        value, value_type = arguments[name], type_of(types[name])
        if name == "x-dead-letter-exchange" and not isinstance(value, str):
            return f"invalid type '{value_type}' for arg '{name}' in {what}"
        if kind in argument.not_of:
            strange.append(name)
            continue
        reason = argument.check(name, value, value_type, arguments)
        if reason:
            return f"invalid arg '{name}' for {what}: {reason}"
    for name in arguments:
        if name in strange:
            return f"invalid arg '{name}' for {what} of queue type rabbit_{kind}_queue"
    return ""


def refused_property(arguments: Arguments, durable: bool, exclusive: bool, auto_delete: bool, what: str) -> str:
    """Return the text of the 406 for a quorum queue or stream that is not permanent, "" if it is.

    RabbitMQ checks two sizes of streams last, and so does this.
    """
    kind = queue_type(arguments)
    if kind == CLASSIC:
        return ""
    for is_wrong, name in ((auto_delete, "auto-delete"), (exclusive, "exclusive-owner"), (not durable, "non-durable")):
        if is_wrong:
            return f"invalid property '{name}' for {what}"
    return _refused_size(arguments) if kind == STREAM else ""


def _refused_size(arguments: Arguments) -> str:
    segment = arguments.get("x-stream-max-segment-size-bytes", 0)
    if isinstance(segment, int) and segment > SEGMENT_OCTETS_MAX:
        return "Exceeded max value for x-stream-max-segment-size-bytes"
    filter_size = arguments.get("x-stream-filter-size-bytes", 16)
    if isinstance(filter_size, int) and not isinstance(filter_size, bool) and 16 <= filter_size <= 255:
        return ""
    return "Invalid value for  x-stream-filter-size-bytes"
