"""The page's routes: whole pages, the parts that refresh, numbers for charts, and the login."""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import quote

import msgspec
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles

from whim.errors import WhimError
from whim.serve import wire
from whim.serve.dashboard import forms, views
from whim.serve.dashboard.arms import arms
from whim.serve.dashboard.render import STATIC, render
from whim.serve.http.problems import problem_of
from whim.serve.state.space import NotFoundError

__all__ = ["routes", "trouble"]

_COOKIE = "whim_key"
_NO_STORE = {"cache-control": "no-store"}
_json = msgspec.json.Encoder().encode
_TITLES = {
    403: "Not allowed", 404: "Not found", 429: "Too many requests",
    503: "The service cannot answer now",
}  # fmt: skip
View = Callable[[Request], Awaitable[Response]]


def routes() -> list[BaseRoute]:
    """All of them; every one but the login and the static files needs the scope ``read``."""
    space = "/page/spaces/{space}"
    return [
        Route("/", _guarded(_spaces)),
        Route("/spaces/{space}", _guarded(_space)),
        Route("/login", _login, methods=["GET", "POST"]),
        Route("/logout", _logout, methods=["POST"]),
        Route("/page/spaces", _guarded(_cards)),
        Route(f"{space}/summary", _guarded(_summary)),
        Route(f"{space}/arms", _guarded(_arms)),
        Route(f"{space}/changes", _guarded(_changes)),
        Route(f"{space}/series", _guarded(_series)),
        Route(f"{space}/params", _guarded(_params)),
        Route(f"{space}/whatif", _guarded(_whatif), methods=["POST"]),
        Route(f"{space}/whatif/{{job}}", _guarded(_job)),
        Route(f"{space}/whatif/{{job}}/series", _guarded(_job_series)),
        Mount("/static", StaticFiles(directory=STATIC), name="page-static"),
    ]


# -- around every view ------------------------------------------------------------------------


class _WrongError(Exception):
    """A page that says what is wrong."""

    def __init__(self, status: int, title: str, message: str) -> None:
        super().__init__(message)
        self.status, self.title = status, title


def _guarded(view: View) -> View:
    """Let a view fail in words: a whole page, or a part of one where htmx asked."""

    @functools.wraps(view)
    async def answer(request: Request) -> Response:
        try:
            _ready(request)
            return await view(request)
        except _WrongError as error:
            return _failed(request, error.status, error.title, str(error))
        except NotFoundError as error:
            return _failed(request, 404, "Not found", str(error))
        except WhimError as error:
            return _failed(request, 503, "The service has a problem", str(error))

    return answer


def _ready(request: Request) -> None:
    host = request.app.state.host
    if getattr(host, "problem", None) is not None:
        raise _WrongError(503, "The service could not start", str(host.problem))
    if not getattr(host, "ready", True):
        raise _WrongError(503, "Starting", "The service is reading its log. This takes a moment.")


def _failed(request: Request, status: int, title: str, message: str) -> Response:
    if "hx-request" in request.headers:
        return HTMLResponse(render("_error.html", message=message), status, _NO_STORE)
    return _whole(status, title, message, request.url.path)


def _whole(status: int, title: str, message: str, here: str = "") -> Response:
    again = status == 503
    text = render(
        "error.html", title=title, message=message, logged_in=False, again=again,
        back=here if again else "/",
    )  # fmt: skip
    return HTMLResponse(text, status, _NO_STORE | ({"refresh": "3"} if again else {}))


def trouble(error: Exception) -> Response:
    """A page that says why no other can be shown."""
    found = problem_of(error)
    if found is None:
        return _whole(500, "Something went wrong", "The fault is ours; the log says more.")
    title = _TITLES.get(found.status, "This cannot be shown")
    return _whole(found.status, title, found.problem.message)


def _page(request: Request, template: str, status: int = 200, **values: Any) -> Response:
    host = request.app.state.host
    logged_in = host.keys.any and _COOKIE in request.cookies
    text = render(template, logged_in=logged_in, **views.shell(host.engine), **values)
    return HTMLResponse(text, status, _NO_STORE)


def _part(template: str, **values: Any) -> Response:
    return HTMLResponse(render(template, **values), headers=_NO_STORE)


def _numbers(values: Any) -> Response:
    return Response(_json(values), media_type="application/json", headers=_NO_STORE)


def _integer(request: Request, name: str, default: int | None = None) -> int | None:
    text = request.query_params.get(name, "")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 19 else default


# -- pages and parts --------------------------------------------------------------------------


def _origin(request: Request) -> str:
    return str(request.base_url).rstrip("/")


async def _all_cards(request: Request) -> dict[str, Any]:
    engine, cards = request.app.state.host.engine, []
    for name in sorted(engine.spaces):
        if name in engine.spaces:  # others have their turn in between
            cards.append(views.card(engine, name))
        await asyncio.sleep(0)
    return {"cards": cards, "origin": _origin(request)}


async def _spaces(request: Request) -> Response:
    return _page(request, "spaces.html", **await _all_cards(request))


async def _cards(request: Request) -> Response:
    shell = views.shell(request.app.state.host.engine)
    return _part("_cards.html", **await _all_cards(request), **shell)


