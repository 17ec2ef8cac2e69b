"""The arguments of exchanges, in one table: their values, the exchange types that take them, and what policies may set.

A new argument is a row of `EXCHANGE_ARGUMENTS` and the code that reads it (the exchange type's matcher, `Exchange`).
Other types ignore it, as in RabbitMQ. Error texts are those of RabbitMQ 3.10.8 and its plugins, measured; those of
x-message-deduplication are the plugin's (rabbitmq-message-deduplication 0.7), without the spaces from its source lines.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from leveret.broker.delayed.delay import DELAYED, DELAYED_TYPE
from leveret.broker.policy_keys import DECLARED, PolicyKey, is_text, one_of, whole
from leveret.broker.terms import shown, text_of, type_of
from leveret.wire.table import Value, decode_value, split_table

EXCHANGE: Final = "exchange"
ALTERNATE: Final = "alternate-exchange"
CONSISTENT_HASH: Final = "x-consistent-hash"
FEDERATION_UPSTREAM: Final = "x-federation-upstream"
DEDUPLICATION: Final = "x-message-deduplication"
RECENT_HISTORY: Final = "x-recent-history"
MAX_HOPS: Final = "x-max-hops"
LENGTH: Final = "x-recent-history-length"
CACHE_SIZE: Final = "x-cache-size"
CACHE_TTL: Final = "x-cache-ttl"
# the properties that x-consistent-hash can hash
PROPERTIES: Final = ("correlation_id", "message_id", "timestamp")
_INTEGERS: Final = ("byte", "short", "signedint", "long")

Encoded = dict[str, bytes]
# (encoded value, None = it is missing; all encoded arguments; the exchange as error texts name it) -> the text of the
# 406 for a declaration with this value, "" if it is accepted
Check = Callable[[bytes | None, Encoded, str], str]


def any_value(value: bytes | None, arguments: Encoded, what: str) -> str:
    """Accept every value, and none."""
    return ""


def _alternate(value: bytes | None, arguments: Encoded, what: str) -> str:
    if value is None or value[:1] == b"S":
        return ""
    return f"invalid type '{type_of(value)}' for arg '{ALTERNATE}' in {what}"


def _delayed_type(value: bytes | None, arguments: Encoded, what: str) -> str:
    kind = decode_value(value, 0, len(value), 0)[0] if value is not None else None
    if not isinstance(kind, str):
        return f"Invalid argument, '{DELAYED_TYPE}' must be an existing exchange type"
    return f"Invalid argument, '{DELAYED}' can't be used for '{DELAYED_TYPE}'" if kind == DELAYED else ""


def _hash_header(value: bytes | None, arguments: Encoded, what: str) -> str:
    # RabbitMQ closes the connection with an internal error
    return "hash-header must be a longstr" if value is not None and value[:1] != b"S" else ""


def _hash_property(value: bytes | None, arguments: Encoded, what: str) -> str:
    if value is None:
        return ""
    if value[:1] != b"S":
        return "hash-property must be a longstr"
    if "hash-header" in arguments:
        return "hash-header and hash-property are mutually exclusive"
    wanted = (text_of(value) or b"").decode("utf-8", "surrogateescape")
    return "" if wanted in PROPERTIES else f"Unsupported property: {wanted}"


def _max_hops(value: bytes | None, arguments: Encoded, what: str) -> str:
    if value is None:
        return f"Argument {MAX_HOPS} missing"
    return "" if value[:1] in (b"l", b"L") else f"Argument {MAX_HOPS} must be of type long"


def _length(value: bytes | None, arguments: Encoded, what: str) -> str:
    if value is None or (type_of(value) in _INTEGERS and int(shown(value)) > 0):
        return ""
    return f"Invalid argument {shown(value)}, '{LENGTH}' must be a positive integer"


def _cache_size(value: bytes | None, arguments: Encoded, what: str) -> str:
    is_valid = value is not None and number(decode_value(value, 0, len(value), 0)[0]) > 0
    return "" if is_valid else f"Missing or invalid argument, '{CACHE_SIZE}' must be an integer greater than 0"


def _cache_ttl(value: bytes | None, arguments: Encoded, what: str) -> str:
    if value is None or number(decode_value(value, 0, len(value), 0)[0]) > 0:
        return ""
    return f"Invalid argument, '{CACHE_TTL}' must be an integer greater than 0"


def _persistence(value: bytes | None, arguments: Encoded, what: str) -> str:
    if value is None or value == b"S\0\0\0\6memory":
        return ""
    if value == b"S\0\0\0\4disk":
        return "Invalid argument, 'x-cache-persistence' must be 'memory': this broker keeps no cache on disk"
    return "Invalid argument, 'x-cache-persistence' must be either 'disk' or 'memory'"


def number(value: Value) -> int:
    """Return an integer that may be written as a string of digits, as the deduplication plugin accepts it; else -1."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    is_digits = isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 19
    return int(str(value)) if is_digits else -1


