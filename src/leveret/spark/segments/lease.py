"""A lease: retention leaves a stream's files alone while a query needs them."""

from __future__ import annotations

import logging
import time
from typing import Final

from leveret.spark.segments.api import Api, NotThere
from leveret.spark.segments.errors import SegmentsUnavailable

DURATION_MS: Final = 900_000
"""The driver of a streaming query renews it, and so does each task. What is left of a query that was killed, or of a
batch query, whose driver does not hear when it is done, ends after this time."""
RENEW_S: Final = 60.0
"""A lease that was renewed so long ago is renewed when it is asked for, and moved forward."""

_log = logging.getLogger("leveret.spark")


class Lease:
    """That of one query on one stream. Methods connect; there is nothing to be pickled but its id."""

    def __init__(self, api: Api, renew_s: float = RENEW_S) -> None:
        self.id: str | None = None
        self._api = api
        self._renew_s = renew_s
        self._renewed_s = 0.0

    def hold(self, first: int) -> None:
        """All from the offset `first` on is needed: ask for it, or tell, but not more often than now and then.

        SegmentsUnavailable if there can't be one; one that was there and can't be renewed just now is only logged.
        """
        now_s = time.monotonic()
        if self.id is None:
            self._grant(first)
        elif now_s - self._renewed_s < self._renew_s:
            return
        else:
            try:
                self._api.renew(self.id, DURATION_MS, first)
            except NotThere:
                self._grant(first)
            except SegmentsUnavailable as error:
                _log.warning("the lease of %s was not renewed: %s", self._api.path, error)
        self._renewed_s = now_s

    def release(self) -> None:
        """It is not needed any more; if the broker can't be told, it ends by itself."""
        lease, self.id = self.id, None
        if lease is not None:
            try:
                self._api.release(lease)
            except (NotThere, SegmentsUnavailable) as error:
                _log.info("the lease of %s was not released and will expire: %s", self._api.path, error)

    def _grant(self, first: int) -> None:
        try:
            self.id = self._api.grant(first, DURATION_MS, "leveret spark")
        except NotThere:
            raise SegmentsUnavailable(
                f"the HTTP API at {self._api.url} (option apiUrl) knows no such stream: does it belong to the same "
                "broker?"
            ) from None


class Keeper:
    """A task's part in its query's lease, which shall not end before the task has read. None = there is none."""

    def __init__(self, api: Api | None, lease: str | None) -> None:
        self._api = api
        self._lease = lease
        self._renewed_s = -RENEW_S

    def keep(self) -> None:
        """Renew it, but not more often than now and then. What goes wrong is only logged: files may still be there."""
        now_s = time.monotonic()
        if self._api is None or self._lease is None or now_s - self._renewed_s < RENEW_S:
            return
        self._renewed_s = now_s
        try:
            self._api.renew(self._lease, DURATION_MS, None)
        except (NotThere, SegmentsUnavailable) as error:
            _log.warning("the lease of %s was not renewed: %s", self._api.path, error)
