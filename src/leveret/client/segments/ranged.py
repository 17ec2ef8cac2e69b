"""A file served over HTTP with random access: each read is one request for a range (RFC 9110, 14)."""

from __future__ import annotations

import http.client
import io
import os
import re
from typing import Final

from leveret.client.segments.api import NotThere, StreamApi, unreachable
from leveret.client.segments.errors import SealedFileDamaged, SegmentsUnavailable

_RANGE: Final = re.compile(r"bytes (\d+)-(\d+)/(\d+)")
_FIRST_OCTETS: Final = 64 << 10
"""Octets of the first request: a Parquet file's index is at its end, and mostly fits into these."""


class RangedFile(io.RawIOBase):
    """A stream's file over HTTP. Readers should ask for large parts: only the end of the file is read ahead.

    The first answer has size and ETag; later ones must be of the same file (If-Range). Raises FileNotFoundError if the
    file does not exist, SegmentDamaged if another one has replaced it, SegmentsUnavailable if the API refuses or is
    unreachable.
    """

    def __init__(self, api: StreamApi, name: str) -> None:
        self.octets = self.requests = 0  # octets fetched; requests made
        self._api = api
        self._name = name
        self._connection: http.client.HTTPConnection | None = None
        self._etag = ""
        self._at = 0
        self._tail = self._fetch(f"bytes=-{_FIRST_OCTETS}")

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        self._at = offset + {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self.size}[whence]
        return self._at

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]
        data = self.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def read(self, size: int = -1) -> bytes:
        """Return `size` octets, fewer only at the end."""
        end = self.size if size < 0 else min(self.size, self._at + size)
        first, self._at = self._at, max(self._at, end)
        if end <= first:
            return b""
        known = self.size - len(self._tail)
        if first >= known:
            return self._tail[first - known : end - known]
        return self._fetch(f"bytes={first}-{end - 1}")

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        super().close()

    def _fetch(self, wanted: str) -> bytes:
        headers = self._api.login | {"Range": wanted} | ({"If-Range": self._etag} if self._etag else {})
        answer, body = self._asked(headers)
        try:
            self._api.check(answer.status, body)
        except NotThere:
            raise FileNotFoundError(f"{self._api.url}: {self._name}") from None
        part = _RANGE.fullmatch(answer.headers.get("Content-Range", ""))
        etag = answer.headers.get("ETag", "")
        if self._etag and (answer.status != 206 or etag != self._etag):
            raise SealedFileDamaged(self._name, "it changed while it was being read, but sealed files never change")
        if answer.status != 206 or part is None or not etag or int(part[2]) - int(part[1]) + 1 != len(body):
            raise SegmentsUnavailable(f"the server at {self._api.url} (option apiUrl) does not serve ranges of files")
        self._etag, self.size = etag, int(part[3])
        return body

    def _asked(self, headers: dict[str, str]) -> tuple[http.client.HTTPResponse, bytes]:
        """Send the request. If a connection that was kept open turns out to be closed, retry once on a new one."""
        is_kept = self._connection is not None
        try:
            return self._ask(headers)
        except (OSError, http.client.HTTPException) as error:
            self._drop()
            if not is_kept:
                raise unreachable(self._api, error) from error
        try:
            return self._ask(headers)
        except (OSError, http.client.HTTPException) as error:
            self._drop()
            raise unreachable(self._api, error) from error

    def _ask(self, headers: dict[str, str]) -> tuple[http.client.HTTPResponse, bytes]:
        connection = self._connection = self._connection or self._api.connection()
        connection.request("GET", f"{self._api.path}/segments/{self._name}", headers=headers)
        answer = connection.getresponse()
        body = b"" if answer.status == 200 else answer.read()
        if answer.status == 200:
            self._drop()  # the whole file: it is not read
        self.requests += 1
        self.octets += len(body)
        return answer, body

    def _drop(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None
