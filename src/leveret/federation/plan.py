"""The plan of a link: if any part of it changes, the link changes."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from leveret.federation import names
from leveret.federation.upstream import Upstream, UpstreamAddress, places

NAME_OCTETS_MAX = 255


@dataclass(frozen=True)
class LinkPlan:
    """The plan of a link.

    Attributes:
        id: Of the link.
        cluster, vhost, exchange: The federated exchange.
        policy: The one that asks for the link.
    """

    id: str
    cluster: str
    vhost: str
    exchange: str
    policy: str
    upstream: Upstream

    def places(self) -> list[UpstreamAddress]:
        """The places of the upstream, for all usable URIs."""
        return places(self.upstream.uris, self.vhost)[0]

    def queue(self, upstream_vhost: str) -> str:
        """The name of the upstream queue."""
        return names.upstream_queue(self.upstream.exchange, upstream_vhost, self.cluster, self.vhost, self.exchange)

    @property
    def connection_name(self) -> str:
        """The name of both connections."""
        return names.connection_name(self.upstream.name, self.policy)

    def trouble(self) -> str:
        """Why such a link is impossible, "" if it is possible."""
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
        """All upstream queues that the link may use: host, port, virtual host, name."""
        found = [place.address for place in self.places()]
        return {(each.host, each.port, each.vhost, self.queue(each.vhost)) for each in found}


def octets(name: str) -> int:
    """The size of a name on the wire, in bytes."""
    return len(name.encode("utf-8", "surrogateescape"))
