"""Pages for people: the paths of the API, and where to get command lines for it."""

from __future__ import annotations

from html import escape

from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response

from leveret.control.calls.client import AsyncControlClient

FRAME = "<!DOCTYPE html>\n<html lang=en><meta charset=utf-8><title>{title}</title>\n<h1>{title}</h1>\n{text}\n</html>\n"


async def api(request: Request, control: AsyncControlClient) -> Response:
    return RedirectResponse("/api/index.html", 301)


async def index(request: Request, control: AsyncControlClient) -> Response:
    """List all paths with their verbs, from the table of routes."""
    from leveret.admin.paths.routes import API

    rows = "\n".join(
        f"<tr><td><code>/api{escape(route.path)}</code><td>{' '.join(route.methods)}"
        for route in sorted(API, key=lambda each: each.path)
    )
    text = (
        "<p>The paths, verbs and JSON of RabbitMQ's management API. Names in a path are percent-encoded:"
        " the virtual host / is %2F.\n<table><tr><th align=left>path<th align=left>verbs\n" + rows + "\n</table>"
    )
    return HTMLResponse(FRAME.format(title="leveret HTTP API", text=text))


CLI = (
    "RabbitMQ's rabbitmqadmin works with this broker. It comes with RabbitMQ's packages, as rabbitmqadmin or in the"
    " management plugin, and from https://github.com/rabbitmq/rabbitmq-server (deps/rabbitmq_management/bin)."
    " On the broker's own machine there is also `leveret ctl`.\n"
)


async def cli(request: Request, control: AsyncControlClient) -> Response:
    return HTMLResponse(FRAME.format(title="Command lines", text=f"<p>{escape(CLI)}"))


async def rabbitmqadmin(request: Request, control: AsyncControlClient) -> Response:
    """Return 404: RabbitMQ serves its script here, which leveret must not copy."""
    return PlainTextResponse(CLI, 404)
