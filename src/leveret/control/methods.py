"""AMQP methods built from the arguments of commands; the limits for clients apply to them, too."""

from __future__ import annotations

from typing import Final

from leveret.control.refusal import NOT_AUTHORISED, Refused, bad_request, not_found
from leveret.control.tables import NO_TABLE
from leveret.wire import errors
from leveret.wire.grammar import MethodSpec
from leveret.wire.method import Method
from leveret.wire.table import Value, decode_table

NAME_OCTETS_MAX: Final = 255
_UNSAID: Final[dict[str, Value]] = {"bit": False, "shortstr": "", "longstr": b"", "table": {}}


def method_of(spec: MethodSpec, **fields: str | bool | int | bytes) -> Method:
    """Build a method; tables are given encoded, missing fields are empty. Raises Refused if a name is too long."""
    values: dict[str, Value] = {}
    tables: dict[str, bytes] = {}
    for name, kind in spec.fields:
        value = fields.get(name)
        if kind == "table":
            encoded = value if isinstance(value, bytes) else NO_TABLE
            tables[name], values[name] = encoded, decode_table(encoded, 0)[0]
        elif value is None:
            values[name] = _UNSAID.get(kind, 0)
        else:
            if kind == "shortstr" and isinstance(value, str) and len(value.encode()) > NAME_OCTETS_MAX:
                text = f"{name.replace('_', ' ')} should be less than 255 bytes, actually was {len(value.encode())}"
                raise bad_request(text)
            values[name] = value
    return Method(spec, values, tables)


def refusal_of(error: errors.ProtocolError) -> Refused:
    """Return the HTTP API's error for an AMQP error: 404 and 403 by kind, others as a bad request with its text."""
    if error.code == errors.NOT_FOUND:
        return not_found(error.text)
    if error.code in (errors.ACCESS_REFUSED, errors.NOT_ALLOWED):
        return Refused(NOT_AUTHORISED, "Access refused.")
    return bad_request(error.text)
