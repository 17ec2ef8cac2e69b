"""/api/delayed: delayed messages. RabbitMQ does not have these paths."""

from __future__ import annotations

from typing import Any, Final

from starlette.responses import Response

from leveret.admin import body as bodies
from leveret.admin.answers import bad_request, encode, json_answer
from leveret.admin.body import Body, integer, integers, texts
from leveret.admin.call import ApiCall, answer_of
from leveret.admin.paths.actions import no_vhost
from leveret.control.refusal import NOT_FOUND, Refused

IDS: Final = Body(message_ids=texts)
CHANGE: Final = Body(at_ms=integer, in_ms=integer, message_ids=texts, times=integers)


def rows(call: ApiCall) -> dict[str, Any]:
    """Return the filters in the query. Raises HttpError 400 if a time is not a number."""
    return _texts(call, "layout", "destination") | _numbers(call, "due_after_ms", "due_before_ms")


async def messages(call: ApiCall) -> Response:
    """GET: single messages, in the order in which they are due."""
    asked = _selection(call) | _numbers(call, "limit")
    return await _answer(call, "list_delayed_messages", asked)


async def histogram(call: ApiCall) -> Response:
    """GET: how many messages are due in each time interval, with the edges edges_ms=MS,MS,… or edges_in_ms=MS,MS,…"""
    asked = {name: _list(given) for name in ("edges_ms", "edges_in_ms") if (given := call.query(name)) is not None}
    return await _answer(call, "count_delayed", _selection(call) | asked)


async def cancel(call: ApiCall) -> Response:
    """DELETE: cancel the delivery of messages; the body may have their ids."""
    ids = IDS.take(bodies.decode(await bodies.read(call.request)))
    return await _answer(call, "cancel_delayed", _change(call) | ids)


async def retime(call: ApiCall) -> Response:
    """PUT: reschedule messages; the body has the time, and may have the ids, or a time for each id."""
    change = CHANGE.take(bodies.decode(await bodies.read(call.request)))
    return await _answer(call, "retime_delayed", _change(call) | change)


async def _answer(call: ApiCall, command: str, asked: dict[str, Any]) -> Response:
    try:
        return json_answer(encode(await call.ask(command, vhost=call.values["vhost"], **asked)))
    except Refused as refused:
        raise (no_vhost() if refused.kind == NOT_FOUND else answer_of(refused)) from None


def _change(call: ApiCall) -> dict[str, Any]:
    """Return the fields of a change, with the user's permissions."""
    flags = {name: True for name in ("all", "dry_run") if call.flag(name)}
    return _selection(call) | flags | {"user": call.user.name}


def _selection(call: ApiCall) -> dict[str, Any]:
    """Return the message filters in the query; header=NAME=VALUE and without_header=… may be repeated."""
    asked = rows(call) | _texts(call, "message_id")
    for asks, field in (("header", "headers"), ("without_header", "without_headers")):
        headers = [each.partition("=") for each in call.request.query_params.getlist(asks)]
        if not all(name and is_there for name, is_there, _ in headers):
            raise bad_request(f"write a header filter as {asks}=NAME=VALUE")
        if headers:
            asked[field] = {name: value for name, _, value in headers}
    if (parked := call.query("parked")) is not None:
        asked["parked"] = bodies.boolean(parked)
    return asked


def _texts(call: ApiCall, *names: str) -> dict[str, Any]:
    return {name: value for name in names if (value := call.query(name)) is not None}


def _numbers(call: ApiCall, *names: str) -> dict[str, Any]:
    return {name: integer(value) for name in names if (value := call.query(name)) is not None}


def _list(given: str) -> list[int]:
    return [integer(each) for each in given.split(",")]
