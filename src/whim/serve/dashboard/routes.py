"""Routes of the dashboard: whole pages, parts that refresh, numbers for charts, the login."""

from __future__ import annotations

import asyncio
from typing import Any
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles

from whim.errors import WhimError
from whim.serve import wire
from whim.serve.dashboard import arm_routes, changes, form_routes, forms, views
from whim.serve.dashboard.answers import (
    in_words,
    integer,
    may_change,
    numbers,
    page,
    part,
    range_wanted,
    service_of,
)
from whim.serve.dashboard.arms import arms
from whim.serve.dashboard.render import NO_STORE, STATIC, render
from whim.serve.dashboard.words import policy_words
from whim.serve.http import whatifs
from whim.serve.http.guard import COOKIE, address_of, check_key
from whim.serve.http.problems import ProblemError
from whim.serve.jobs.background import Job, JobState
from whim.serve.state.policy import SERVED
from whim.serve.state.space import NotFoundError


def routes() -> list[BaseRoute]:
    """All of them, not yet guarded."""
    space = "/page/spaces/{space}"
    return [
        Route("/", in_words(_spaces)),
        Route("/spaces/{space}", in_words(_space)),
        *form_routes.routes(),
        *arm_routes.routes(),
        Route("/login", _login, methods=["GET", "POST"]),
        Route("/logout", _logout, methods=["POST"]),
        Route("/page/spaces", in_words(_cards)),
        Route(f"{space}/summary", in_words(_summary)),
        Route(f"{space}/arms", in_words(_arms)),
        Route(f"{space}/changes", in_words(_changes)),
        Route(f"{space}/series", in_words(_series)),
        Route(f"{space}/params", in_words(_params)),
        Route(f"{space}/whatif", in_words(_whatif), methods=["POST"]),
        Route(f"{space}/whatif/{{job}}", in_words(_job)),
        Route(f"{space}/whatif/{{job}}/series", in_words(_job_series)),
        Mount("/static", StaticFiles(directory=STATIC), name="page-static"),
    ]


# -- pages and parts --------------------------------------------------------------------------


def _origin(request: Request) -> str:
    return str(request.base_url).rstrip("/")


async def _all_cards(request: Request) -> dict[str, Any]:
    engine, cards = service_of(request).engine, []
    key = request.scope.get("whim.key")
    for name in engine.names:
        if key is not None and not key.reaches(name):
            continue
        if name in engine:  # others have their turn in between
            cards.append(views.card(engine, name))
        await asyncio.sleep(0)
    return {"cards": cards, "origin": _origin(request)}


async def _spaces(request: Request) -> Response:
    return page(request, "spaces.html", **await _all_cards(request))


async def _cards(request: Request) -> Response:
    shell = views.shell(service_of(request).engine)
    may = may_change(request)
    return part("_cards.html", **await _all_cards(request), **shell, may_change=may)


async def _space(request: Request) -> Response:
    engine, name = service_of(request).engine, request.path_params["space"]
    return page(
        request, "space.html", **_head(request), arms=await _arms_wanted(request),
        changes=changes.changes(engine, name, range_wanted(request), integer(request, "before")),
        config=views.config(engine, name), form=_form(engine.space(name).config, name),
    )  # fmt: skip


def _head(request: Request) -> dict[str, Any]:
    engine, name = service_of(request).engine, request.path_params["space"]
    return {
        "space": views.summary(engine, name, range_wanted(request)),
        "example": views.example(engine.space(name), _origin(request)),
    }


async def _summary(request: Request) -> Response:
    engine = service_of(request).engine
    return part("_summary.html", **_head(request), **views.shell(engine))


async def _arms_wanted(request: Request) -> dict[str, Any]:
    query = request.query_params
    return await arms(
        service_of(request).engine,
        request.path_params["space"],
        query.get("sort", "decisions"),
        query.get("down", "1") != "0",
        integer(request, "page", 1) or 1,
        query.get("q", "")[:256],
        range_wanted(request),
    )


async def _arms(request: Request) -> Response:
    return part("_arms.html", arms=await _arms_wanted(request))


async def _changes(request: Request) -> Response:
    engine, name = service_of(request).engine, request.path_params["space"]
    space, during = engine.space(name), range_wanted(request)
    arm = arm_routes.arm_wanted(request, space)
    seen = integer(request, "latest"), integer(request, "version")
    if seen == (changes.latest(engine, name, during, arm), space.state.version):
        return Response(status_code=204, headers=NO_STORE)
    rows = changes.changes(engine, name, during, integer(request, "before"), arm)
    return part("_changes.html", changes=rows)


