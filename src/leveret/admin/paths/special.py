"""Routes that are more than one command with its fields."""

from __future__ import annotations

import email.parser
import email.policy
from base64 import b64encode
from typing import Any
from urllib.parse import parse_qs, quote

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from leveret.admin import body as bodies
from leveret.admin import login
from leveret.admin.answers import HttpError, bad_request, encode, json_answer, no_object
from leveret.admin.arrange import arranged, chosen
from leveret.admin.body import Body
from leveret.admin.call import ApiCall, answer_of
from leveret.admin.paths.actions import Action, created, no_vhost, page
from leveret.control.calls.client import AsyncControlClient
from leveret.control.refusal import NOT_FOUND, Refused

DONE = 204
REASON = "Closed via management plugin"  # the reason sent to clients if the request gives none
FORM = "application/x-www-form-urlencoded"
BINDING = Body(routing_key=bodies.text, arguments=bodies.table)
USER = Body(password=bodies.text, password_hash=bodies.base64, hashing_algorithm=bodies.text, tags=bodies.tags)
VHOST = Body(description=bodies.text, tags=bodies.tags)


# -- open to everybody -------------------------------------------------------------------------------------------------


async def auth(request: Request, control: AsyncControlClient) -> Response:
    """Describe how a web page can log in: by name and password."""
    columns = {"enable_uaa": False, "uaa_client_id": "", "uaa_location": ""}
    return json_answer(encode({"oauth_enabled": False, **columns}))


async def log_in(request: Request, control: AsyncControlClient) -> Response:
    """Log in by a form with username and password; answers with a cookie that holds them."""
    if not request.headers.get("content-type", "").startswith(FORM):
        raise HttpError(415)
    form = parse_qs((await bodies.read(request)).decode("utf-8", "replace"), keep_blank_values=True)
    name, password = (form.get(field, [""])[0] for field in ("username", "password"))
    await login.log_in(request, control, name, password)
    answer = json_answer(encode("ok"))
    # not for scripts, nor for other sites' requests
    flags = "; HttpOnly; SameSite=Strict" + ("; Secure" if request.url.scheme == "https" else "")
    answer.headers["set-cookie"] = f"auth={b64encode(f'{name}:{password}'.encode()).decode()}; Version=1{flags}"
    return answer


# -- the caller, and this API ------------------------------------------------------------------------------------------


async def whoami(call: ApiCall) -> Response:
    me = {"name": call.user.name, "tags": call.user.tags, "is_internal_user": True}
    return json_answer(encode(chosen(me, call.columns())))


async def extensions(call: ApiCall) -> Response:
    return json_answer(encode([{"javascript": "dispatcher.js"}]))


async def overview(call: ApiCall) -> Response:
    """Return the overview: of everything for monitors, else of the user's virtual hosts."""
    asked: dict[str, Any] = {}
    if not call.user.is_monitor:
        asked = {"vhosts": await call.user.vhosts(), "user": call.user.name}
    answer = await call.ask("overview", **asked)
    return json_answer(encode(chosen(answer, call.columns())))


async def nothing(call: ApiCall) -> Response:
    """Do nothing: synchronizing mirrors, moving queues and starting virtual hosts have no effect on a single node."""
    return Response(b"", DONE)


async def memory(call: ApiCall) -> Response:
    """Return the memory use of the node by purpose."""
    return json_answer(encode(await call.ask("memory_breakdown")))


def of_replies(call: ApiCall) -> dict[str, Any]:
    """Return the filter for replies=true: channels with direct replies."""
    return {"replies": True} if call.flag("replies") else {}


