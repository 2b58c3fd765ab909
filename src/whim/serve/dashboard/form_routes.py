"""Routes of the form that makes and changes spaces: for keys with the scope ``admin``."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from whim.errors import WhimError
from whim.serve import wire
from whim.serve.dashboard import forms, space_form, views
from whim.serve.dashboard.answers import in_words, page, part, service_of
from whim.serve.dashboard.render import NO_STORE
from whim.serve.dashboard.words import attribute_words, kind_words, policy_words
from whim.serve.http.guard import must_reach
from whim.serve.http.problems import problem_of
from whim.serve.state.policy import SERVED
from whim.serve.state.space import ConflictError, NotFoundError

_NEW = wire.SpaceConfig(context=wire.Features(constant=True), explore=0.05)


def routes() -> list[Route]:
    """All of them, not yet guarded."""
    both = ["GET", "POST"]
    return [
        Route("/new", in_words(_new_space), methods=both),
        Route("/spaces/{space}/edit", in_words(_change_space), methods=both),
        Route("/page/form/params", in_words(_form_params)),
    ]


async def _new_space(request: Request) -> Response:
    if request.method == "GET":
        return _form(request, None, space_form.to_fields(_NEW), {})
    service = service_of(request)
    fields, errors = await _fields(request)
    config = None
    if not errors:
        config, errors = await asyncio.to_thread(space_form.read, fields, None)
    name = fields.get("name", "").strip()
    if config is not None:
        try:
            must_reach(request.scope.get("whim.key"), name)
            await service.create(name, config)
            return RedirectResponse(f"/spaces/{quote(name, safe='')}", 303, NO_STORE)
        except WhimError as error:
            errors = _told(error)
    return _form(request, None, fields, errors, 422)


async def _change_space(request: Request) -> Response:
    service, name = service_of(request), request.path_params["space"]
    info = service.engine.info(name)
    _, wanted = service.engine.wanted(name)
    now = wanted.config or info.config
    if request.method == "GET":
        return _form(request, name, space_form.to_fields(now), {})
    fields, errors = await _fields(request)
    config = None
    if not errors:
        config, errors = await asyncio.to_thread(space_form.read, fields, now)
    if config is not None:
        try:
            if fields.get("version") != str(wanted.version):
                raise ConflictError(
                    "somebody else has changed this space meanwhile: look at it as it is now, "
                    "then change it again."
                )
            if config == now:
                raise ConflictError("nothing is different from the configuration of now.")
            await service.change(name, config)
            return RedirectResponse(f"/spaces/{quote(name, safe='')}", 303, NO_STORE)
        except WhimError as error:
            errors = _told(error)
    return _form(request, name, fields, errors, 422)


async def _fields(request: Request) -> tuple[dict[str, str], dict[str, str]]:
    try:
        return await forms.fields(request), {}
    except WhimError as error:
        return {}, {"": str(error)}


def _told(error: WhimError) -> dict[str, str]:
    """What the service refuses, beside its field if it names one."""
    problem = problem_of(error)
    path = problem.problem.path if problem is not None else None
    if path is None:
        return {"": str(error)[:1].upper() + str(error)[1:]}
    return {space_form.field_of(path, {}): str(error).removeprefix(path).lstrip(": ")}


def _form(
    request: Request, name: str | None, fields: Mapping[str, str], errors: dict[str, str],
    status: int = 200,
) -> Response:  # fmt: skip
    engine = service_of(request).engine
    policy = fields.get("policy", _NEW.policy)
    cost = None
    if name is not None:
        state = engine.space(name).state
        cost = {
            "decisions": state.stats.counts["decisions"],
            "version": engine.info(name).version,
            "wanted": engine.wanted(name)[1].version,
        }
    shown = [one for one in _shown(fields) if one in errors]
    return page(
        request, "space_form.html", status, name=name, fields=defaultdict(str, fields),
        errors=errors, cost=cost, elsewhere={k: v for k, v in errors.items() if k not in shown},
        rows={side: space_form.rows_of(fields, side) for side in space_form.SIDES},
        kinds={kind: kind_words(kind) for kind in space_form.KINDS},
        attributes={name: attribute_words(name) for name in space_form.ATTRIBUTES},
        policies={one: policy_words(one) for one in SERVED},
        params=_param_fields(policy, fields),
        open_params=any(one == "seed" or one.split(".")[0] == "p" for one in errors),
    )  # fmt: skip


def _shown(fields: Mapping[str, str]) -> list[str]:
    """The fields and groups that have a place for an error."""
    names = ["name", "policy", "p", "explore", "holdback", "baseline", "seed", "rewards.range"]
    names += [f"rewards.{one}" for one in ("wait_seconds", "default", "combine")]
    names += [f"rewards.range.{one}" for one in ("least", "most", "outside")]
    names += [one for one in fields if one.startswith("p.")]
    for side in space_form.SIDES:
        names += [side, f"{side}.size", f"{side}.rest"]
        for i in space_form.rows_of(fields, side):
            row = f"{side}.fields.{i}"
            names += [row, *(f"{row}.{a}" for a in ("name", "kind", *space_form.ATTRIBUTES))]
    return names


def _param_fields(policy: str, fields: Mapping[str, str]) -> list[dict[str, Any]]:
    if policy not in SERVED:
        return []
    current = views.params(policy, {})
    for one in current:
        one["value"] = fields.get(f"p.{one['name']}", "")
    known = {one["name"] for one in current}
    for name in (key[2:] for key in fields if key.startswith("p.")):
        if name not in known and fields[f"p.{name}"].strip():  # so that it can be seen and removed
            value = fields[f"p.{name}"]
            current.append({"name": name, "needed": False, "default": "", "value": value})
    return current


async def _form_params(request: Request) -> Response:
    policy = request.query_params.get("policy", "")
    if policy not in SERVED:
        raise NotFoundError(f"policy must be one that exists, got {policy!r}.")
    return part("_form_params.html", params=_param_fields(policy, {}), errors={}, swap=policy)
