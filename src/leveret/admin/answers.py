"""Answers to HTTP clients: JSON, the headers of RabbitMQ's management plugin, and its errors."""

from __future__ import annotations

import asyncio
import gzip
import logging
import zlib
from typing import Any, Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from leveret.control.calls.client import Rest
from leveret.wire.errors import quoted

logger = logging.getLogger("leveret.admin")

REALM: Final = 'Basic realm="RabbitMQ Management"'
POLICY: Final = "script-src 'self' 'unsafe-eval' 'unsafe-inline'; object-src 'self'"
# smaller answers grow when they are compressed, or hardly shrink (Cowboy's limit)
GZIP_OCTETS_MIN: Final = 300
GZIP_LEVEL: Final = 1
GZIP_BITS: Final = 31  # deflate with gzip's header
END: Final = len(b"}\n")  # end of a line on the control socket
# a long answer is aborted if its reader takes nothing for this time
STALLED_S: Final = 30.0

encode = msgspec.json.Encoder().encode


class HttpError(Exception):
    """An error answer {"error": error, "reason": reason}; without a body if `error` is empty."""

    def __init__(self, status: int, error: str = "", reason: Any = "", headers: dict[str, str] | None = None) -> None:
        super().__init__(status, error, reason)
        self.status = status
        self.error = error
        self.reason = reason
        self.headers = headers or {}


def bad_request(reason: Any) -> HttpError:
    return HttpError(400, "bad_request", reason)


def no_object() -> HttpError:
    """Return 404: there is no object at this path."""
    return HttpError(404, "Object Not Found", "Not Found")


def not_authorised(reason: str) -> HttpError:
    """Return the error for a known user without permission. RabbitMQ answers 401, where 403 would be right."""
    return HttpError(401, "not_authorised", reason)


def json_answer(body: bytes, status: int = 200) -> Response:
    """Return an answer whose body is JSON already."""
    return Response(body, status, {"cache-control": "no-cache"}, "application/json")


class LongAnswer(Response):
    """JSON that is sent while the broker produces it. It is never in memory as a whole, and has no content-length."""

    def __init__(self, first: bytes, rest: Rest) -> None:
        super().__init__(b"", 200, {"cache-control": "no-cache"}, "application/json")
        del self.headers["content-length"]
        self._first = first
        self._rest = rest
        self._packer: Any = None

    def pack(self) -> None:
        """Compress the answer."""
        self._packer = zlib.compressobj(GZIP_LEVEL, wbits=GZIP_BITS)
        self.headers["content-encoding"] = "gzip"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await self._send(scope, send)
        except (TimeoutError, ConnectionError) as error:
            # the HTTP server ends the connection, so nobody takes this for the whole
            reason = "the client stopped reading" if isinstance(error, TimeoutError) else error
            logger.warning("%s: response aborted: %s", quoted(scope["path"]), reason)
        finally:
            self._rest.close()

    async def _send(self, scope: Scope, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        if scope["method"] != "HEAD":
            held = self._first
            async for piece in self._rest:
                held += piece
                await self._piece(send, held[:-END])
                held = held[-END:]
        last = b"" if self._packer is None or scope["method"] == "HEAD" else self._packer.flush()
        await send({"type": "http.response.body", "body": last, "more_body": False})

    async def _piece(self, send: Send, piece: bytes) -> None:
        packed = piece if self._packer is None else self._packer.compress(piece)
        if packed:
            async with asyncio.timeout(STALLED_S):
                await send({"type": "http.response.body", "body": packed, "more_body": True})


def answer_error(error: HttpError) -> Response:
    if not error.error:
        return Response(b"", error.status, error.headers)
    body = encode({"error": error.error, "reason": error.reason})
    return Response(body, error.status, error.headers, "application/json")


def finish(request: Request, answer: Response) -> Response:
    """Add the headers that all answers have, and compress the answer if the client accepts that."""
    answer.headers.setdefault("content-security-policy", POLICY)
    answer.headers["vary"] = "accept, accept-encoding, origin"
    wants_packed = "gzip" in request.headers.get("accept-encoding", "") and "content-encoding" not in answer.headers
    if isinstance(answer, LongAnswer):
        if wants_packed:
            answer.pack()
    elif wants_packed and len(answer.body) >= GZIP_OCTETS_MIN:
        answer.body = gzip.compress(answer.body, GZIP_LEVEL)
        answer.headers["content-encoding"] = "gzip"
        answer.headers["content-length"] = str(len(answer.body))
    return answer


def accepts_json(request: Request) -> bool:
    """Return whether the client accepts JSON."""
    accepted = request.headers.get("accept", "*/*")
    kinds = {each.partition(";")[0].strip().lower() for each in accepted.split(",")}
    return not kinds.isdisjoint({"*/*", "application/*", "application/json", ""})
