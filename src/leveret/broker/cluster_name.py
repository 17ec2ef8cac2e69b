"""The cluster name: what the broker calls itself to clients and to the brokers that it is federated with.

The upstream queue of a link is named after it, and messages that came through the link carry it: two brokers with the
same name would take each other's messages for their own. So each data directory has a name of its own by default, drawn
at its first start and kept even if the host's name changes. Exported definitions do not contain it, so that another
broker does not import it.
"""

from __future__ import annotations

from typing import Final

from leveret.broker.storage.log import Log
from leveret.wire.table import Value

OP: Final = "cluster_name"


class ClusterName:
    """The name: an operator's (global parameter "cluster_name", as in RabbitMQ), else configured, else drawn."""

    def __init__(self, log: Log, configured: str, drawn: str) -> None:
        self._log = log
        self._configured = configured  # "" = not configured
        self._own = drawn  # until the journal's name is read
        self._is_kept = False  # the journal has it
        self._wanted = ""  # set by an operator; "" = not set

    @property
    def value(self) -> str:
        """The name in effect."""
        return self._wanted or self._configured or self._own

    def want(self, name: str) -> None:
        """Set the operator's name; "" = remove it."""
        self._wanted = name

    def keep(self) -> None:
        """Journal the drawn name if the journal, read to its end, has none."""
        if not self._is_kept:
            self._log.meta(self.record())
            self._is_kept = True

    def restore(self, record: dict[str, Value]) -> None:
        """Take over the name of a journal record."""
        self._own = str(record["name"])
        self._is_kept = True

    def record(self) -> dict[str, Value]:
        """Return the record for the beginning of a journal file."""
        return {"op": OP, "name": self._own}
