"""The bindings that an index has in one place: none, one, as in most places, or several by their identities.

One needs no dictionary, which takes 0.2 KiB.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Union

if TYPE_CHECKING:
    from leveret.broker.exchanges.binding import Binding

BindingSet = Union["Binding", dict[int, "Binding"], None]


def added(binding_set: BindingSet, binding: Binding) -> BindingSet:
    """With this one."""
    if binding_set is None:
        return binding
    if not isinstance(binding_set, dict):
        return {id(binding_set): binding_set, id(binding): binding}
    binding_set[id(binding)] = binding
    return binding_set


def removed(binding_set: BindingSet, binding: Binding) -> BindingSet:
    """Without this one, which is among them."""
    if not isinstance(binding_set, dict):
        return None
    del binding_set[id(binding)]
    return binding_set or None


def take(binding_set: BindingSet, found: list[Binding]) -> None:
    """All of them are found."""
    if isinstance(binding_set, dict):
        found.extend(binding_set.values())
    elif binding_set is not None:
        found.append(binding_set)
