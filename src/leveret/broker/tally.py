"""The counters of a virtual host, and the routes with publishes that they do not include yet."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mypy_extensions import i64

from leveret.broker.counters import Churn, Counters, Octets, Passage
from leveret.broker.dead_letters.deaths import TYPES, Deaths

if TYPE_CHECKING:
    from leveret.broker.exchanges.route import Route

# routes that may wait to be counted, so that counting never takes long
COUNTING_MAX: Final = 4096


class Tally:
    """The counters of a virtual host that belong to no present queue, channel or connection."""

    def __init__(self, churn: Churn) -> None:
        self.churn = churn  # the broker's
        self.counters = Counters()  # of all publishes; otherwise of deleted queues and closed channels
        self.octets = Octets()  # of closed connections
        self.passage = Passage()  # of the default exchange
        # direct replies of closed channels
        self.replies_delivered: i64 = 0
        self.replies_dropped: i64 = 0
        self.gone_passage = Passage()  # of deleted exchanges
        self.gone = {kind: Counters() for kind in TYPES}  # of deleted queues, by their type
        self.deaths = Deaths()
        self.to_confirm: i64 = 0  # publishes on closed channels in confirm mode
        self._counting: list[Route] = []

    def will_count(self, route: Route) -> None:
        """Add a route that is about to get publishes which are not counted yet."""
        if len(self._counting) >= COUNTING_MAX:
            self.count_publishes()
        self._counting.append(route)

    def count_publishes(self) -> None:
        """Update all counters of publishes."""
        for route in self._counting:
            passage = self.passage if route.exchange is None else route.exchange.passage
            self.counters.publish += route.count(passage)
        self._counting.clear()
