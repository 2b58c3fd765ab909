"""The OpenAPI document, made of the route table: what is served is what is written."""

from __future__ import annotations

import inspect
import re
from http import HTTPStatus
from typing import Any

import msgspec
from starlette.routing import Route as PageRoute

from whim.serve.http.problems import Failure
from whim.serve.http.routes import Route
from whim.version import __version__

_REFS = "#/components/schemas/{name}"
_ALWAYS = {
    400: "The body is not JSON.",
    413: "The body is too long.",
    422: "A field is wrong; path says which.",
}
_GUARDED = {
    401: "No key, or a wrong one.",
    403: "The key lacks the scope, or the request comes from another site.",
    429: "Too many requests; Retry-After says when.",
}
# names that generated clients rely on: of operations, and of schemas whose classes were renamed
_PREFIXES = {"personalizer": "personalizer"}
_SCHEMAS = {"ArmView": "ArmTold", "ChangeView": "ChangeTold", "StatsView": "StatsTold"}
_TEXT = {"schema": {"type": "string"}}
_LAG = {"Whim-Lag": {"$ref": "#/components/headers/Whim-Lag"}}
_LAG_HEADER = {
    "description": "Where the log is shared, how far the replica that answered is behind it: rows "
    "that have come and are not taken yet, and seconds since it saw the log's end.",
    "required": False,
    "schema": {"type": "string", "examples": ["rows=0, seconds=0.012"]},
}


def _problem(said: str) -> dict[str, Any]:
    schema = {"$ref": _REFS.format(name="Failure")}
    return {"description": said, "content": {"application/json": {"schema": schema}}}


def _parameters(route: Route) -> list[dict[str, Any]]:
    parameters: list[dict[str, Any]] = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}
        for name in re.findall(r"{(\w+)}", route.path)
    ]
    for q in route.query:
        schema = {"type": "integer", "default": q.default, "minimum": q.least, "maximum": q.most}
        parameters.append(
            {"name": q.name, "in": "query", "required": False, "description": q.about}
            | {"schema": schema}
        )
    return parameters


def _operation(route: Route, schemas: dict[Any, dict[str, Any]]) -> dict[str, Any]:
    said = HTTPStatus(route.status).phrase
    success: dict[str, Any] = {"description": said}
    if route.gives is not None:
        shape = schemas[route.gives] if route.media == "application/json" else _TEXT["schema"]
        success["content"] = {route.media: {"schema": shape}}
    replies = {str(route.status): success}
    problems = dict.fromkeys(route.problems, "")
    known = {404: "There is nothing of that name.", 409: "It conflicts with what exists.",
             429: _GUARDED[429], 503: "The service cannot accept it now."}  # fmt: skip
    if route.takes is not None:
        problems.update(_ALWAYS)
    if route.query:
        problems[422] = _ALWAYS[422]
    if route.scope is not None:
        problems.update(_GUARDED)
    if not route.always:
        problems[503] = known[503]
    for status in sorted(problems):
        text = problems[status] or known[status]
        if status == 503 and route.always:
            replies["503"] = {**success, "description": text}
        else:
            replies[str(status)] = _problem(text)
    for reply in replies.values():
        if "text/event-stream" not in reply.get("content", ()):  # that one ends later
            reply["headers"] = _LAG
    operation: dict[str, Any] = {
        "operationId": f"{_PREFIXES.get(route.tag, 'handlers')}_{route.handler.__name__}",
        "summary": inspect.getdoc(route.handler), "tags": [route.tag],
        "parameters": _parameters(route), "responses": replies,
    }  # fmt: skip
    if route.takes is not None:
        operation["requestBody"] = {
            "required": True, "content": {"application/json": {"schema": schemas[route.takes]}},
        }  # fmt: skip
    if route.scope is not None:
        operation["security"] = [{"bearer": [route.scope]}, {"header": [route.scope]}]
        operation["description"] = f"Needs the scope {route.scope} where there are keys."
    else:
        operation["security"] = []
    return operation


def _renamed(part: Any) -> Any:
    """A part of the document, its schemas under the names that they are known by."""
    if isinstance(part, dict):
        return {_SCHEMAS.get(name, name): _renamed(value) for name, value in part.items()}
    if isinstance(part, (list, tuple)):
        return [_renamed(value) for value in part]
    if isinstance(part, str):
        place, slash, name = part.rpartition("/")
        return place + slash + _SCHEMAS.get(name, name)
    return part


