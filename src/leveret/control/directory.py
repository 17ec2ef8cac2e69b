"""Sorted names of queues and exchanges: sorted again only after many changes."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Mapping
from operator import itemgetter
from typing import Final

from leveret.broker.vhost import VHost
from leveret.control.sliced import Steps, sort

Place = tuple[VHost, str]

# up to this number of changes are made one by one
CHANGES_MAX: Final = 64


class Directory:
    """The queues, or the exchanges, of each virtual host as (virtual host, name), by name."""

    def __init__(self) -> None:
        self._lists: dict[str, _Sorted] = {}

    def places(self, vhost: VHost, things: Mapping[str, object]) -> Steps[list[Place]]:
        """Return the places in one virtual host, by name. The list must not be changed."""
        found = self._lists.get(vhost.name)
        if found is None or found.vhost is not vhost:
            found = self._lists[vhost.name] = _Sorted(vhost)
        if found.generation != vhost.generation:
            generation, names = int(vhost.generation), set(things)
            yield
            yield from found.update(generation, names)
            yield
        return found.places


class _Sorted:
    def __init__(self, vhost: VHost) -> None:
        self.vhost = vhost
        self.generation = 0
        self.places: list[Place] = []
        self._names: set[str] = set()

    def update(self, generation: int, names: set[str]) -> Steps[None]:
        """Update the list to the names of this generation."""
        before = self._names
        come, gone = names - before, before - names
        if len(come) + len(gone) > CHANGES_MAX:
            yield
            places = yield from sort([(self.vhost, name) for name in names], itemgetter(1))
            # another caller may have brought the list to this generation or a later one
            if generation > self.generation:
                self.generation, self._names, self.places = generation, names, places
            return
        self.generation, self._names = generation, names
        if not come and not gone:
            return
        self.places = self.places.copy()  # a caller may be reading the old list
        for name in gone:
            del self.places[bisect_left(self.places, (self.vhost, name))]
        for name in come:
            insort(self.places, (self.vhost, name))
