"""Matching of the headers exchange: x-match all, any, all-with-x, any-with-x (RabbitMQ's exchange documentation)."""

from __future__ import annotations

from leveret.wire.table import Value


def matches(arguments: dict[str, Value], headers: dict[str, Value]) -> bool:
    """Whether a binding with these arguments takes a message with these headers. A null value asks for presence."""
    mode = arguments.get("x-match", "all")
    with_x = mode in ("all-with-x", "any-with-x")
    wanted = [(k, v) for k, v in arguments.items() if k != "x-match" and (with_x or not k.startswith("x-"))]
    hits = 0
    for key, value in wanted:
        if key in headers and (value is None or _equal(value, headers[key])):
            hits += 1
    if mode in ("any", "any-with-x"):
        return hits > 0
    return hits == len(wanted)


def _equal(left: Value, right: Value) -> bool:
    # True == 1 in Python, but a boolean and a number are different values on the wire
    return isinstance(left, bool) == isinstance(right, bool) and left == right
