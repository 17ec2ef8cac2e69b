"""Bytes in the text of an error, as RabbitMQ prints them: Erlang's notation of a binary.

RabbitMQ 3.10.8, measured. It breaks long dumps after 80 columns; leveret's stay on one line.
"""

from __future__ import annotations

from typing import Final

SNIPPET_OCTETS: Final = 16
_ESCAPES: Final[dict[int, str]] = {
    8: "\\b", 9: "\\t", 10: "\\n", 11: "\\v", 12: "\\f", 13: "\\r", 27: "\\e", 34: '\\"', 92: "\\\\",
}  # fmt: skip


def numbers(octets: bytes) -> str:
    """Bytes as their numbers: <<1,2,3>>."""
    return "<<" + ",".join([str(octet) for octet in octets]) + ">>"


def binary(octets: bytes) -> str:
    """<<"text">> if all bytes are printable ASCII or have a one-letter escape, else their numbers."""
    parts: list[str] = []
    for octet in octets:
        escape = _ESCAPES.get(octet)
        if escape is None and not 32 <= octet < 127:
            return numbers(octets)
        parts.append(escape or chr(octet))
    return '<<"' + "".join(parts) + '">>' if octets else "<<>>"


def snippet(octets: bytes) -> str:
    """The text `all octets = <<"few">>`, or the first 16 of many."""
    if len(octets) <= SNIPPET_OCTETS:
        return f"all octets = {binary(octets)}"
    return f"first {SNIPPET_OCTETS} octets = {binary(octets[:SNIPPET_OCTETS])}"
