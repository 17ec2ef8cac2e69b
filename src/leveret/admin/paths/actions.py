"""The actions of routes' verbs: each runs one or several commands of the broker.

Fields of commands are given as text: "{name}" stands for a variable of the path, other text for itself.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final

from starlette.responses import Response

from leveret.admin import body as bodies
from leveret.admin.answers import HttpError, bad_request, encode, json_answer, no_object, not_authorised
from leveret.admin.arrange import arranged, chosen
from leveret.admin.body import Body
from leveret.admin.call import ApiCall, answer_of
from leveret.control.refusal import NOT_FOUND, Refused

Action = Callable[[ApiCall], Awaitable[Response]]
Find = Callable[[ApiCall], Awaitable[Any]]

PAGE_SIZE: Final = 100
PAGE_SIZE_MAX: Final = 500
NO_ITEMS: Final = b"[]"


def no_vhost() -> HttpError:
    return HttpError(404, "not_found", "vhost_not_found")


def fill(fields: dict[str, str], values: dict[str, str]) -> dict[str, str]:
    """Return the fields with the path's variables filled in."""
    return {name: values[text[1:-1]] if text.startswith("{") else text for name, text in fields.items()}


def created(call: ApiCall) -> Response:
    """Return the answer to a PUT: 204 if the object existed before, else 201."""
    return Response(b"", 204 if call.found is not None else 201)


# -- the object at the path --------------------------------------------------------------------------------------------


def one(command: str, **fields: str) -> Find:
    """Find the object with which a command answers; None if the command says not_found."""

    async def find(call: ApiCall) -> Any:
        try:
            return await call.ask(command, **fill(fields, call.values))
        except Refused as refused:
            if refused.kind != NOT_FOUND:
                raise
            return None

    return find


def among(command: str, keys: dict[str, str], **fields: str) -> Find:
    """Find the object in a list whose fields have these values."""

    async def find(call: ApiCall) -> Any:
        try:
            items = await call.ask(command, **fill(fields, call.values))
        except Refused as refused:
            if refused.kind != NOT_FOUND:
                raise
            return None
        wanted = fill(keys, call.values)
        return next((item for item in items if all(item.get(name) == each for name, each in wanted.items())), None)

    return find


async def found(call: ApiCall) -> Response:
    """GET: the object at the path."""
    return json_answer(encode(chosen(call.found, call.columns())))


# -- lists -------------------------------------------------------------------------------------------------------------


def page(call: ApiCall) -> dict[str, Any]:
    """Return the command's fields for paging. Raises HttpError 400 for an invalid page."""
    number, size = call.number("page"), call.number("page_size")
    if number is None:
        return {}
    if number < 1 or (size is not None and not 0 < size <= PAGE_SIZE_MAX):
        said = "undefined" if size is None else size
        reason = f"Invalid pagination parameters: page number {number}, page size {said}"
        raise HttpError(400, "invalid_pagination_parameters", reason)
    fields = {"page": number, "page_size": size or PAGE_SIZE, "use_regex": call.flag("use_regex")}
    return fields | ({"name": name} if (name := call.query("name")) else {})


async def _empty(call: ApiCall) -> None:
    """Raise an error for an empty list if the virtual host of the path does not exist."""
    if "vhost" in call.values and not await call.vhost_exists():
        raise no_object()


def listing(
    command: str,
    *,
    paged: bool = True,
    owned: bool = False,
    visible: bool = False,
    is_anywhere: bool = False,
    more: Callable[[ApiCall], dict[str, Any]] = lambda call: {},
    **fields: str,
) -> Action:
    """GET: a long list. The broker pages, filters, sorts and encodes it; the answer is passed on piece by piece.

    `paged`: paging is supported. `owned`: users who are no monitors see their own objects, in all virtual hosts.
    `visible`: monitors see all virtual hosts. `is_anywhere`: the list is empty if the virtual host does not exist.
    `more` returns fields of the command from the query.
    """

    async def get(call: ApiCall) -> Response:
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

    If `restricted`, users who are no administrators see only objects in their virtual hosts.
    """

    async def get(call: ApiCall) -> Response:
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
    """GET: the answer of a command."""

    async def get(call: ApiCall) -> Response:
        answer = await call.ask(command, **fill(fields, call.values))
        return json_answer(encode(chosen(answer, call.columns())))

    return get


async def enter(call: ApiCall) -> None:
    """Raise HttpError 401 unless the user has a permission in the virtual host of the path."""
    if call.values["vhost"] not in await call.user.vhosts():
        raise not_authorised("Access refused.")


def check(command: str, **fields: str) -> Action:
    """GET: a health check; 503 if it failed. Checks of a virtual host run with the user's permissions."""

    async def get(call: ApiCall) -> Response:
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
    """PUT: 201, or 204 if the object existed.

    `acting`: the user's permissions apply. `missing`: error text if an object that is referred to does not exist;
    without it, only a missing virtual host is reported so. `escapes`: the reason of a refusal is escaped for HTML.
    """

    async def change(call: ApiCall) -> Response:
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
    """DELETE. `flags` are boolean parameters of the query."""

    async def change(call: ApiCall) -> Response:
        asked: dict[str, Any] = fill(fields, call.values)
        asked |= {flag.replace("-", "_"): True for flag in flags if call.flag(flag)}
        await _change(call, command, asked, acting)
        return Response(b"", 204)

    return change


def post(command: str, body: Body, **fields: str) -> Action:
    """POST: run a command with the user's permissions and return its answer.

    RabbitMQ opens a channel for it, so the user, even an administrator, needs a permission in the virtual host.
    """

    async def change(call: ApiCall) -> Response:
        asked = body.take(bodies.decode(await bodies.read(call.request)))
        await enter(call)
        answer = await _change(call, command, fill(fields, call.values) | asked, True)
        return json_answer(encode(answer))

    return change


async def _change(call: ApiCall, command: str, asked: dict[str, Any], acting: bool, missing: str = "") -> Any:
    if acting:
        asked["user"] = call.user.name
    try:
        return await call.ask(command, **asked)
    except Refused as refused:
        if missing and refused.kind == NOT_FOUND:
            raise bad_request(missing) from None
        raise answer_of(refused) from None
