"""Answers with a file: whole, or the part that Range requests (RFC 9110, 13 and 14), read on other threads."""

from __future__ import annotations

import asyncio
import os
import re
from dataclasses import dataclass
from io import FileIO
from typing import Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

READ_OCTETS: Final = 1 << 20
_RANGE = re.compile(r"bytes\s*=\s*(\d*)\s*-\s*(\d*)\s*", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class OpenFile:
    """A file to be served."""

    file: FileIO
    size: int  # bytes that are served, even if the file is longer
    etag: str  # identifies these bytes
    media_type: str


class Unsatisfiable(Exception):
    """The range begins after the end of the file."""


def part(header: str | None, size: int) -> tuple[int, int] | None:
    """Return the bytes that a Range header requests, as (first, after the last); None for all of them.

    Malformed headers and those with several ranges are ignored, as the RFC allows. Raises Unsatisfiable if no such
    bytes exist.
    """
    match = None if header is None else _RANGE.fullmatch(header.strip())
    if match is None or match[1] == match[2] == "":
        return None
    if match[1] == "":
        first, end = max(0, size - int(match[2])), size
    else:
        first, end = int(match[1]), size if match[2] == "" else min(size, int(match[2]) + 1)
        if match[2] != "" and int(match[2]) < first:
            return None
    if first >= end:
        raise Unsatisfiable
    return first, end


def file_answer(request: Request, opened: OpenFile) -> Response:
    """Return the answer to a GET or HEAD of this file: 200, 206, 304 or 416."""
    headers = {"accept-ranges": "bytes", "cache-control": "no-cache", "etag": opened.etag}
    known = request.headers.get("if-none-match", "")
    if known.strip() == "*" or opened.etag in (tag.strip().removeprefix("W/") for tag in known.split(",")):
        return Response(b"", 304, headers)
    wanted = request.headers.get("range")
    if request.headers.get("if-range", opened.etag).strip() != opened.etag:
        wanted = None  # what the client has a part of is not this
    try:
        found = part(wanted, opened.size)
    except Unsatisfiable:
        return Response(b"", 416, headers | {"content-range": f"bytes */{opened.size}"})
    first, end = found or (0, opened.size)
    headers |= {"content-length": str(end - first), "content-type": opened.media_type}
    if found is None:
        return FileAnswer(opened, first, end, 200, headers)
    return FileAnswer(opened, first, end, 206, headers | {"content-range": f"bytes {first}-{end - 1}/{opened.size}"})


class FileAnswer(Response):
    """Sends bytes of a file at the client's pace."""

    def __init__(self, opened: OpenFile, first: int, end: int, status: int, headers: dict[str, str]) -> None:
        super().__init__(b"", status, headers)
        self._file = opened.file
        self._first = first
        self._end = end

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._file:
            await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
            if scope["method"] != "HEAD":
                await self._send(receive, send)
            await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _send(self, receive: Receive, send: Send) -> None:
        gone = asyncio.ensure_future(_gone(receive))
        try:
            at = self._first
            while at < self._end and not gone.done():
                data = await asyncio.to_thread(os.pread, self._file.fileno(), min(READ_OCTETS, self._end - at), at)
                if not data:
                    break  # the file was truncated; the server closes the connection
                at += len(data)
                await send({"type": "http.response.body", "body": data, "more_body": True})
        finally:
            gone.cancel()


async def _gone(receive: Receive) -> None:
    """Return when the client has disconnected."""
    while (await receive())["type"] != "http.disconnect":
        pass
