"""AMQP methods that commands make of their arguments: what a client may not say, they may not say either."""

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
    """A method with these fields; tables are given encoded, the other fields are empty. Refused for a name too long."""
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
    """What the HTTP API makes of an AMQP error: 404 and 403 by their kinds, others are a bad request with its text."""
    if error.code == errors.NOT_FOUND:
        return not_found(error.text)
    if error.code in (errors.ACCESS_REFUSED, errors.NOT_ALLOWED):
        return Refused(NOT_AUTHORISED, "Access refused.")
    return bad_request(error.text)
