"""Names of message types: of classes, full type names on the wire, and exchanges and routing keys on the broker."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Final, TypeVar

import msgspec

T = TypeVar("T")

_NAME: Final = "__leveret_message_type__"


def message_type(name: str) -> Callable[[type[T]], type[T]]:
    """Set the name that a class's messages have on the wire, such as ``Sales.PlaceOrder``; a class decorator.

    Without it, the name of a message type is made of its module and class.

    Args:
        name: Full type name, as the other endpoints use it.

    Raises:
        ValueError: The name is empty, or has a comma or a semicolon, which separate names in the header.
    """
    if not name or any(mark in name for mark in ",;"):
        raise ValueError(f"{name!r} is not the name of a message type")

    def named(kind: type[T]) -> type[T]:
        setattr(kind, _NAME, name)
        return kind

    return named


def name_of(kind: type) -> str:
    """Return the full name of a message type. Raises ``TypeError`` if the class is not a message type."""
    if not _is_message(kind):
        raise TypeError(
            f"{kind.__qualname__} is not a message type: messages are dataclasses, msgspec structs, or a dict together "
            "with the name of its type"
        )
    name = kind.__dict__.get(_NAME)  # not inherited: each class has its own name
    return name if isinstance(name, str) else f"{kind.__module__}.{kind.__qualname__}"


def names_of(kind: type) -> tuple[str, ...]:
    """Return the names of a message type and its parent types, the most derived first."""
    return (name_of(kind), *(name_of(parent) for parent in kind.__mro__[1:] if _is_message(parent)))


def exchange_name(name: str) -> str:
    """Return the exchange of a type of event in the conventional topology: ``Namespace:Type``."""
    namespace, _, last = name.rpartition(".")
    return f"{namespace}:{last}"


def routing_key(names: tuple[str, ...]) -> str:
    """Return an event's routing key in the direct topology: the types from the most general on, dots as hyphens."""
    return ".".join(name.replace(".", "-") for name in reversed(names))


def enclosed(header: str) -> list[str]:
    """Return the full names in an enclosed-types header, without .NET's assembly names and versions."""
    names = (entry.split(",")[0].strip() for entry in header.split(";"))
    return [name for name in names if name]


def _is_message(kind: type) -> bool:
    return kind is not msgspec.Struct and (dataclasses.is_dataclass(kind) or issubclass(kind, msgspec.Struct))