async def _series(request: Request) -> Response:
    engine, name = service_of(request).engine, request.path_params["space"]
    return numbers(views.series(engine, name, range_wanted(request)))


# -- what if ----------------------------------------------------------------------------------


def _form(config: wire.SpaceConfig, name: str, policy: str | None = None) -> dict[str, Any]:
    swap = policy is not None  # only what depends on the policy is shown anew
    policy = config.policy if policy is None else policy
    return {
        "swap": swap,
        "name": name,
        "policy": policy,
        "policies": {one: policy_words(one) for one in SERVED},
        "explore": f"{config.explore:g}",
        "explores": views.explores(config),
        "params": views.params(policy, config.params if policy == config.policy else {}),
    }


async def _params(request: Request) -> Response:
    space = service_of(request).engine.space(request.path_params["space"])
    policy = request.query_params.get("policy", space.config.policy)
    if policy not in SERVED:
        raise NotFoundError(f"policy must be one that exists, got {policy!r}.")
    return part("_whatif_params.html", form=_form(space.config, space.name, policy))


async def _whatif(request: Request) -> Response:
    service, name = service_of(request), request.path_params["space"]
    config = service.engine.space(name).config
    try:
        fields = await forms.fields(request)
        config = await asyncio.to_thread(forms.config_of, fields, config)
        key = await service.whatif(name, config)
    except WhimError as error:
        text = render("_whatif_job.html", problem=str(error))
        return HTMLResponse(text, 422, NO_STORE)
    return _show_job(name, key, service.job(key))


def _show_job(name: str, key: str, job: Job | None) -> Response:
    problem = "This replay is no longer stored. Start it again." if job is None else None
    done = job is not None and job.state == JobState.DONE
    result = views.compared(job.result) if job is not None and done else None
    return part(
        "_whatif_job.html", problem=problem, name=name, id=key, job=job, result=result
    )  # fmt: skip


async def _job(request: Request) -> Response:
    name, key = request.path_params["space"], request.path_params["job"]
    return _show_job(name, key, await _job_of(request))


async def _job_of(request: Request) -> Job | None:
    """The what-if of an address, if the key is for its space."""
    job = await whatifs.find(service_of(request), request.path_params["job"])
    key = request.scope.get("whim.key")
    return None if job is None or (key is not None and not key.reaches(job.space)) else job


async def _job_series(request: Request) -> Response:
    job = await _job_of(request)
    if job is None:
        raise NotFoundError("this what-if is no longer stored: start it again.")
    if job.state != JobState.DONE:
        raise NotFoundError("this what-if is not done yet.")
    return numbers({name: job.result[name]["curve"] for name in ("logged", "whatif")})


# -- login ------------------------------------------------------------------------------------


async def _login(request: Request) -> Response:
    service = service_of(request)
    if request.method == "GET":
        if "hx-request" in request.headers:  # a part of a page whose login is over
            onward = forms.path_of(request.headers.get("hx-current-url", "/"))
            return Response(headers={"hx-redirect": f"/login?next={quote(onward)}"})
        return _login_page(forms.local(request.query_params.get("next", "/")))
    try:
        fields = await forms.fields(request)
    except WhimError as error:
        return _login_page("/", str(error), 422)
    onward, token = forms.local(fields.get("next", "/")), fields.get("key", "").strip()
    key = None
    if service.keys.any:
        try:
            key = check_key(service.keys, token, address_of(request.scope))
        except ProblemError as error:
            wrong = "This key is unknown or revoked, or its time is over."
            said = wrong if error.status == 401 else str(error)
            return _login_page(onward, said, error.status)
    if key is not None and not key.allows("read"):
        return _login_page(onward, "This key does not have the scope read.", 403)
    answer = RedirectResponse(onward, 303, NO_STORE)
    if key is not None:
        answer.set_cookie(
            COOKIE, token, path="/", httponly=True, samesite="strict",
            secure=request.url.scheme == "https",
        )  # fmt: skip
    return answer


def _login_page(onward: str, problem: str | None = None, status: int = 200) -> Response:
    text = render("login.html", next=onward, problem=problem, logged_in=False)
    return HTMLResponse(text, status, NO_STORE)


async def _logout(request: Request) -> Response:
    answer = RedirectResponse("/login", 303, NO_STORE)
    answer.delete_cookie(COOKIE, path="/", httponly=True, samesite="strict")
    return answer