def document(routes: list[Route], pages: list[PageRoute]) -> dict[str, Any]:
    """The whole document, pages included."""
    types = {t for r in routes for t in (r.takes, r.gives) if t is not None and t is not str}
    ordered = [*sorted(types, key=str), Failure]
    shapes, components = _renamed(msgspec.json.schema_components(ordered, ref_template=_REFS))
    schemas = dict(zip(ordered, shapes, strict=True))
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route, schemas)
    for page in pages:
        for method in sorted((page.methods or set()) - {"HEAD"}):
            paths.setdefault(page.path, {})[method.lower()] = _page(page, method)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Whim", "version": __version__, "license": {"name": "Apache-2.0"},
            "description": "Decisions and rewards for people who change their minds.",
        },
        "paths": paths,
        "components": {
            "schemas": components,
            "headers": {"Whim-Lag": _LAG_HEADER},
            "securitySchemes": {
                "bearer": {"type": "http", "scheme": "bearer"},
                "header": {"type": "apiKey", "in": "header", "name": "X-API-Key"},
            },
        },
    }  # fmt: skip


# what the pages read: from the query, and from forms
_TIME = ("range", "from", "to")
_ARM = ("id", "number")
_QUERIES = {
    "/spaces/{space}": ("sort", "down", "page", "q", "before", *_TIME),
    "/spaces/{space}/arm": (*_ARM, "before", *_TIME),
    "/page/spaces/{space}/summary": _TIME,
    "/page/spaces/{space}/series": _TIME,
    "/page/spaces/{space}/arms": ("sort", "down", "page", "q", *_TIME),
    "/page/spaces/{space}/changes": ("before", "latest", "version", *_ARM, *_TIME),
    "/page/spaces/{space}/params": ("policy",),
    "/page/form/params": ("policy",),
    "/login": ("next",),
} | {
    f"/page/spaces/{{space}}/arm/{part}": (*_ARM, *_TIME)
    for part in ("head", "series", "coefficients", "coefficients/series")
}
_SPACE_FORM = (
    "policy", "explore", "holdback", "baseline", "shadow", "seed", "rewards.wait_seconds",
    "rewards.default", "rewards.combine", "context.size", "context.constant",
    "context.fields.0.name", "context.fields.0.kind",
)  # fmt: skip
_FORMS = {
    "/login": ("key", "next"),
    "/page/spaces/{space}/whatif": ("policy", "explore"),
    "/new": ("name", *_SPACE_FORM),
    "/spaces/{space}/edit": ("version", *_SPACE_FORM),
}
_FORM = "application/x-www-form-urlencoded"
_STRING = {"type": "string"}


def _page(page: PageRoute, method: str) -> dict[str, Any]:
    names = re.findall(r"{(\w+)(?::\w+)?}", page.path)
    numbers = page.path.endswith("/series")
    shown = (
        {"application/json": {"schema": {"type": "object"}}} if numbers else {"text/html": _TEXT}
    )
    query = _QUERIES.get(page.path, ()) if method == "GET" else ()
    operation: dict[str, Any] = {
        "operationId": f"page_{page.name}_{method.lower()}", "tags": ["page"],
        "summary": f"Dashboard: {page.name.strip('_').replace('_', ' ')}.",
        "parameters": [
            *({"name": n, "in": "path", "required": True, "schema": _STRING} for n in names),
            *({"name": n, "in": "query", "required": False, "schema": _STRING} for n in query),
        ],
        "responses": {
            "200": {"description": "A page, a part of one, or its numbers.", "content": shown},
            "204": {"description": "Nothing has changed."},
            "303": {"description": "A redirect, to the login or away from it."},
            "default": {"description": "A page with the reason.",
                        "content": {"text/html": _TEXT}},
        },
    }  # fmt: skip
    if method == "POST" and page.path in _FORMS:
        fields = dict.fromkeys(_FORMS[page.path], _STRING)
        schema = {"type": "object", "properties": fields}
        operation["requestBody"] = {"required": False, "content": {_FORM: {"schema": schema}}}
    return operation
