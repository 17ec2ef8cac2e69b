"""Metrics for monitoring systems: the source of /metrics and `leveret ctl metrics`."""

from __future__ import annotations

import difflib

from leveret.control.command import Query
from leveret.control.metrics.collecting import collect
from leveret.control.metrics.scope import Scope
from leveret.control.metrics.table import BY_NAME, GROUPS, groups_of
from leveret.control.node import BrokerNode
from leveret.control.refusal import bad_request
from leveret.control.sliced import Sliced


class Metrics(Query):
    """Return [group, values of its labels, values of its metrics] for each row, see leveret.control.metrics.table."""

    families: tuple[str, ...] = ()  # only these groups, none = all
    vhosts: tuple[str, ...] | None = None  # only objects in these virtual hosts
    details: bool = False  # a row for each queue, channel, connection and exchange instead of their sums

    def run(self, node: BrokerNode) -> object:
        vhosts = [vhost for name, vhost in node.broker.vhosts.items() if self.vhosts is None or name in self.vhosts]
        return Sliced(collect(Scope(node, vhosts, self.details), self._groups()))

    def _groups(self) -> list[str]:
        if not self.families:
            return [group.name for group in GROUPS]
        try:
            return groups_of(list(self.families))
        except KeyError as error:
            near = difflib.get_close_matches(error.args[0], BY_NAME, 1)
            hint = f"; did you mean '{near[0]}'?" if near else ""
            raise bad_request(f"unknown metric family '{error.args[0]}'{hint}") from None
