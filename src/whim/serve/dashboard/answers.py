"""What views share: errors as messages, whole pages, parts of pages, numbers."""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from whim.errors import InvalidInputError, WhimError
from whim.serve.dashboard import views
from whim.serve.dashboard.ranges import Range, range_of
from whim.serve.dashboard.render import NO_STORE, error_page, render
from whim.serve.http.guard import COOKIE
from whim.serve.http.service import Service
from whim.serve.state.space import NotFoundError

_json = msgspec.json.Encoder().encode
View = Callable[[Request], Awaitable[Response]]


def in_words(view: View) -> View:
    """Show a view's error as a message: a whole page, or a part of one for htmx."""

    @functools.wraps(view)
    async def answer(request: Request) -> Response:
        service = service_of(request)
        if service.problem is not None:
            return _failed(request, 503, "The service could not start", str(service.problem))
        if not service.ready:
            said = "It reads its log, and the first time it compiles. This takes a moment."
            return _failed(request, 503, "Starting", said)
        name = request.path_params.get("space")
        try:
            if name is not None and name not in service.engine:
                await service.engine.know(name)  # another replica may have just made it
            return await view(request)
        except NotFoundError as error:
            return _failed(request, 404, "Not found", str(error))
        except InvalidInputError as error:
            return _failed(request, 422, "This cannot be shown", str(error))
        except WhimError as error:
            return _failed(request, 503, "The service has a problem", str(error))

    return answer


def service_of(request: Request) -> Service:
    """The service that a request came to."""
    service: Service = request.app.state.service
    return service


def _failed(request: Request, status: int, title: str, message: str) -> Response:
    if "hx-request" in request.headers:
        return HTMLResponse(render("_error.html", message=message), status, NO_STORE)
    return error_page(status, title, message, request.url.path)


def page(request: Request, template: str, status: int = 200, **values: Any) -> Response:
    """A whole page, with what every page knows."""
    service = service_of(request)
    logged_in = service.keys.any and COOKIE in request.cookies
    values |= views.shell(service.engine) | {"may_change": may_change(request)}
    text = render(template, logged_in=logged_in, **values)
    return HTMLResponse(text, status, NO_STORE)


def part(template: str, **values: Any) -> Response:
    """A part of a page."""
    return HTMLResponse(render(template, **values), headers=NO_STORE)


def numbers(values: Any) -> Response:
    """Numbers for a chart."""
    return Response(_json(values), media_type="application/json", headers=NO_STORE)


def integer(request: Request, name: str, default: int | None = None) -> int | None:
    """A whole number of an address; the default where it is none."""
    text = request.query_params.get(name, "")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 19 else default


def range_wanted(request: Request) -> Range:
    """The time that an address asks for."""
    return range_of(request.query_params, views.time_of(service_of(request).engine))


def may_change(request: Request) -> bool:
    """Whether the key of a request, if one is needed, may make and change spaces."""
    key = request.scope.get("whim.key")
    return key is None or key.allows("admin")
