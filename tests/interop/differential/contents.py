"""Decodes message contents; property tables keep their values' types on the wire."""

from __future__ import annotations

import struct
from typing import Any

from ...conformance.raw import NUMBERS, PROPERTIES, TABLE_NUMBERS, Reader, Typed

# headers that RabbitMQ 3.10 does not have yet; see justified.py
NEWER_HEADERS = ("x-last-death-exchange", "x-last-death-queue", "x-last-death-reason")


class TypedReader(Reader):
    """Reads tables into Typed values, so that 1 as octet, integer and long are three different values."""

    def value(self) -> Any:
        kind = chr(self.number(">B"))
        if kind in TABLE_NUMBERS:
            return Typed(kind, self.number(TABLE_NUMBERS[kind]))
        if kind in "Sx":
            return Typed(kind, self.take(self.number(">I")).decode("utf-8", "backslashreplace"))
        if kind == "t":
            return Typed(kind, self.number(">B") != 0)
        if kind == "D":
            return Typed(kind, (self.number(">B"), self.number(">I")))
        if kind == "F":
            return self.table()
        if kind == "V":
            return None
        assert kind == "A", f"unknown table value type {kind!r}"
        inner = TypedReader(self.take(self.number(">I")))
        items = []
        while inner.at < len(inner.data):
            items.append(inner.value())
        return items


def properties_of(header: bytes) -> tuple[int, dict[str, Any]]:
    """Return the size of the body and the properties from a content header's payload.

    The time of a death is left out, and so are newer headers of a dead-lettered message.
    """
    reader = TypedReader(header)
    class_id, _, size, flags = struct.unpack(">HHQH", reader.take(14))
    assert class_id == 60
    found = {}
    for name, kind, bit in PROPERTIES:
        if flags >> bit & 1:
            found[name] = reader.number(NUMBERS[kind]) if kind in NUMBERS else reader.read(kind)
    assert reader.at == len(header), "the content header is longer than its flags say"
    headers = found.get("headers", {})
    deaths = headers.get("x-death")
    for name in NEWER_HEADERS if deaths is not None else ():
        headers.pop(name, None)
    for death in deaths if isinstance(deaths, list) else []:
        if isinstance(death, dict) and isinstance(death.get("time"), Typed):
            death["time"] = Typed(death["time"].kind, "now")
    return size, found
