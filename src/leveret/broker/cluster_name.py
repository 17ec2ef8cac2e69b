"""What the broker calls itself to clients and, above all, to the brokers that it is linked with.

A link's upstream queue bears it, and so do the messages that came through: two brokers of one name would take each
other's messages for their own. So each data directory has a name of its own by default, drawn at its first start and
kept, whatever becomes of the host's. It is in no export of definitions: who imports them elsewhere has another one.
"""

from __future__ import annotations

from typing import Final

from leveret.broker.log import Log
from leveret.wire.table import Value

OP: Final = "cluster_name"


class ClusterName:
    """configured: as the configuration has it, "" = it does not say; drawn: in case that this data directory has none.

    What an operator has set (the global parameter "cluster_name", as in RabbitMQ) goes before what the configuration
    says, and that before the data directory's own.
    """

    def __init__(self, log: Log, configured: str, drawn: str) -> None:
        self._log = log
        self._configured = configured
        self._own = drawn
        self._is_kept = False  # the journal knows it
        self._wanted = ""

    @property
    def value(self) -> str:
        """The name that counts."""
        return self._wanted or self._configured or self._own

    def want(self, name: str) -> None:
        """An operator has set it; "" = no more."""
        self._wanted = name

    def keep(self) -> None:
        """All that the journal has is read: if it has no name, it gets the one that was drawn."""
        if not self._is_kept:
            self._log.meta(self.record())
            self._is_kept = True

    def restore(self, record: dict[str, Value]) -> None:
        """What the journal says."""
        self._own = str(record["name"])
        self._is_kept = True

    def record(self) -> dict[str, Value]:
        """What a journal file says of it at its beginning."""
        return {"op": OP, "name": self._own}
