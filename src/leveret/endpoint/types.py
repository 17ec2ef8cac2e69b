"""Names of message types: classes here, full type names on the wire, exchanges and routing keys on the broker."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Final, TypeVar

import msgspec

T = TypeVar("T")

_NAME: Final = "__leveret_message_type__"


def message_type(name: str) -> Callable[[type[T]], type[T]]:
    """Give a class the name that its messages have on the wire: the other side's, such as ``Sales.PlaceOrder``.

    Without it a message type is called by its module and class. ``ValueError`` for an empty name and for one with a
    comma or a semicolon, which separate names in the header.
    """
    if not name or any(mark in name for mark in ",;"):
        raise ValueError(f"{name!r} is not the name of a message type")

    def named(kind: type[T]) -> type[T]:
        setattr(kind, _NAME, name)
        return kind

    return named


def name_of(kind: type) -> str:
    """The full name of a message type. ``TypeError`` for a class that is none."""
    if not _is_message(kind):
        raise TypeError(
            f"{kind.__qualname__} is not a message type: messages are dataclasses, msgspec structs, or a dict together "
            "with the name of its type"
        )
    name = kind.__dict__.get(_NAME)  # not inherited: every class has a name of its own
    return name if isinstance(name, str) else f"{kind.__module__}.{kind.__qualname__}"


def names_of(kind: type) -> tuple[str, ...]:
    """The name of a message type and of those it descends from, the most special first."""
    return (name_of(kind), *(name_of(parent) for parent in kind.__mro__[1:] if _is_message(parent)))


def exchange_name(name: str) -> str:
    """The exchange of events of a type in the conventional topology: ``Namespace:Type``."""
    namespace, _, last = name.rpartition(".")
    return f"{namespace}:{last}"


def routing_key(names: tuple[str, ...]) -> str:
    """The routing key of events in the direct topology: the types from the most general one on, dots as hyphens."""
    return ".".join(name.replace(".", "-") for name in reversed(names))


def enclosed(header: str) -> list[str]:
    """The full names in an enclosed-types header: what .NET says of assemblies and versions is left away."""
    names = (entry.split(",")[0].strip() for entry in header.split(";"))
    return [name for name in names if name]


def _is_message(kind: type) -> bool:
    return kind is not msgspec.Struct and (dataclasses.is_dataclass(kind) or issubclass(kind, msgspec.Struct))
