"""The application: the route table as an ASGI application, and the page beside it."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from urllib.parse import quote

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute
from starlette.routing import Route as WebRoute
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from whim.serve import dashboard as page
from whim.serve.http import handlers, personalizer
from whim.serve.http.guard import admit
from whim.serve.http.openapi import document
from whim.serve.http.problems import ProblemError
from whim.serve.http.routes import Endpoint, Route, failure
from whim.serve.http.service import Host

__all__ = ["API", "make"]

API: list[Route] = [*handlers.ROUTES, *personalizer.ROUTES]
_METHODS = ["GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS"]
_SPACES = ["", "v1", "spaces"]
_OPEN = ("/login", "/static")  # pages that need no key
_SAFE = [
    (b"content-security-policy",
     b"default-src 'self'; style-src 'self'; script-src 'self'; img-src 'self' data:; "
     b"frame-ancestors 'none'; base-uri 'none'; form-action 'self'"),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"same-origin"),
]  # fmt: skip


class _Page:
    """A page behind the same guard as the API; without a key it leads to the login."""

    def __init__(self, inner: ASGIApp, needs: bool) -> None:
        self._inner, self._needs = inner, needs

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        host: Host = scope["app"].state.host

        async def safely(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], *_SAFE]
            with contextlib.suppress(OSError, RuntimeError):  # the caller has gone meanwhile
                await send(message)

        answer: Response
        try:
            admit(host, scope, "read" if self._needs else None, dict(scope["headers"]))
        except Exception as error:
            answer = self._refused(scope, error)
            await answer(scope, receive, safely)
            return
        await self._inner(scope, receive, safely)

    def _refused(self, scope: Scope, error: Exception) -> Response:
        if isinstance(error, ProblemError) and error.status == 401:
            headers = dict(scope["headers"])
            if b"hx-request" in headers:  # a part of a page, which is to come back itself
                onward = page.here(str(headers.get(b"hx-current-url", b"/"), "latin-1"))
                where = f"/login?next={quote(onward)}"
                return Response(status_code=401, headers={"HX-Redirect": where})
            return RedirectResponse(f"/login?next={quote(scope['path'])}", status_code=303)
        return page.trouble(error)


def _guarded(routes: list[BaseRoute]) -> list[BaseRoute]:
    for route in routes:
        path = getattr(route, "path", "")
        route.app = _Page(route.app, not path.startswith(_OPEN))  # type: ignore[attr-defined]
    return routes


async def _not_there(request: Request, error: Exception) -> Response:
    status = error.status_code if isinstance(error, HTTPException) else 500
    code = {404: "not_found", 405: "method"}.get(status, "fault")
    told = failure(ProblemError(status, code, f"there is nothing at {request.url.path[:200]!r}."))
    return Response(told.body, told.status, media_type="application/json")


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


def make(host: Host) -> ASGIApp:
    """The application of a host; it starts and closes it."""
    by_path: dict[str, list[Route]] = {}
    for route in API:
        by_path.setdefault(route.path, []).append(route)
    endpoints = {path: Endpoint(routes) for path, routes in by_path.items()}
    served: list[BaseRoute] = [
        WebRoute(path, endpoint, methods=_METHODS) for path, endpoint in endpoints.items()
    ]
    pages = _guarded(page.routes())
    web = [route for route in pages if isinstance(route, WebRoute)]
    host.document = msgspec.json.encode(document(API, web))

    @contextlib.asynccontextmanager
    async def life(app: Starlette) -> AsyncIterator[None]:
        await host.start()
        try:
            yield
        finally:
            await host.close()

    app = Starlette(
        routes=[*served, *pages], lifespan=life,
        exception_handlers={404: _not_there, 405: _not_there},
    )  # fmt: skip
    app.state.host = host
    quick = {name: endpoints[f"/v1/spaces/{{space}}/{name}"] for name in ("decisions", "rewards")}
    return _Front(app, quick)
