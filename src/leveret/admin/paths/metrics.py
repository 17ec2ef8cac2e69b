"""/metrics as in RabbitMQ's plugin rabbitmq_prometheus: sums, single objects, or chosen families.

The broker only counts. The text is made here, on another thread, and sent piece by piece: with 50,000 queues it is
long.
"""

from __future__ import annotations

import zlib
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, Final

from starlette.concurrency import iterate_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from leveret.admin import rules
from leveret.admin.route import PathRoute
from leveret.control.calls.client import WHOLE_OCTETS_MAX, AsyncControlClient
from leveret.control.metrics.table import ABSENT, GROUPS, OF_CLUSTER
from leveret.control.metrics.text import OPENMETRICS, PLAIN, exposition
from leveret.control.refusal import ANSWER_TOO_LONG, Refused

GZIP_LEVEL: Final = 1
GZIP_BITS: Final = 31  # deflate with gzip's header
# the text has all rows of a metric together, so the rows of all objects are in memory at once
TOO_MANY: Final = (
    f"the metrics exceed {WHOLE_OCTETS_MAX >> 20} MiB: use /metrics for totals, or "
    "/metrics/detailed?family=...&vhost=... for a part"
)
EVERYTHING: Final = [group.name for group in GROUPS if group.name not in OF_CLUSTER]

# returns the fields of the command `metrics` for a request
Fields = Callable[[Request], dict[str, Any]]


class TextAnswer(Response):
    """Text that is sent while it is made."""

    def __init__(self, pieces: Iterator[str], media_type: str, is_packed: bool) -> None:
        super().__init__(b"", 200, {"cache-control": "no-cache", "content-type": media_type})
        del self.headers["content-length"]
        if is_packed:
            self.headers["content-encoding"] = "gzip"
        self._pieces = _packed(pieces) if is_packed else (piece.encode() for piece in pieces)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        if scope["method"] != "HEAD":
            async for piece in iterate_in_threadpool(self._pieces):
                if piece:
                    await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})


def _packed(pieces: Iterator[str]) -> Iterator[bytes]:
    packer = zlib.compressobj(GZIP_LEVEL, wbits=GZIP_BITS)
    for piece in pieces:
        yield packer.compress(piece.encode())
    yield packer.flush()


def _wants_openmetrics(request: Request) -> bool:
    kinds = [each.partition(";")[0].strip().lower() for each in request.headers.get("accept", "").split(",")]
    return "application/openmetrics-text" in kinds


def _detailed(request: Request) -> dict[str, Any]:
    """Return the fields for ?family=NAME and ?vhost=NAME, which may be repeated.

    RabbitMQ's families that leveret does not have are ignored, so that scrape configurations for RabbitMQ keep working.
    """
    query = request.query_params
    families = [family for family in query.getlist("family") if family not in ABSENT]
    fields: dict[str, Any] = {"families": families or ["build_info"], "details": True}
    return fields | ({"vhosts": query.getlist("vhost")} if "vhost" in query else {})


# path -> fields of the command, and whether objects have the names of /metrics/detailed
PATHS: Final[dict[str, tuple[Fields, bool]]] = {
    "/metrics": (lambda request: {"families": EVERYTHING}, False),
    "/metrics/per-object": (lambda request: {"families": EVERYTHING, "details": True}, False),
    "/metrics/detailed": (_detailed, True),
}


async def _answer(request: Request, ask: Callable[..., Awaitable[Any]], fields: Fields, is_detailed: bool) -> Response:
    try:
        items = await ask("metrics", **fields(request))
    except Refused as refused:
        if refused.kind != ANSWER_TOO_LONG:
            raise
        raise Refused(refused.kind, TOO_MANY) from None
    is_open = _wants_openmetrics(request)
    is_packed = "gzip" in request.headers.get("accept-encoding", "")
    return TextAnswer(exposition(items, is_open, is_detailed), OPENMETRICS if is_open else PLAIN, is_packed)


def _with_login(path: str) -> PathRoute:
    fields, is_detailed = PATHS[path]

    async def get(call: Any) -> Response:
        return await _answer(call.request, call.ask, fields, is_detailed)

    return PathRoute(path, rules.monitor, get=get, is_file=True)


def _without_login(path: str) -> PathRoute:
    fields, is_detailed = PATHS[path]

    async def get(request: Request, control: AsyncControlClient) -> Response:
        async def ask(command: str, **given: Any) -> Any:
            return await control.call(command, given)

        return await _answer(request, ask, fields, is_detailed)

    return PathRoute(path, rules.monitor, open=get)


METRICS: Final = tuple(_with_login(path) for path in PATHS)
"""On the port of the HTTP API, for users with the monitoring tag."""
OPEN: Final = tuple((path, _without_login(path)) for path in PATHS)
"""On a separate port (--metrics-port), without login, like RabbitMQ's port 15692."""
