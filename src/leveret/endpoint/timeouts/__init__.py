"""Delayed messages of endpoints without native delays: kept in a database, sent when they are due.

NServiceBus worked like this before version 4.3 of the RabbitMQ transport (its documentation, "Disabling the timeout
manager"): deferred messages go to ``<endpoint>.Timeouts``, wait in a database, and leave through
``<endpoint>.TimeoutsDispatcher``. It exists for migrations; new messages are delayed by :mod:`leveret.delay`. See
docs/guides/legacy-timeouts.md.
"""

from leveret.endpoint.timeouts.drain import Drained, drain
from leveret.endpoint.timeouts.errors import NotATimeout, TimeoutsUnavailable
from leveret.endpoint.timeouts.manager import TimeoutManager
from leveret.endpoint.timeouts.queues import TimeoutQueues

__all__ = ["Drained", "NotATimeout", "TimeoutManager", "TimeoutQueues", "TimeoutsUnavailable", "drain"]
