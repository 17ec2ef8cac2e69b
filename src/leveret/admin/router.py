"""Finds the route of a path. Segments are decoded one by one, so that "%2F" is part of a name and not a separator."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Generic, TypeVar
from urllib.parse import unquote

T = TypeVar("T")


def segments(raw_path: bytes) -> list[str] | None:
    """Return the decoded segments of a path, without a trailing "/". None if they are not UTF-8."""
    try:
        found = [unquote(part, errors="strict") for part in raw_path.decode("ascii").split("/")[1:]]
    except UnicodeDecodeError:
        return None
    if found and not found[-1]:
        found.pop()
    return found


class _Step(Generic[T]):
    def __init__(self) -> None:
        self.literal: dict[str, _Step[T]] = {}
        self.variable: _Step[T] | None = None
        self.found: tuple[T, tuple[str, ...]] | None = None


class Router(Generic[T]):
    """A tree of path patterns such as "/queues/{vhost}/{name}"; literal segments take precedence over variables."""

    def __init__(self, routes: Iterable[tuple[str, T]]) -> None:
        self._root: _Step[T] = _Step()
        for pattern, target in routes:
            self._add(pattern, target)

    def _add(self, pattern: str, target: T) -> None:
        step, names = self._root, []
        for part in pattern.strip("/").split("/") if pattern != "/" else ():
            if part.startswith("{"):
                names.append(part[1:-1])
                step.variable = step.variable or _Step()
                step = step.variable
            else:
                step = step.literal.setdefault(part, _Step())
        if step.found is not None:
            raise ValueError(f"{pattern} is there twice")
        step.found = (target, tuple(names))

    def find(self, path: list[str]) -> tuple[T, dict[str, str]] | None:
        """Return the target of a path and the values of its variables, or None."""
        return self._find(self._root, path, 0, ())

    def _find(
        self, step: _Step[T], path: list[str], at: int, values: tuple[str, ...]
    ) -> tuple[T, dict[str, str]] | None:
        if at == len(path):
            return None if step.found is None else (step.found[0], dict(zip(step.found[1], values, strict=True)))
        further = step.literal.get(path[at])
        if further is not None and (found := self._find(further, path, at + 1, values)) is not None:
            return found
        if step.variable is None:
            return None
        return self._find(step.variable, path, at + 1, (*values, path[at]))
