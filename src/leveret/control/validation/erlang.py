"""JSON values as RabbitMQ prints them in error texts: as Erlang terms."""

from __future__ import annotations

from leveret.broker.terms import binary


def term(value: object) -> str:
    """Format a value on one line, as Erlang's ~p prints it."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return binary(value.encode("utf-8", "surrogateescape"))
    if isinstance(value, float):
        return _decimal(value)
    if isinstance(value, list | tuple):
        return "[" + ",".join(term(item) for item in value) + "]"
    if isinstance(value, dict):
        return "#{" + ",".join(f"{term(name)} => {term(item)}" for name, item in sorted(value.items())) + "}"
    return str(value)


def pairs(table: dict[str, object]) -> str:
    """Format a table as the list of pairs that RabbitMQ makes of it, sorted by name."""
    return "[" + ",".join(f"{{{term(name)},{term(item)}}}" for name, item in sorted(table.items())) + "]"


def _decimal(value: float) -> str:
    mantissa, _, exponent = repr(value).partition("e")
    if not exponent:
        return mantissa
    return f"{mantissa if '.' in mantissa else mantissa + '.0'}e{int(exponent)}"
