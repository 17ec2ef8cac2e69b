"""Timeouts of endpoints that know no native delay: kept in a database, sent when they are due.

The way of NServiceBus before the RabbitMQ transport's version 4.3 (seed, "Disabling the timeout manager"): deferred
messages go to ``<endpoint>.Timeouts``, wait in a database, and leave through ``<endpoint>.TimeoutsDispatcher``. It is
here for the way out of it; what is sent today is delayed by :mod:`leveret.delay`. See docs/guides/legacy-timeouts.md.
"""

from leveret.endpoint.timeouts.drain import Drained, drain
from leveret.endpoint.timeouts.errors import NotATimeout, TimeoutsUnavailable
from leveret.endpoint.timeouts.manager import TimeoutManager
from leveret.endpoint.timeouts.queues import TimeoutQueues

__all__ = ["Drained", "NotATimeout", "TimeoutManager", "TimeoutQueues", "TimeoutsUnavailable", "drain"]
