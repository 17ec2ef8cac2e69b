"""What a virtual host has counted, and the routes that have counts for it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mypy_extensions import i64

from leveret.broker.counters import Churn, Counters, Octets, Passage
from leveret.broker.dead_letters.deaths import TYPES, Deaths

if TYPE_CHECKING:
    from leveret.broker.exchanges.route import Route

# how many routes may wait to be counted, lest the one who asks waits for long
COUNTING_MAX: Final = 4096


class Tally:
    """counters: of publishers, all; of queues and channels, those that are gone. octets: of connections that are gone.

    passage: of the default exchange, gone_passage: of exchanges that are gone; churn: the broker's; gone: of queues
    that are gone, by their type; deaths: of messages; replies_…: direct replies of channels that are gone.
    """

    def __init__(self, churn: Churn) -> None:
        self.churn = churn
        self.counters = Counters()
        self.octets = Octets()
        self.passage = Passage()
        self.replies_delivered: i64 = 0
        self.replies_dropped: i64 = 0
        self.gone_passage = Passage()
        self.gone = {kind: Counters() for kind in TYPES}
        self.deaths = Deaths()
        self.to_confirm: i64 = 0  # what was published on channels with confirms that are gone
        self._counting: list[Route] = []

    def will_count(self, route: Route) -> None:
        """This route is about to have messages that are not counted yet."""
        if len(self._counting) >= COUNTING_MAX:
            self.count_publishes()
        self._counting.append(route)

    def count_publishes(self) -> None:
        """Bring all counters of what was published up to date."""
        for route in self._counting:
            passage = self.passage if route.exchange is None else route.exchange.passage
            self.counters.publish += route.count(passage)
        self._counting.clear()
