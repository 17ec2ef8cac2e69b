"""The bindings that an index has in one place: none, one, as in most places, or several by their identities.

One needs no dictionary, which takes 0.2 KiB.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Union

if TYPE_CHECKING:
    from leveret.broker.binding import Binding

Alike = Union["Binding", dict[int, "Binding"], None]


def added(alike: Alike, binding: Binding) -> Alike:
    """With this one."""
    if alike is None:
        return binding
    if not isinstance(alike, dict):
        return {id(alike): alike, id(binding): binding}
    alike[id(binding)] = binding
    return alike


def removed(alike: Alike, binding: Binding) -> Alike:
    """Without this one, which is among them."""
    if not isinstance(alike, dict):
        return None
    del alike[id(binding)]
    return alike or None


def take(alike: Alike, found: list[Binding]) -> None:
    """All of them are found."""
    if isinstance(alike, dict):
        found.extend(alike.values())
    elif alike is not None:
        found.append(alike)
