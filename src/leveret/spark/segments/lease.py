"""Leases: retention keeps a stream's files while a query needs them."""

from __future__ import annotations

import logging
import time
from typing import Final

from leveret.client.segments.api import NotThere, StreamApi
from leveret.client.segments.errors import SegmentsUnavailable

DURATION_MS: Final = 900_000
"""Duration of a lease. The driver of a streaming query and each task renew it. The lease of a killed query, or of a
batch query, whose driver is not told when it is done, expires after this time."""
RENEW_S: Final = 60.0
"""Seconds after which a lease is renewed and moved forward, when it is used next."""

_log = logging.getLogger("leveret.spark")


class StreamLease:
    """The lease of one query on one stream. Methods connect; only its id needs to be pickled."""

    def __init__(self, api: StreamApi, renew_s: float = RENEW_S) -> None:
        self.id: str | None = None
        self._api = api
        self._renew_s = renew_s
        self._renewed_s = 0.0

    def hold(self, first: int) -> None:
        """Ask for or renew the lease of all messages from offset `first` on; calls within the renewal interval do
        nothing.

        Raises SegmentsUnavailable if no lease is granted; a failed renewal is only logged.
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
        """End the lease; if the broker cannot be reached, it expires by itself."""
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
    """Renews its query's lease while a task reads. It does nothing without API or lease."""

    def __init__(self, api: StreamApi | None, lease: str | None) -> None:
        self._api = api
        self._lease = lease
        self._renewed_s = -RENEW_S

    def keep(self) -> None:
        """Renew the lease if the renewal interval has passed. Errors are only logged: the files may still exist."""
        now_s = time.monotonic()
        if self._api is None or self._lease is None or now_s - self._renewed_s < RENEW_S:
            return
        self._renewed_s = now_s
        try:
            self._api.renew(self._lease, DURATION_MS, None)
        except (NotThere, SegmentsUnavailable) as error:
            _log.warning("the lease of %s was not renewed: %s", self._api.path, error)
