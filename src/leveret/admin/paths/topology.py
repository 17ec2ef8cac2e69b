"""/api/topology: exchanges, queues and their bindings. RabbitMQ does not have this path."""

from __future__ import annotations

from starlette.responses import Response

from leveret.admin.answers import no_object
from leveret.admin.body import integer
from leveret.admin.call import ApiCall
from leveret.control.refusal import NOT_FOUND, Refused


async def around(call: ApiCall) -> Response:
    """GET: exchange=NAME selects an exchange and its neighbours, limit=N the most neighbours."""
    asked: dict[str, object] = {"vhost": call.values["vhost"]}
    if (exchange := call.query("exchange")) is not None:
        asked["exchange"] = exchange
    if (limit := call.query("limit")) is not None:
        asked["limit"] = integer(limit)
    try:
        return await call.pass_on("get_topology", **asked)
    except Refused as refused:
        raise (no_object() if refused.kind == NOT_FOUND else refused) from None
