"""Read-only inspection: the route of a message, and messages in a queue. RabbitMQ does not have these paths."""

from __future__ import annotations

from base64 import b64decode, b64encode
from typing import Any, Final

import msgspec
from starlette.responses import Response

from leveret.admin import body as bodies
from leveret.admin.answers import HttpError, encode, json_answer, not_authorised
from leveret.admin.body import Body, boolean, integer, table, text
from leveret.admin.call import ApiCall, answer_of
from leveret.admin.paths.actions import no_vhost
from leveret.admin.rules import NOT_ADMINISTRATOR
from leveret.control.refusal import NOT_FOUND, Refused

ROUTE: Final = Body(
    "exchange", exchange=text, routing_key=text, properties=table, payload_bytes=integer, mandatory=boolean,
    user=text, destination=text, limit=integer, depth=integer,
)  # fmt: skip
OCTETS: Final = "application/octet-stream"


async def route(call: ApiCall) -> Response:
    """POST: explain where a message would go. Only administrators can ask for other users' permissions."""
    asked = ROUTE.take(bodies.decode(await bodies.read(call.request)))
    if asked.get("user", call.user.name) != call.user.name and not call.user.is_administrator:
        raise not_authorised(NOT_ADMINISTRATOR)
    try:
        return await call.pass_on("explain_route", vhost=call.values["vhost"], **asked)
    except Refused as refused:
        # if the user does not exist, the broker's reason says so
        is_vhost = refused.kind == NOT_FOUND and "user" not in asked
        raise (no_vhost() if is_vhost else answer_of(refused)) from None


async def messages(call: ApiCall) -> Response:
    """GET: messages in a queue, with the user's permission to read them."""
    asked: dict[str, Any] = {name: value for name in ("state", "text", "encoding") if (value := call.query(name))}
    for name in ("offset", "limit", "truncate"):
        if (given := call.query(name)) is not None:
            asked[name] = integer(given)
    return json_answer(await _ask(call, "browse_queue", asked))


async def message(call: ApiCall) -> Response:
    """GET: the whole body of a message, in base64."""
    octets = await _body(call)
    return json_answer(encode({"payload": b64encode(octets).decode(), "payload_bytes": len(octets)}))


async def body(call: ApiCall) -> Response:
    """GET: the whole body as a download, which never runs in the page, whatever it contains."""
    octets = await _body(call)
    name = f"message-{call.values['place']}.bin"
    headers = {
        "content-disposition": f'attachment; filename="{name}"',
        "x-content-type-options": "nosniff",
        "cache-control": "no-store",
    }
    return Response(octets, 200, headers, OCTETS)


async def _body(call: ApiCall) -> bytes:
    answer = await _ask(call, "get_message_body", {"place": call.values["place"]})
    return b"".join(map(b64decode, msgspec.json.decode(answer, type=list[str])))


async def _ask(call: ApiCall, command: str, asked: dict[str, Any]) -> bytes:
    names = {"vhost": call.values["vhost"], "queue": call.values["queue"], "user": call.user.name}
    try:
        return await call.ask_raw(command, **names, **asked)
    except Refused as refused:
        error: HttpError = answer_of(refused)
        raise error from None
