"""Error texts for wrong arguments. The checks run only after a value could not be encoded."""

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
"""By the wire type of a field: the Python type of its value, and the name of that type in texts; other fields are int.
Tables may be bytes, since federation links pass them on encoded."""
_HINTS: Final = {
    "delivery_tag": "pass delivery.delivery_tag", "expiration": "milliseconds as text",
    "prefetch_count": "0 is no limit",
}  # fmt: skip
_NUMBER: Final[tuple[type | UnionType, str]] = (int, "int")
_IN_TABLES: Final = int | float | str | bytes | bytearray | Decimal | datetime | None
# the errors that the encoders raise for values of wrong types, interpreted or compiled
WRONG: Final = (TypeError, AttributeError, AssertionError, OverflowError)


def table(arguments: Mapping[str, Value] | None) -> dict[str, Value]:
    """Return the field `arguments` of a method as a dict; raise TypeError if it is not a mapping."""
    if arguments is None:
        return {}
    check("arguments", arguments, Mapping, "a dict or None")
    return dict(arguments)


def check(name: str, value: object, expected: type | UnionType, words: str, hint: str = "") -> None:
    """Raise TypeError with the expected type (`words`) if the argument is not of that type."""
    if not isinstance(value, expected):
        raise TypeError(f"{name} must be {words}, not {type(value).__name__}" + (f": {hint}" if hint else ""))


def check_fields(spec: MethodSpec, values: Mapping[str, object]) -> None:
    """Raise TypeError that names the first field of a method whose value has a wrong type."""
    for name, kind in spec.fields:
        if name in values:
            expected, words = _FIELDS.get(kind, _NUMBER)
            check(f"{spec.name}: {name}", values[name], expected, words, _HINTS.get(name, ""))
            if kind == "table":
                _check_value(f"{spec.name}: {name}", values[name])


def _check_value(name: str, value: object) -> None:
    """Raise TypeError that names the part of a table, or of a value in a table, that cannot be encoded."""
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
    """Explain why a method cannot be encoded: TypeError for a wrong type, ValueError for a number out of range."""
    check_fields(spec, values)
    raise ValueError(f"{spec.name}: a number is negative or too large: {dict(values)}") from error


def raise_publish_explained(
    body: object, exchange: object, routing_key: object, properties: object, error: Exception
) -> NoReturn:
    """Raise the reason why a publish cannot be encoded: TypeError for a wrong type, else the encoder's error."""
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
