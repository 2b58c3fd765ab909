"""The application: the route table as an ASGI application, and the dashboard beside it."""

from __future__ import annotations

import contextlib
import re
from collections.abc import AsyncIterator

import msgspec
from starlette.applications import Starlette
from starlette.convertors import Convertor, register_url_convertor
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute
from starlette.routing import Route as WebRoute
from starlette.types import ASGIApp, Receive, Scope, Send

from whim.serve import dashboard
from whim.serve.http import handlers, personalizer, personalizer_about, personalizer_slots
from whim.serve.http.access_log import AccessLog
from whim.serve.http.openapi import document
from whim.serve.http.problems import ProblemError
from whim.serve.http.proxies import Proxies
from whim.serve.http.routes import Endpoint, Route, failure
from whim.serve.http.service import Service
from whim.serve.logging import get as get_log

API: list[Route] = [
    *handlers.ROUTES, *personalizer.ROUTES, *personalizer_slots.ROUTES, *personalizer_about.ROUTES,
]  # fmt: skip
_METHODS = ["GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS"]
_SPACES = ["", "v1", "spaces"]


class _Id(Convertor[str]):
    """An id of a caller's own in a path: with slashes, and whatever else it may hold."""

    regex = "(?s:.+)"

    def convert(self, value: str) -> str:
        """As it is."""
        return value

    def to_string(self, value: str) -> str:
        """As it is."""
        return value


register_url_convertor("id", _Id())


async def _not_found(request: Request, error: Exception) -> Response:
    status = error.status_code if isinstance(error, HTTPException) else 500
    code = {404: "not_found", 405: "method"}.get(status, "fault")
    reply = failure(ProblemError(status, code, f"there is nothing at {request.url.path[:200]!r}."))
    return Response(reply.body, reply.status, media_type="application/json")


class _Front:
    """Decisions and rewards go straight to their endpoints, all else through the router.

    What an endpoint does is complete, so that it needs none of the router's wrapping.
    """

    def __init__(self, app: Starlette, quick: dict[str, Endpoint]) -> None:
        self._app, self._quick = app, quick

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            parts = scope["path"].split("/")
            if len(parts) == 5 and parts[4] in self._quick and parts[:3] == _SPACES:
                scope["app"], scope["path_params"] = self._app, {"space": parts[3]}
                await self._quick[parts[4]](scope, receive, send)
                return
        await self._app(scope, receive, send)


def make(service: Service) -> ASGIApp:
    """The application of a service; it starts and closes it."""
    by_path: dict[str, list[Route]] = {}
    for route in API:
        by_path.setdefault(route.path, []).append(route)
    endpoints = {path: Endpoint(routes) for path, routes in by_path.items()}
    served: list[BaseRoute] = [
        WebRoute(re.sub("{(decision|event)}", r"{\1:id}", place), endpoint, methods=_METHODS)
        for path, endpoint in endpoints.items()
        for place in (path, *personalizer.other_paths(path))
    ]
    pages = dashboard.guarded_routes()
    web = [route for route in pages if isinstance(route, WebRoute)]
    service.document = msgspec.json.encode(document(API, web))

    @contextlib.asynccontextmanager
    async def life(app: Starlette) -> AsyncIterator[None]:
        await service.start()
        try:
            yield
        finally:
            await service.close()

    app = Starlette(
        routes=[*served, *pages], lifespan=life,
        exception_handlers={404: _not_found, 405: _not_found},
    )  # fmt: skip
    app.state.service = service
    quick = {
        name: endpoints[f"/v1/spaces/{{space}}/{name}"]
        for name in ("decisions", "lists", "rewards")
    }
    front: ASGIApp = _Front(app, quick)
    if service.settings.access_log:
        front = AccessLog(front, get_log("access"))
    trusted = service.settings.trusted_proxies
    return Proxies(front, trusted) if trusted else front
