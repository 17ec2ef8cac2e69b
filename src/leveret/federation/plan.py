"""What a link is to be: everything whose change makes another link of it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from leveret.federation import names
from leveret.federation.upstream import Place, Upstream, places

NAME_OCTETS_MAX = 255


@dataclass(frozen=True)
class Plan:
    """id: of the link; cluster, vhost, exchange: the federated exchange; policy: the one that asks for the link."""

    id: str
    cluster: str
    vhost: str
    exchange: str
    policy: str
    upstream: Upstream

    def places(self) -> list[Place]:
        """Where the upstream is reached, by any of its URIs that can be used."""
        return places(self.upstream.uris, self.vhost)[0]

    def queue(self, upstream_vhost: str) -> str:
        """The name of the upstream queue."""
        return names.upstream_queue(self.upstream.exchange, upstream_vhost, self.cluster, self.vhost, self.exchange)

    @property
    def connection_name(self) -> str:
        """What both connections are called."""
        return names.connection_name(self.upstream.name, self.policy)

    def trouble(self) -> str:
        """Why there can't be such a link at all, "" if there can."""
        found, trouble = places(self.upstream.uris, self.vhost)
        if not found:
            return trouble
        longest = max(octets(names.internal_exchange(self.queue(place.address.vhost), "A")) for place in found)
        if octets(self.upstream.exchange) > NAME_OCTETS_MAX or longest > NAME_OCTETS_MAX:
            return (
                f"the names on the upstream would have up to {longest} octets, but AMQP allows only {NAME_OCTETS_MAX}"
            )
        return ""

    @cached_property
    def queues(self) -> set[tuple[str, int, str, str]]:
        """The upstream queues that it may have to do with: host, port, virtual host, name."""
        found = [place.address for place in self.places()]
        return {(each.host, each.port, each.vhost, self.queue(each.vhost)) for each in found}


def octets(name: str) -> int:
    """Size of a name on the wire."""
    return len(name.encode("utf-8", "surrogateescape"))
