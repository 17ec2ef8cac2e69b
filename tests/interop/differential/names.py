"""Names that a broker generates, replaced by aliases in order of appearance."""

from __future__ import annotations

import re
from typing import Any

from ...conformance.raw import Typed

_MADE_UP = re.compile(r"amq\.(gen|ctag)-[\w-]{22}|amq\.rabbitmq\.(reply-to)\.[\w+/=-]+(?:\.[\w+/=-]+)?")
_KINDS = {"gen": "gen", "ctag": "ctag", "reply-to": "reply"}


class Names:
    """The names of one broker for its queues, consumers and reply addresses in a script."""

    def __init__(self) -> None:
        self._known: dict[str, str] = {}
        self._by_alias: dict[str, str] = {}
        self._counts: dict[str, int] = {}

    def of_kind(self, kind: str) -> list[str]:
        """Return all names of a kind ("gen", "ctag", "reply") so far."""
        return [name for alias, name in self._by_alias.items() if alias[1:].startswith(kind)]

    def hide(self, item: Any) -> Any:
        """Return the item with aliases ("@gen1") instead of names, also within tables and arrays."""
        if isinstance(item, str):
            return _MADE_UP.sub(self._alias, item)
        if isinstance(item, dict):
            return {self.hide(key): self.hide(each) for key, each in item.items()}
        if isinstance(item, list):
            return [self.hide(each) for each in item]
        if isinstance(item, Typed):
            return Typed(item.kind, self.hide(item.value))
        return item

    def reveal(self, item: Any) -> Any:
        """Reverse `hide`; an unknown alias stays as it is."""
        if isinstance(item, str):
            return self._by_alias.get(item, item)
        if isinstance(item, dict):
            return {key: self.reveal(each) for key, each in item.items()}
        if isinstance(item, list):
            return [self.reveal(each) for each in item]
        return item

    def _alias(self, found: re.Match[str]) -> str:
        name = found[0]
        if name not in self._known:
            kind = _KINDS[found[1] or found[2]]
            self._counts[kind] = self._counts.get(kind, 0) + 1
            self._known[name] = f"@{kind}{self._counts[kind]}"
            self._by_alias[self._known[name]] = name
        return self._known[name]