async def relative_memory(call: ApiCall) -> Response:
    """Return the memory use as percentages, rounded up."""
    found = (await call.ask("memory_breakdown"))["memory"]
    total = found["total"]["rss"]
    shares = {name: -(-100 * octets // total) for name, octets in found.items() if isinstance(octets, int)}
    return json_answer(encode({"memory": {"total": 100, **shares}}))


# -- virtual hosts and users -------------------------------------------------------------------------------------------


async def put_vhost(call: ApiCall) -> Response:
    """Create or change a virtual host; its creator gets full permissions, and fields that are not sent stay."""
    sent = bodies.decode(await bodies.read(call.request))
    name, fields = call.values["vhost"], VHOST.take(sent)
    tracing = None if sent.get("tracing") is None else bodies.boolean(sent["tracing"])
    creator = {"creator": call.user.name} if call.found is None else {}
    await call.ask("add_vhost", name=name, **creator, **fields)
    if tracing is not None:
        await call.ask("trace_on" if tracing else "trace_off", vhost=name)
    return created(call)


async def put_user(call: ApiCall) -> Response:
    sent = bodies.decode(await bodies.read(call.request))
    if sent.get("tags") is None:
        raise bad_request("tags_not_present")
    if sent.get("password") is not None and sent.get("password_hash") is not None:
        raise bad_request("both_password_and_password_hash_are_provided")
    await call.ask("put_user", name=call.values["user"], **USER.take(sent))
    return created(call)


async def delete_users(call: ApiCall) -> Response:
    """Delete several users: {"users": [...]}; none is deleted if one of them does not exist."""
    names = Body("users", users=bodies.anything).take(bodies.decode(await bodies.read(call.request)))["users"]
    known = {user["name"] for user in await call.ask("list_users")}
    if not isinstance(names, list):
        raise bad_request(["not_a_list", names])
    for name in names:
        if name not in known:
            raise bad_request(["no_such_user", name])
    for name in dict.fromkeys(names):
        await call.ask("delete_user", name=name)
    return Response(b"", DONE)


async def users_without_permissions(call: ApiCall) -> Response:
    somewhere = {permission["user"] for permission in await call.ask("list_permissions")}
    users = [user for user in await call.ask("list_users") if user["name"] not in somewhere]
    return json_answer(encode(chosen(arranged(users, ("name",), None, False), call.columns())))


async def topic_permissions_at(call: ApiCall) -> list[dict[str, Any]] | None:
    """Return the topic permissions of a user in a virtual host, or only those of the exchange in the path."""
    wanted = {name: call.values[name] for name in ("vhost", "user", "exchange") if name in call.values}
    items = await call.ask("list_topic_permissions")
    return [item for item in items if all(item[name] == each for name, each in wanted.items())] or None


# -- limits ------------------------------------------------------------------------------------------------------------


async def vhost_limits(call: ApiCall) -> Response:
    """Return the limits of all virtual hosts or of one; only monitors see those of virtual hosts not theirs."""
    items = await call.ask("list_vhost_limits", **call.values)
    if not call.user.is_monitor:
        mine = await call.user.vhosts()
        items = [item for item in items if item["vhost"] in mine]
    return json_answer(encode(chosen(items, call.columns())))


async def user_limits(call: ApiCall) -> Response:
    """Return the limits of all users; users who are no monitors see their own."""
    asked = {} if call.user.is_monitor else {"user": call.user.name}
    items = arranged(
        await call.ask("list_user_limits", **asked), ("user",), call.query("sort"), call.flag("sort_reverse")
    )
    return json_answer(encode(chosen(items, call.columns())))


def put_limit(command: str, field: str) -> Action:
    """PUT: one limit of a virtual host or a user, {"value": N}."""

    async def change(call: ApiCall) -> Response:
        _must_be_json(call.request)
        sent = Body("value", value=bodies.anything).take(bodies.decode(await bodies.read(call.request)))
        if field == "vhost" and not await call.vhost_exists():
            raise no_vhost()
        try:
            await call.ask(command, **{field: call.values[field]}, name=call.values["limit"], value=sent["value"])
        except Refused as refused:
            if refused.kind == NOT_FOUND and field == "user":
                raise bad_request(["no_such_user", call.values[field]]) from None
            raise
        return Response(b"", DONE)

    return change


async def enable_feature(call: ApiCall) -> Response:
    """Accept known feature flags, which are all enabled already."""
    _must_be_json(call.request)
    if all(flag["name"] != call.values["name"] for flag in await call.ask("list_feature_flags")):
        raise bad_request("unsupported")
    return Response(b"", DONE)


def _must_be_json(request: Request) -> None:
    if not request.headers.get("content-type", "").startswith("application/json"):
        raise HttpError(415)


# -- connections, queues, bindings -------------------------------------------------------------------------------------


async def close_connection(call: ApiCall) -> Response:
    await call.ask("close_connection", name=call.values["name"], reason=_reason(call))
    return Response(b"", DONE)


async def connections_of_user(call: ApiCall) -> Response:
    """GET: the connections of a user, by default only with the columns that identify them."""
    asked = {"user": call.values["user"], "columns": call.columns() or ["name", "vhost", "user", "node"]}
    return await call.pass_on("list_connections", **asked, **page(call))


async def close_connections_of_user(call: ApiCall) -> Response:
    await call.ask("close_all_user_connections", user=call.values["user"], reason=_reason(call))
    return Response(b"", DONE)


def _reason(call: ApiCall) -> str:
    return call.request.headers.get("x-reason", REASON)


async def queue_action(call: ApiCall) -> Response:
    """POST {"action": "sync"}: there are no mirrors, so nothing is out of sync."""
    action = Body("action", action=bodies.anything).take(bodies.decode(await bodies.read(call.request)))["action"]
    if action not in ("sync", "cancel_sync"):
        raise bad_request(["unknown", action])
    return Response(b"", DONE)


async def bind(call: ApiCall) -> Response:
    """POST: add a binding; the answer has its location."""
    values = call.values
    fields = BINDING.take(bodies.decode(await bodies.read(call.request)))
    if not await call.vhost_exists():
        raise no_vhost()
    answer = await call.ask("bind", **values, **fields, user=call.user.name)
    here = quote(values["destination"], safe="")
    return Response(b"", 201, {"location": f"{here}/{quote(answer['properties_key'], safe='~')}"})


# -- definitions -------------------------------------------------------------------------------------------------------


async def get_definitions(call: ApiCall) -> Response:
    vhost = call.values.get("vhost")
    if vhost is not None and not await call.vhost_exists():
        raise bad_request("vhost_not_found")
    answer = await call.pass_on("export_definitions", vhost=vhost)
    if (name := call.query("download")) is not None:
        answer.headers["content-disposition"] = f"attachment; filename={quote(name, safe=' ()[]+,=')}"
    return answer


async def post_definitions(call: ApiCall) -> Response:
    """Import JSON, or a form with a JSON file, as web pages send it."""
    kind = call.request.headers.get("content-type", "")
    sent = await bodies.read(call.request)
    redirect = ""
    if kind.startswith("multipart/form-data"):
        parts = form_parts(kind, sent)
        sent, redirect = parts.get("file", b""), parts.get("redirect", b"").decode("utf-8", "replace")
    elif not kind.startswith("application/json"):
        raise HttpError(415)
    if "vhost" in call.values and not await call.vhost_exists():
        raise no_vhost()
    try:
        definitions = bodies.shallow(msgspec.json.decode(sent or b"{}", type=dict[str, Any]))
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        raise bad_request("failed_to_parse_json") from None
    await call.ask("import_definitions", definitions=definitions, vhost=call.values.get("vhost"))
    if redirect:
        return Response(b"", 303, {"location": quote(redirect, safe="/:?#[]@!$&'()*+,;=%")})
    return Response(b"", DONE)


def form_parts(content_type: str, body: bytes) -> dict[str, bytes]:
    """Return the fields of a multipart form."""
    head = f"Content-Type: {content_type}\r\n\r\n".encode()
    message = email.parser.BytesParser(policy=email.policy.HTTP).parsebytes(head + body)
    if not message.is_multipart():
        raise bad_request("failed_to_parse_json")
    found = {}
    for part in message.iter_parts():
        payload = part.get_payload(decode=True)
        found[str(part.get_param("name", "", "content-disposition"))] = payload if isinstance(payload, bytes) else b""
    return found


# -- the node ----------------------------------------------------------------------------------------------------------


async def auth_attempts(call: ApiCall) -> Response:
    return await _of_this_node(call, "list_auth_attempts", by_source=call.request.url.path.endswith("/source"))


async def reset_auth_attempts(call: ApiCall) -> Response:
    await _of_this_node(call, "reset_auth_attempts")
    return Response(b"", DONE)


async def reset_statistics(call: ApiCall) -> Response:
    """Do nothing: there is no statistics database to reset."""
    if "node" in call.values:
        await _of_this_node(call, "list_auth_attempts", by_source=False)
    return Response(b"", DONE)


async def _of_this_node(call: ApiCall, command: str, **fields: Any) -> Response:
    try:
        await call.ask("get_node", name=call.values["node"])
    except Refused as refused:
        raise (no_object() if refused.kind == NOT_FOUND else answer_of(refused)) from None
    return json_answer(encode(await call.ask(command, **fields)))
