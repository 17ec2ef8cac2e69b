"""The ASGI application: finds the route of a request and checks it in the order of the management plugin."""

from __future__ import annotations

import logging
from typing import Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from leveret.admin import login
from leveret.admin.answers import HttpError, accepts_json, answer_error, finish, no_object, not_authorised
from leveret.admin.call import ApiCall, answer_of
from leveret.admin.cors import Cors
from leveret.admin.origin import is_foreign
from leveret.admin.paths.examined import Examiner
from leveret.admin.paths.routes import ROUTES, Routes
from leveret.admin.route import PathRoute
from leveret.admin.router import Router, segments
from leveret.control.calls.client import AsyncControlClient
from leveret.control.refusal import Refused
from leveret.wire.errors import quoted

logger = logging.getLogger("leveret.admin")

KNOWN_METHODS: Final = frozenset({"HEAD", "GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})


class Api:
    """An ASGI application."""

    def __init__(
        self, control: AsyncControlClient, cors: Cors, examiner: Examiner | None = None, routes: Routes = ROUTES
    ) -> None:
        self._control = control  # connections to the broker
        self._cors = cors
        self._examiner = examiner or Examiner()  # caches hashes of files
        self._router = Router(routes)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        request = Request(scope, receive)
        route, values = self._find(request)
        try:
            answer = await self._answer(request, route, values)
        except HttpError as error:
            answer = answer_error(error)
        except Refused as refused:
            answer = answer_error(answer_of(refused))
        except Exception:
            # a defect of the server must not look like an error of the client
            logger.exception("internal error in %s %s", quoted(request.method), quoted(request.url.path))
            answer = answer_error(HttpError(500, "internal_server_error", "internal error; see the broker's log"))
        self._cors.allow(request, answer, route.methods if route else ())
        await finish(request, answer)(scope, receive, send)

    def _find(self, request: Request) -> tuple[PathRoute | None, dict[str, str]]:
        path = segments(request.scope.get("raw_path") or request.url.path.encode())
        found = None if path is None else self._router.find(path)
        return found or (None, {})

    async def _answer(self, request: Request, route: PathRoute | None, values: dict[str, str]) -> Response:
        method = request.method
        if route is None:
            raise no_object()
        if method not in KNOWN_METHODS:
            raise HttpError(501)
        if method not in route.methods:
            raise HttpError(405, headers={"allow": ", ".join(route.methods)})
        if method == "OPTIONS":
            return Response(b"", headers={"allow": ", ".join(route.methods)})
        if is_foreign(request) and not self._cors.lets_in(request.headers["origin"]):
            raise HttpError(403, "forbidden", "web pages of other origins may not make changes: see cors_origins")
        if route.open is not None:
            return await route.open(request, self._control)
        user = await login.log_in(request, self._control, *route.credentials(request))
        call = ApiCall(request, route.bound(values), user, self._control, self._examiner)
        return await self._serve(call, route)

    async def _serve(self, call: ApiCall, route: PathRoute) -> Response:
        method = call.request.method
        rule = route.rule(method)
        if not route.is_owned and (reason := await rule(call)):
            raise not_authorised(reason)
        if not route.is_file and not accepts_json(call.request):
            raise HttpError(406)
        if route.find is not None:
            call.found = await route.find(call)
            if call.found is None and method != "PUT":
                raise no_object()
        if route.is_owned and (reason := await rule(call)):
            raise not_authorised(reason)
        return await route.action(method)(call)
