"""The deletion of a virtual host in steps, since it may contain very much.

From the beginning nobody may open it, nor change it by a command. It exists until the last step, which removes the
definitions and the predeclared exchanges, so a crash before that leaves a valid virtual host with the rest of its
objects.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mypy_extensions import i64

from leveret.broker.storage.definitions import VHOST, Definitions
from leveret.broker.storage.log import SETTLED_AT_ONCE

if TYPE_CHECKING:
    from leveret.broker.vhost import VHost

# The work of one turn, and how many messages of a queue or stage cost as much as a queue, an exchange or a stage
# itself.
COST_MAX: Final[i64] = 256
MESSAGES_COST: Final[i64] = 64


class VHostRemoval:
    """The deletion of one virtual host."""

    def __init__(self, vhost: VHost, definitions: Definitions, predeclared: set[str]) -> None:
        vhost.is_leaving = True
        self.is_over = False  # the virtual host is gone
        self._vhost = vhost
        self._definitions = definitions
        # exchanges first, so that all their bindings go together
        self._exchanges = [exchange for exchange in vhost.exchanges.values() if exchange.name not in predeclared]

    def step(self) -> None:
        """Delete a part of it."""
        vhost, room = self._vhost, COST_MAX
        queries = vhost.queries
        while room > 0:
            count: i64 = 0
            if queries.by_number:
                stage = next(reversed(queries.by_number.values()))
                count = stage.count()
                queries.drop(stage)
            elif queries.by_name:
                queries.forget(next(reversed(queries.by_name.values())))
            elif vhost.publishers.by_name:
                vhost.publishers.forget(next(reversed(vhost.publishers.by_name.values())).name)
            elif self._exchanges:
                exchange = self._exchanges.pop()
                if not exchange.is_deleted:
                    vhost.delete_exchange(exchange)
            elif vhost.queues:
                count = vhost.delete_queue(next(reversed(vhost.queues.values())))
            else:
                self._end()
                break
            room -= 1 + min(count, SETTLED_AT_ONCE) // MESSAGES_COST

    def _end(self) -> None:
        vhost = self._vhost
        for exchange in list(vhost.exchanges.values()):
            if exchange.name in vhost.exchanges:
                vhost.delete_exchange(exchange)
        self._definitions.remove_all_of("vhost", vhost.name)
        self._definitions.remove(VHOST, vhost.name)
        self.is_over = True
