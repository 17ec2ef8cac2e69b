"""What is wrong with an argument, in words: looked for where a value of a wrong type cannot be encoded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from types import UnionType
from typing import Final, NoReturn

from leveret.wire.grammar import MethodSpec
from leveret.wire.properties import PROPERTIES, Properties
from leveret.wire.table import Value

_FIELDS: Final[dict[str, tuple[type | UnionType, str]]] = {
    "shortstr": (str, "str"), "longstr": (str | bytes, "bytes"), "bit": (int, "bool"),
    "table": (Mapping | bytes, "a dict"),
}  # fmt: skip
"""By the type of a field on the wire: what Python's value is an instance of, and what that is called; else int. Links
of federation pass tables on as they came: encoded."""
_HINTS: Final = {
    "delivery_tag": "pass delivery.delivery_tag", "expiration": "milliseconds as text",
    "prefetch_count": "0 is no limit",
}  # fmt: skip
_NUMBER: Final[tuple[type | UnionType, str]] = (int, "int")
_IN_TABLES: Final = int | float | str | bytes | bytearray | Decimal | datetime | None
# what the encoders raise for values of wrong types, interpreted or compiled
WRONG: Final = (TypeError, AttributeError, AssertionError, OverflowError)


def table(arguments: Mapping[str, Value] | None) -> dict[str, Value]:
    """The field arguments of a method. TypeError if they are no mapping."""
    if arguments is None:
        return {}
    check("arguments", arguments, Mapping, "a dict or None")
    return dict(arguments)


def check(name: str, value: object, expected: type | UnionType, words: str, hint: str = "") -> None:
    """TypeError that says what was expected of the argument, unless that is what it is."""
    if not isinstance(value, expected):
        raise TypeError(f"{name} must be {words}, not {type(value).__name__}" + (f": {hint}" if hint else ""))


def check_fields(spec: MethodSpec, values: Mapping[str, object]) -> None:
    """TypeError that names the first field of a method whose value has a wrong type."""
    for name, kind in spec.fields:
        if name in values:
            expected, words = _FIELDS.get(kind, _NUMBER)
            check(f"{spec.name}: {name}", values[name], expected, words, _HINTS.get(name, ""))
            if kind == "table":
                _check_value(f"{spec.name}: {name}", values[name])


def _check_value(name: str, value: object) -> None:
    """TypeError that names what cannot be encoded of a value in a table, or of a table."""
    if isinstance(value, Mapping):
        for key, each in value.items():
            check(f"{name}: a key", key, str, "str")
            _check_value(f"{name}[{key!r}]", each)
    elif isinstance(value, Sequence) and not isinstance(value, _IN_TABLES):
        for index, each in enumerate(value):
            _check_value(f"{name}[{index}]", each)
    else:
        check(name, value, _IN_TABLES, "of a type that AMQP tables have")


def raise_explained(spec: MethodSpec, values: Mapping[str, object], error: Exception) -> NoReturn:
    """Why a method could not be encoded: TypeError for a value of a wrong type, ValueError for a number too large."""
    check_fields(spec, values)
    raise ValueError(f"{spec.name}: a number is negative or too large: {dict(values)}") from error


def raise_publish_explained(
    body: object, exchange: object, routing_key: object, properties: object, error: Exception
) -> NoReturn:
    """Why a publish could not be encoded."""
    check("publish: body", body, bytes | bytearray | memoryview, "bytes", "encode text first" * isinstance(body, str))
    check("publish: exchange", exchange, str, "str")
    check("publish: routing_key", routing_key, str, "str")
    check("publish: properties", properties, Properties | None, "Properties or None")
    for name, kind in PROPERTIES:
        value = getattr(properties, name, None)
        if value is not None:
            expected, words = _FIELDS.get(kind, _NUMBER)
            check(f"publish: property {name}", value, expected, words, _HINTS.get(name, ""))
            if kind == "table":
                _check_value(f"publish: property {name}", value)
    raise error