async def _space(request: Request) -> Response:
    engine, name = request.app.state.host.engine, request.path_params["space"]
    return _page(
        request,
        "space.html",
        **_told(request),
        arms=await _arms_asked(request),
        changes=views.changes(engine, name, _integer(request, "before")),
        config=views.config(engine, name),
        form=_form(engine.space(name).config, name),
    )


def _told(request: Request) -> dict[str, Any]:
    engine, name = request.app.state.host.engine, request.path_params["space"]
    return {
        "space": views.summary(engine, name),
        "example": views.example(engine.space(name), _origin(request)),
    }


async def _summary(request: Request) -> Response:
    engine = request.app.state.host.engine
    return _part("_summary.html", **_told(request), **views.shell(engine))


async def _arms_asked(request: Request) -> dict[str, Any]:
    query = request.query_params
    return await arms(
        request.app.state.host.engine,
        request.path_params["space"],
        query.get("sort", "decisions"),
        query.get("down", "1") != "0",
        _integer(request, "page", 1) or 1,
        query.get("q", "")[:256],
    )


async def _arms(request: Request) -> Response:
    return _part("_arms.html", arms=await _arms_asked(request))


async def _changes(request: Request) -> Response:
    engine, name = request.app.state.host.engine, request.path_params["space"]
    seen = _integer(request, "latest"), _integer(request, "version")
    if seen == (views.latest(engine, name), engine.space(name).fold.version):
        return Response(status_code=204, headers=_NO_STORE)
    found = views.changes(engine, name, _integer(request, "before"))
    return _part("_changes.html", changes=found)


async def _series(request: Request) -> Response:
    return _numbers(views.series(request.app.state.host.engine, request.path_params["space"]))


# -- what if ----------------------------------------------------------------------------------


def _form(config: wire.SpaceConfig, name: str, policy: str | None = None) -> dict[str, Any]:
    policy = config.policy if policy is None else policy
    return {
        "name": name,
        "policy": policy,
        "policies": views.policies(),
        "explore": f"{config.explore:g}",
        "explores": views.explores(config),
        "params": views.params(policy, config.params if policy == config.policy else {}),
    }


async def _params(request: Request) -> Response:
    space = request.app.state.host.engine.space(request.path_params["space"])
    policy = request.query_params.get("policy", space.config.policy)
    if policy not in views.policies():
        raise NotFoundError(f"policy must be one that exists, got {policy!r}.")
    return _part("_whatif_params.html", form=_form(space.config, space.name, policy))


async def _whatif(request: Request) -> Response:
    host, name = request.app.state.host, request.path_params["space"]
    space = host.engine.space(name)
    try:
        given = await forms.fields(request)
        config = await asyncio.to_thread(forms.asked, given, space.config)
        key = host.whatif(name, config)
        key = await key if inspect.isawaitable(key) else key
    except WhimError as error:
        text = render("_whatif_job.html", problem=str(error))
        return HTMLResponse(text, 422, _NO_STORE)
    return _told_job(name, key, host.job(key))


def _told_job(name: str, key: str, job: Any) -> Response:
    problem = "This replay is no longer known here: ask again." if job is None else None
    found = views.compared(job.result) if job is not None and job.state == "done" else None
    return _part(
        "_whatif_job.html", problem=problem, name=name, id=key, job=job, found=found
    )  # fmt: skip


def _found(request: Request) -> Any:
    key = request.path_params["job"]
    job = request.app.state.host.job(key)
    if job is None:
        raise NotFoundError("this what-if is gone: ask again.")
    return job


async def _job(request: Request) -> Response:
    name, key = request.path_params["space"], request.path_params["job"]
    return _told_job(name, key, request.app.state.host.job(key))


async def _job_series(request: Request) -> Response:
    job = _found(request)
    if job.state != "done":
        raise NotFoundError("this what-if is not done yet.")
    return _numbers({name: job.result[name]["curve"] for name in ("logged", "whatif")})


# -- login ------------------------------------------------------------------------------------


async def _login(request: Request) -> Response:
    host = request.app.state.host
    if request.method == "GET":
        if "hx-request" in request.headers:  # a part of a page whose login is over
            onward = forms.here(request.headers.get("hx-current-url", "/"))
            return Response(headers={"hx-redirect": f"/login?next={quote(onward)}"})
        return _ask(forms.local(request.query_params.get("next", "/")))
    try:
        given = await forms.fields(request)
    except WhimError as error:
        return _ask("/", str(error), 422)
    onward, token = forms.local(given.get("next", "/")), given.get("key", "").strip()
    key = host.keys.check(token) if token and host.keys.any else None
    if host.keys.any and key is None:
        return _ask(onward, "This key is not in force.", 401)
    if key is not None and not key.allows("read"):
        return _ask(onward, "This key does not have the scope read.", 403)
    answer = RedirectResponse(onward, 303, _NO_STORE)
    if key is not None:
        answer.set_cookie(
            _COOKIE, token, path="/", httponly=True, samesite="strict",
            secure=request.url.scheme == "https",
        )  # fmt: skip
    return answer


def _ask(onward: str, problem: str | None = None, status: int = 200) -> Response:
    text = render("login.html", next=onward, problem=problem, logged_in=False)
    return HTMLResponse(text, status, _NO_STORE)


async def _logout(request: Request) -> Response:
    answer = RedirectResponse("/login", 303, _NO_STORE)
    answer.delete_cookie(_COOKIE, path="/", httponly=True, samesite="strict")
    return answer
