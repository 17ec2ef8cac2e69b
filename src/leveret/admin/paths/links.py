"""/api/federation-links, as in RabbitMQ's plugin rabbitmq_federation_management; pausing a link is leveret's own."""

from __future__ import annotations

from typing import Any, Final

from starlette.responses import Response

from leveret.admin.answers import encode, json_answer, no_object
from leveret.admin.arrange import arranged, chosen
from leveret.admin.call import ApiCall
from leveret.admin.paths.actions import Action, fill
from leveret.control.refusal import NOT_FOUND, Refused

ORDER: Final = ("vhost", "exchange", "upstream")


def listed(only_down: bool = False, **fields: str) -> Action:
    """GET: the links in the virtual hosts of the user."""

    async def get(call: ApiCall) -> Response:
        items = await call.ask("federation_status", only_down=only_down, **fill(fields, call.values))
        if not call.user.is_administrator:
            mine = await call.user.vhosts()
            items = [item for item in items if item["vhost"] in mine]
        items = arranged(items, ORDER, call.query("sort"), call.flag("sort_reverse"))
        return json_answer(encode(chosen(items, call.columns())))

    return get


async def find(call: ApiCall) -> Any:
    """Return the link in the path's virtual host; RabbitMQ also accepts an existing link of another one."""
    try:
        await call.ask("get_node", name=call.values["node"])
        await call.ask("get_vhost", name=call.values["vhost"])
    except Refused as refused:
        if refused.kind != NOT_FOUND:
            raise
        return None
    items = await call.ask("federation_status", vhost=call.values["vhost"])
    return next((item for item in items if item["id"] and item["id"] == call.values["id"]), None)


async def pause(call: ApiCall) -> Response:
    """PUT: pause the link until the pause is deleted."""
    if call.found is None:
        raise no_object()
    await call.ask("pause_federation_link", vhost=call.values["vhost"], id=call.values["id"])
    return Response(b"", 204)
