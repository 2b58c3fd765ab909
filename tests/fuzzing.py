"""Requests made from the OpenAPI document of a running service, held against that document.

Every operation is tried with names that exist and with made ones, with bodies that fit the
document and with bodies that do not. Used by ``test_fuzz`` and, for long, by ``slow.fuzz``.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis.errors import Unsatisfiable
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    negative_data_rejection,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from tests.crashes import Service

CHECKS = [
    not_a_server_error, status_code_conformance, content_type_conformance,
    response_headers_conformance, response_schema_conformance,
]  # fmt: skip
# It never ends, so no answer can be waited for; tests/test_http.py listens to it.
ENDLESS = "/v1/spaces/{space}/changes/stream"
SPACE = "fuzzed"
CONFIG = {
    "name": SPACE, "context": {"size": 2, "constant": True}, "explore": 0.1, "holdback": 0.1,
}  # fmt: skip


def prepare(service: Service, operation: Any = None) -> dict[str, str]:
    """Something to find: names by the parameter of a path that they stand for.

    A what-if, which is a process, only if the operation, if one is given, is of one.
    """
    service.ask("DELETE", f"/v1/spaces/{SPACE}")
    assert service.ask("POST", "/v1/spaces", CONFIG)[0] == 201
    path = f"/v1/spaces/{SPACE}"
    body = {"context": [0.5, 1], "candidates": ["a", "b"], "decision_id": "d1"}
    assert service.ask("POST", f"{path}/decisions", body | {"deferred": True})[0] == 200
    page = {"context": [0.5, 1], "candidates": ["a", "b", "c"], "decision_id": "l1", "k": 2}
    assert service.ask("POST", f"{path}/lists", page | {"deferred": True})[0] == 200
    slots = [{"id": "s", "baselineAction": "a"}]
    asked = {"eventId": "page", "actions": [{"id": "a"}, {"id": "b"}], "slots": slots}
    status, told = service.ask("POST", "/personalizer/v1.1-preview.3/multislot/rank", asked)
    assert status in (201, 409), told
    rank = {"eventId": "e1", "actions": [{"id": "a", "features": [{"x": 1}]}]}
    status, told = service.ask("POST", "/personalizer/v1.0/rank", rank)
    assert status in (201, 409), told  # another configuration may have come between
    found = {"space": SPACE, "decision": "d1", "event": "e1"}
    if operation is None or "job" in {p.name for p in operation.path_parameters}:
        begun = service.ask("POST", f"{path}/whatif", {"context": CONFIG["context"]})[1]
        found["job"] = begun.get("job", "none")
    return found


def operations(service: Service) -> Iterator[Any]:
    """All operations of the document but the one that never ends."""
    document = service.ask("GET", "/openapi.json")[1]
    del document["paths"][ENDLESS]
    for found in schemathesis.openapi.from_dict(document).get_all_operations():
        yield found.ok()


def fuzz(
    service: Service, operation: Any, mode: GenerationMode, examples: int, known: dict[str, str]
) -> int:
    """Try one operation so many times; raises what schemathesis found wrong. How many were sent."""
    names = {p.name: known[p.name] for p in operation.path_parameters if p.name in known}
    api = "page" not in operation.tags
    checks = [*CHECKS, negative_data_rejection] if mode.is_negative and api else CHECKS
    base = f"http://127.0.0.1:{service.port}"
    sent = 0

    with requests.Session() as session:

        @seed(6)
        @settings(
            max_examples=examples, database=None, deadline=None,
            phases=[Phase.generate, Phase.shrink], suppress_health_check=list(HealthCheck),
        )  # fmt: skip
        @given(case=operation.as_strategy(generation_mode=mode, path_parameters=names or None))
        def one(case: Any) -> None:
            nonlocal sent
            sent += 1
            case.call_and_validate(
                base_url=base, session=session, checks=checks, timeout=30, allow_redirects=False
            )

        with contextlib.suppress(Unsatisfiable):  # nothing of it can be made wrong
            one()
    return sent
