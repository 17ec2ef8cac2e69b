"""What goes back to an HTTP client: JSON, the headers of RabbitMQ's management plugin, and its errors."""

from __future__ import annotations

import gzip
from typing import Any, Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

REALM: Final = 'Basic realm="RabbitMQ Management"'
POLICY: Final = "script-src 'self' 'unsafe-eval' 'unsafe-inline'; object-src 'self'"
# smaller answers grow when they are compressed, or hardly shrink (Cowboy's limit)
GZIP_OCTETS_MIN: Final = 300
GZIP_LEVEL: Final = 1

encode = msgspec.json.Encoder().encode


class HttpError(Exception):
    """An answer that is no success: {"error": error, "reason": reason}; without a body if error is empty."""

    def __init__(self, status: int, error: str = "", reason: Any = "", headers: dict[str, str] | None = None) -> None:
        super().__init__(status, error, reason)
        self.status = status
        self.error = error
        self.reason = reason
        self.headers = headers or {}


def bad_request(reason: Any) -> HttpError:
    return HttpError(400, "bad_request", reason)


def no_object() -> HttpError:
    """There is nothing at this path."""
    return HttpError(404, "Object Not Found", "Not Found")


def not_authorised(reason: str) -> HttpError:
    """The user is known, and may not do this. RabbitMQ answers 401, where 403 would be right."""
    return HttpError(401, "not_authorised", reason)


def json_answer(body: bytes, status: int = 200) -> Response:
    """A body that is JSON already."""
    return Response(body, status, {"cache-control": "no-cache"}, "application/json")


def answer_error(error: HttpError) -> Response:
    if not error.error:
        return Response(b"", error.status, error.headers)
    body = encode({"error": error.error, "reason": error.reason})
    return Response(body, error.status, error.headers, "application/json")


def finish(request: Request, answer: Response) -> Response:
    """Put the headers on that every answer has, and compress it for who accepts that."""
    answer.headers.setdefault("content-security-policy", POLICY)
    answer.headers["vary"] = "accept, accept-encoding, origin"
    is_packed = "content-encoding" in answer.headers
    if not is_packed and len(answer.body) >= GZIP_OCTETS_MIN and "gzip" in request.headers.get("accept-encoding", ""):
        answer.body = gzip.compress(answer.body, GZIP_LEVEL)
        answer.headers["content-encoding"] = "gzip"
        answer.headers["content-length"] = str(len(answer.body))
    return answer


def accepts_json(request: Request) -> bool:
    """Whether the client takes JSON."""
    accepted = request.headers.get("accept", "*/*")
    kinds = {each.partition(";")[0].strip().lower() for each in accepted.split(",")}
    return not kinds.isdisjoint({"*/*", "application/*", "application/json", ""})
