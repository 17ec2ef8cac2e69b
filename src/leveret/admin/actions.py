"""What the verbs of a route do. Each is a command of the broker, or several.

Fields of commands are given as text: "{name}" is a variable of the path, everything else is itself.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final

from starlette.responses import Response

from leveret.admin import body as bodies
from leveret.admin.answers import HttpError, bad_request, encode, json_answer, no_object, not_authorised
from leveret.admin.arrange import arranged, chosen
from leveret.admin.body import Body
from leveret.admin.call import Call, answer_of
from leveret.control.refusal import NOT_FOUND, Refused

Action = Callable[[Call], Awaitable[Response]]
Find = Callable[[Call], Awaitable[Any]]

PAGE_SIZE: Final = 100
PAGE_SIZE_MAX: Final = 500
NO_ITEMS: Final = b"[]"


def no_vhost() -> HttpError:
    return HttpError(404, "not_found", "vhost_not_found")


def fill(fields: dict[str, str], values: dict[str, str]) -> dict[str, str]:
    """Fields with the variables of the path put in."""
    return {name: values[text[1:-1]] if text.startswith("{") else text for name, text in fields.items()}


def created(call: Call) -> Response:
    """The answer to a PUT: whether the object was there before."""
    return Response(b"", 204 if call.found is not None else 201)


# -- what is at the path -----------------------------------------------------------------------------------------------


def one(command: str, **fields: str) -> Find:
    """The object that a command answers with; None if it says not_found."""

    async def find(call: Call) -> Any:
        try:
            return await call.ask(command, **fill(fields, call.values))
        except Refused as refused:
            if refused.kind != NOT_FOUND:
                raise
            return None

    return find


def among(command: str, keys: dict[str, str], **fields: str) -> Find:
    """The object of a list whose fields are these keys."""

    async def find(call: Call) -> Any:
        try:
            items = await call.ask(command, **fill(fields, call.values))
        except Refused as refused:
            if refused.kind != NOT_FOUND:
                raise
            return None
        wanted = fill(keys, call.values)
        return next((item for item in items if all(item.get(name) == each for name, each in wanted.items())), None)

    return find


async def found(call: Call) -> Response:
    """GET: the object at the path."""
    return json_answer(encode(chosen(call.found, call.columns())))


# -- lists -------------------------------------------------------------------------------------------------------------


def page(call: Call) -> dict[str, Any]:
    """The fields of a command that say which page is asked for. HttpError 400 if there can be no such page."""
    number, size = call.number("page"), call.number("page_size")
    if number is None:
        return {}
    if number < 1 or (size is not None and not 0 < size <= PAGE_SIZE_MAX):
        said = "undefined" if size is None else size
        reason = f"Invalid pagination parameters: page number {number}, page size {said}"
        raise HttpError(400, "invalid_pagination_parameters", reason)
    fields = {"page": number, "page_size": size or PAGE_SIZE, "use_regex": call.flag("use_regex")}
    return fields | ({"name": name} if (name := call.query("name")) else {})


async def _empty(call: Call) -> None:
    """A list has nothing in it: because there is no such virtual host?"""
    if "vhost" in call.values and not await call.vhost_exists():
        raise no_object()


def listing(
    command: str,
    *,
    paged: bool = True,
    owned: bool = False,
    visible: bool = False,
    is_anywhere: bool = False,
    more: Callable[[Call], dict[str, Any]] = lambda call: {},
    **fields: str,
) -> Action:
    """GET: a long list, which the broker pages, filters, sorts and writes; it goes through as it comes.

    paged: whether it can be had in pages; owned: who is no monitor sees what is his own, wherever it is; visible:
    monitors see all virtual hosts; is_anywhere: in a virtual host that isn't there, it is empty; more: fields of the
    command from the query.
    """

    async def get(call: Call) -> Response:
        asked: dict[str, Any] = fill(fields, call.values) | (page(call) if paged else {}) | more(call)
        if "vhost" not in asked and call.vhost is not None:
            asked["vhost"] = call.vhost
        if sort := call.query("sort"):
            asked["sort"] = sort
            asked["sort_reverse"] = call.flag("sort_reverse")
        elif call.flag("sort_reverse"):
            asked["sort_reverse"] = True
        if (columns := call.columns()) is not None:
            asked["columns"] = columns
        if owned:
            if not call.user.is_monitor:
                asked["user"] = call.user.name
        elif not (call.user.is_monitor if visible else call.user.is_administrator):
            asked["vhosts"] = await call.user.vhosts()
        try:
            answer = await call.pass_on(command, **asked)
        except Refused as refused:
            if is_anywhere and refused.kind == NOT_FOUND:
                return json_answer(NO_ITEMS)
            raise (no_object() if refused.kind == NOT_FOUND else answer_of(refused)) from None
        if answer.body == NO_ITEMS and not is_anywhere:
            await _empty(call)
        return answer

    return get


def short(command: str, *by: str, restricted: bool = True, **fields: str) -> Action:
    """GET: a short list, sorted here by the columns `by`.

    restricted: who is no administrator sees what is in his virtual hosts.
    """

    async def get(call: Call) -> Response:
        items = await call.ask(command, **fill(fields, call.values))
        if not items:
            await _empty(call)
        if restricted and not call.user.is_administrator:
            mine = await call.user.vhosts()
            items = [item for item in items if item.get("vhost") in mine]
        items = arranged(items, by or ("vhost", "name"), call.query("sort"), call.flag("sort_reverse"))
        return json_answer(encode(chosen(items, call.columns())))

    return get


def ask(command: str, **fields: str) -> Action:
    """GET: what a command answers."""

    async def get(call: Call) -> Response:
        answer = await call.ask(command, **fill(fields, call.values))
        return json_answer(encode(chosen(answer, call.columns())))

    return get


async def enter(call: Call) -> None:
    """HttpError 401 for who has no permission in the virtual host of the path."""
    if call.values["vhost"] not in await call.user.vhosts():
        raise not_authorised("Access refused.")


def check(command: str, **fields: str) -> Action:
    """GET: a health check; 503 if it failed. One of a virtual host is done by the user."""

    async def get(call: Call) -> Response:
        asked = fill(fields, call.values)
        if "vhost" in call.values:
            await enter(call)
            asked["user"] = call.user.name
        answer = await call.ask(command, **asked)
        return json_answer(encode(answer), 200 if answer["status"] == "ok" else 503)

    return get


# -- changes -----------------------------------------------------------------------------------------------------------


def put(
    command: str, body: Body, *, acting: bool = False, missing: str = "", escapes: bool = False, **fields: str
) -> Action:
    """PUT: 201, or 204 if the object was there. acting: with the permissions of the user.

    missing: what is said when the broker does not find what the object is about; else that is a missing vhost. escapes:
    the reason of a refusal is fit for HTML.
    """

    async def change(call: Call) -> Response:
        sent = await bodies.read(call.request)
        if call.found is None and "vhost" in call.values and not missing and not await call.vhost_exists():
            raise no_vhost()
        asked = fill(fields, call.values) | body.take(bodies.decode(sent))
        try:
            await _change(call, command, asked, acting, missing)
        except HttpError as error:
            if escapes and isinstance(error.reason, str):
                error.reason = error.reason.replace("<", "&lt;").replace(">", "&gt;")
            raise
        return created(call)

    return change


def delete(command: str, *flags: str, acting: bool = False, **fields: str) -> Action:
    """DELETE. flags: parameters of the query that are true or not."""

    async def change(call: Call) -> Response:
        asked: dict[str, Any] = fill(fields, call.values)
        asked |= {flag.replace("-", "_"): True for flag in flags if call.flag(flag)}
        await _change(call, command, asked, acting)
        return Response(b"", 204)

    return change


def post(command: str, body: Body, **fields: str) -> Action:
    """POST: answers with what the command does, with the permissions of the user.

    RabbitMQ opens a channel for it, so the user must be one who may enter the virtual host, administrator or not.
    """

    async def change(call: Call) -> Response:
        asked = body.take(bodies.decode(await bodies.read(call.request)))
        await enter(call)
        answer = await _change(call, command, fill(fields, call.values) | asked, True)
        return json_answer(encode(answer))

    return change


async def _change(call: Call, command: str, asked: dict[str, Any], acting: bool, missing: str = "") -> Any:
    if acting:
        asked["user"] = call.user.name
    try:
        return await call.ask(command, **asked)
    except Refused as refused:
        if missing and refused.kind == NOT_FOUND:
            raise bad_request(missing) from None
        raise answer_of(refused) from None