class ExchangeArgument:
    """One argument of exchanges.

    Attributes:
        name: as it is declared.
        check: why a declaration is refused; it is asked about a missing argument, too.
        of: the exchange types that take it; () = all.
        setting: what policies may say, None = nothing.
        key: by which policies say it: the name.
    """

    def __init__(
        self, name: str, check: Check = any_value, *, of: tuple[str, ...] = (), setting: PolicyKey | None = None
    ) -> None:
        self.name = name
        self.check = check
        self.of = of
        self.setting = setting
        if setting is not None:
            setting.argument = name


_BY_POLICY: Final = (EXCHANGE,)

# in the order in which values are checked: of several wrong ones the first is named
EXCHANGE_ARGUMENTS: Final = (
    ExchangeArgument(
        ALTERNATE, _alternate, setting=PolicyKey(is_text, "is not a valid alternate exchange name", DECLARED)
    ),
    ExchangeArgument(DELAYED_TYPE, _delayed_type, of=(DELAYED,)),
    ExchangeArgument("hash-header", _hash_header, of=(CONSISTENT_HASH,)),
    ExchangeArgument("hash-property", _hash_property, of=(CONSISTENT_HASH,)),
    ExchangeArgument(MAX_HOPS, _max_hops, of=(FEDERATION_UPSTREAM,)),
    ExchangeArgument("x-downstream-name", of=(FEDERATION_UPSTREAM,)),
    ExchangeArgument("x-downstream-vhost", of=(FEDERATION_UPSTREAM,)),
    ExchangeArgument(LENGTH, _length, of=(RECENT_HISTORY,)),
    ExchangeArgument(
        CACHE_SIZE, _cache_size, of=(DEDUPLICATION,),
        setting=PolicyKey(whole(1), "is not a valid x-cache-size", DECLARED, _BY_POLICY),
    ),
    ExchangeArgument(
        CACHE_TTL, _cache_ttl, of=(DEDUPLICATION,),
        setting=PolicyKey(whole(1), "is not a valid x-cache-ttl", DECLARED, _BY_POLICY),
    ),
    ExchangeArgument(
        "x-cache-persistence", _persistence, of=(DEDUPLICATION,),
        setting=PolicyKey(one_of("memory"), "is not a valid x-cache-persistence: this broker has \"memory\" only"),
    ),
    ExchangeArgument("x-internal-purpose"),
    ExchangeArgument("x-super-stream"),
)  # fmt: skip
EXCHANGE_ARGUMENT_NAMES: Final = tuple(sorted([argument.name for argument in EXCHANGE_ARGUMENTS]))
EXCHANGE_SETTINGS: Final[dict[str, PolicyKey]] = {
    argument.name: argument.setting for argument in EXCHANGE_ARGUMENTS if argument.setting is not None
}


def refused_exchange(kind: str, table: bytes, what: str) -> str:
    """Return the text of the 406 for an exchange of this type with these arguments, "" if they are valid.

    Args:
        kind: the exchange type.
        table: the encoded arguments.
        what: the exchange, as error texts name it.
    """
    arguments = {name.decode("utf-8", "surrogateescape"): value for name, value in split_table(table)}
    for argument in EXCHANGE_ARGUMENTS:
        if not argument.of or kind in argument.of:
            reason = argument.check(arguments.get(argument.name), arguments, what)
            if reason:
                return reason
    return ""
