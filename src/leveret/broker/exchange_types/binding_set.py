"""A set of bindings in one place of an index: None, one binding, as is most common, or a dictionary by identity.

A single binding needs no dictionary, which would take 0.2 KiB.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Union

if TYPE_CHECKING:
    from leveret.broker.exchanges.binding import Binding

BindingSet = Union["Binding", dict[int, "Binding"], None]


def added(binding_set: BindingSet, binding: Binding) -> BindingSet:
    """Return the set with this binding; a dictionary is changed in place."""
    if binding_set is None:
        return binding
    if not isinstance(binding_set, dict):
        return {id(binding_set): binding_set, id(binding): binding}
    binding_set[id(binding)] = binding
    return binding_set


def removed(binding_set: BindingSet, binding: Binding) -> BindingSet:
    """Return the set without this binding, which must be in it."""
    if not isinstance(binding_set, dict):
        return None
    del binding_set[id(binding)]
    return binding_set or None


def take(binding_set: BindingSet, found: list[Binding]) -> None:
    """Append all bindings of the set to `found`."""
    if isinstance(binding_set, dict):
        found.extend(binding_set.values())
    elif binding_set is not None:
        found.append(binding_set)
