"""Retries while the broker is away: Spark itself repeats a task at once, and only a few times."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Final, TypeVar

from leveret.client import AuthenticationFailed, ConnectionClosed
from leveret.wire.errors import CONNECTION_FORCED

T = TypeVar("T")

RECONNECT_S: Final = 30.0
"""Seconds of retries, for a lost broker and for other passing conditions, such as a consumer whose driver's host has
vanished: the broker notices that after three heartbeat intervals."""

RETRY_S: Final = 0.5

_log = logging.getLogger("leveret.spark")


class Retry:
    """Retries an action until :data:`RECONNECT_S` have passed since the construction of this object. ``what`` names the
    action in the log; ``passing`` errors are retried like a lost connection."""

    def __init__(self, what: str, *passing: type[Exception]) -> None:
        self._what = what
        self._passing: tuple[type[Exception], ...] = (ConnectionClosed, *passing)
        self._deadline_s = time.monotonic() + RECONNECT_S

    def run(self, action: Callable[[], T], close: Callable[[], None] = lambda: None) -> T:
        """Return what ``action`` returns. After a passing error call ``close``, then ``action`` again; when the time is
        over, raise the error."""
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
    """Whether it makes sense to connect again after the broker ended or refused a connection with this error."""
    if isinstance(error, AuthenticationFailed):
        return False
    return not isinstance(error, ConnectionClosed) or error.code in (0, CONNECTION_FORCED)
