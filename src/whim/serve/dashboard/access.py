"""Who may see a page: the same keys as for the API; without one a page leads to the login."""

from __future__ import annotations

import contextlib
from urllib.parse import quote

from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from whim.serve.dashboard import form_routes
from whim.serve.dashboard.forms import path_of
from whim.serve.dashboard.render import problem_page
from whim.serve.dashboard.routes import routes
from whim.serve.http.guard import admit, must_reach
from whim.serve.http.problems import ProblemError

_OPEN = ("/login", "/static")  # pages that need no key
_HEADERS = [
    (b"content-security-policy",
     b"default-src 'self'; style-src 'self'; script-src 'self'; img-src 'self' data:; "
     b"frame-ancestors 'none'; base-uri 'none'; form-action 'self'"),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"same-origin"),
]  # fmt: skip


class _Guarded:
    """A page behind the guard of the API."""

    def __init__(self, inner: ASGIApp, scope: str | None) -> None:
        self._inner, self._scope = inner, scope

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_safely(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], *_HEADERS]
            with contextlib.suppress(OSError, RuntimeError):  # the caller has disconnected
                await send(message)

        page = self._inner
        try:
            key = admit(scope["app"].state.service, scope, self._scope, dict(scope["headers"]))
            scope["whim.key"] = key
            if "space" in scope.get("path_params", ()):
                must_reach(key, scope["path_params"]["space"])
        except Exception as error:
            page = _refusal(scope, error)
        await page(scope, receive, send_safely)


def _refusal(scope: Scope, error: Exception) -> Response:
    if isinstance(error, ProblemError) and error.status == 401:
        headers = dict(scope["headers"])
        if b"hx-request" in headers:  # a part of a page, which is to come back itself
            onward = path_of(str(headers.get(b"hx-current-url", b"/"), "latin-1"))
            where = f"/login?next={quote(onward)}"
            return Response(status_code=401, headers={"HX-Redirect": where})
        return RedirectResponse(f"/login?next={quote(scope['path'])}", status_code=303)
    return problem_page(error)


def guarded_routes() -> list[BaseRoute]:
    """All routes of the dashboard.

    Each needs the scope ``read``, but for the login and static files; what changes spaces needs
    ``admin``.
    """
    guarded = routes()
    changing = {route.path for route in form_routes.routes()}
    for route in guarded:
        is_open = getattr(route, "path", "").startswith(_OPEN)
        wanted = "admin" if getattr(route, "path", "") in changing else "read"
        route.app = _Guarded(route.app, None if is_open else wanted)  # type: ignore[attr-defined]
    return guarded
