"""Routes of an arm's own page: the page, its parts, and numbers for its charts."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from whim.serve.dashboard.answers import (
    in_words,
    integer,
    numbers,
    page,
    part,
    range_wanted,
    service_of,
)
from whim.serve.dashboard.arm_page import arm_of, arm_series, arm_view, span_of
from whim.serve.dashboard.changes import changes
from whim.serve.jobs.background import Job, JobState
from whim.serve.state.space import NotFoundError, Space


def routes() -> list[Route]:
    """All of them, not yet guarded; the arm is named by the query, for its id may be any text."""
    arm = "/page/spaces/{space}/arm"
    return [
        Route("/spaces/{space}/arm", in_words(_arm)),
        Route(f"{arm}/head", in_words(_arm_head)),
        Route(f"{arm}/series", in_words(_arm_series)),
        Route(f"{arm}/coefficients", in_words(_arm_coefficients)),
        Route(f"{arm}/coefficients/series", in_words(_arm_lines)),
    ]


def arm_wanted(request: Request, space: Space) -> str | int | None:
    """The arm that an address names, if it names one."""
    query = request.query_params
    return arm_of(space, query) if "id" in query or "number" in query else None


def _of(request: Request) -> tuple[Any, str, str | int]:
    """The engine, the space's name and the arm."""
    engine, name = service_of(request).engine, request.path_params["space"]
    return engine, name, arm_of(engine.space(name), request.query_params)


async def _arm(request: Request) -> Response:
    engine, name, arm = _of(request)
    during = range_wanted(request)
    rows = changes(engine, name, during, integer(request, "before"), arm)
    return page(
        request, "arm.html", arm=arm_view(engine, name, arm, during), changes=rows, job=None,
        waiting=True,
    )  # fmt: skip


async def _arm_head(request: Request) -> Response:
    return part("_arm_head.html", arm=arm_view(*_of(request), range_wanted(request)))


async def _arm_series(request: Request) -> Response:
    return numbers(arm_series(*_of(request), range_wanted(request)))


def _job(request: Request) -> Job | None:
    """The replay of the log that follows the arm's coefficients; begun if need be."""
    engine, name, arm = _of(request)
    during = range_wanted(request)
    background = service_of(request).background
    return background.coefficients(name, arm, span_of(engine, during), during.query)


async def _arm_coefficients(request: Request) -> Response:
    arm = arm_view(*_of(request), range_wanted(request))
    return part("_coefficients.html", arm=arm, job=_job(request), waiting=False)


async def _arm_lines(request: Request) -> Response:
    job = _job(request)
    if job is None or job.state != JobState.DONE:
        raise NotFoundError("these coefficients are not computed yet.")
    return numbers({"t": job.result["t"], "lines": job.result["lines"] or []})
