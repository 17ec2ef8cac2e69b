"""The topology of an exchange or of a virtual host, limited to what a drawing can show."""

from __future__ import annotations

from typing import Final

from leveret.control.command import Query
from leveret.control.node import BrokerNode
from leveret.control.refusal import bad_request, not_found
from leveret.control.sliced import Sliced, Steps
from leveret.control.topology import TopologyPart
from leveret.control.validation.checks import vhost_named

LIMIT_MAX: Final = 1000
"""Maximum number of destinations of one exchange, and of exchanges, in one answer."""


class GetTopology(Query):
    """Return exchanges and queues as nodes, and edges between them: bindings, alternate exchanges, dead letters."""

    vhost: str = "/"
    exchange: str | None = None  # only this exchange with its sources and destinations
    limit: int = 40  # most destinations and most sources of one exchange, and most exchanges; the rest is counted

    def run(self, node: BrokerNode) -> object:
        if not 1 <= self.limit <= LIMIT_MAX:
            raise bad_request(f"limit must be from 1 to {LIMIT_MAX}, not {self.limit}")
        vhost = vhost_named(node, self.vhost)
        if self.exchange is None:
            return Sliced(self._whole(TopologyPart(vhost, self.limit)))
        if self.exchange not in vhost.exchanges:
            raise not_found(f"no exchange '{self.exchange}' in vhost '{self.vhost}'")
        return Sliced(self._around(TopologyPart(vhost, self.limit), self.exchange))

    def _whole(self, topology: TopologyPart) -> Steps[object]:
        yield from topology.take_all()
        return topology.view()

    def _around(self, topology: TopologyPart, exchange: str) -> Steps[object]:
        yield from topology.take_around(exchange)
        return topology.view()
