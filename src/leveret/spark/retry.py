"""A broker that is away for a while is no reason to fail: Spark repeats a task at once, and not often."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Final, TypeVar

from leveret.client import AuthenticationFailed, ConnectionClosed
from leveret.wire.errors import CONNECTION_FORCED

T = TypeVar("T")

RECONNECT_S: Final = 30.0
"""How long a broker that was lost is called again; and how long is waited for whatever else may pass, as a consumer of
a driver whose host has vanished (its heartbeats are waited for thrice)."""

RETRY_S: Final = 0.5

_log = logging.getLogger("leveret.spark")


class Retry:
    """Tries again, for :data:`RECONNECT_S` from when it is made. what: is said in the log; passing: errors that pass
    besides that of a lost connection."""

    def __init__(self, what: str, *passing: type[Exception]) -> None:
        self._what = what
        self._passing: tuple[type[Exception], ...] = (ConnectionClosed, *passing)
        self._deadline_s = time.monotonic() + RECONNECT_S

    def run(self, action: Callable[[], T], close: Callable[[], None] = lambda: None) -> T:
        """What ``action`` returns. After an error that passes ``close`` is called, and ``action`` again; in the end the
        error is raised."""
        while True:
            try:
                return action()
            except self._passing as error:
                close()
                if not passes(error) or time.monotonic() > self._deadline_s:
                    raise
                _log.warning("%s: %s; retrying", self._what, error)
                time.sleep(RETRY_S)


def passes(error: Exception) -> bool:
    """Whether a broker that ended, or did not take, a connection for this reason may take the next one."""
    if isinstance(error, AuthenticationFailed):
        return False
    return not isinstance(error, ConnectionClosed) or error.code in (0, CONNECTION_FORCED)
