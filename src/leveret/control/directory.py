"""The names of what there is, in order: sorted again only when something came or went."""

from __future__ import annotations

from collections.abc import Mapping

from leveret.broker.vhost import VHost

Place = tuple[VHost, str]


class Directory:
    """Queues, or exchanges, of each virtual host as (virtual host, name), by name."""

    def __init__(self) -> None:
        self._places: dict[str, tuple[VHost, int, list[Place]]] = {}

    def places(self, vhost: VHost, things: Mapping[str, object]) -> list[Place]:
        """Those of one virtual host. Not to be altered."""
        kept = self._places.get(vhost.name)
        if kept is None or kept[0] is not vhost or kept[1] != vhost.generation:
            kept = (vhost, int(vhost.generation), [(vhost, name) for name in sorted(things)])
            self._places[vhost.name] = kept
        return kept[2]
