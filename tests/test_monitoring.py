"""The alerts and the dashboard in ``deploy/monitoring`` name what a service really has."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.in_process import running
from whim.serve.app import API
from whim.serve.http.connections import Connections
from whim.serve.http.metrics import _of_the_replica
from whim.serve.settings import Settings

yaml = pytest.importorskip("yaml")
MONITORING = Path(__file__).parent.parent / "deploy" / "monitoring"
NAME = re.compile(r"\b(?:whim|process)_\w+")
ROUTE = re.compile(r'route="([^"]+)"')
ROUTES = re.compile(r'route=~"([^"]+)"')


def _rules() -> list[dict[str, Any]]:
    (group,) = yaml.safe_load((MONITORING / "alerts.yaml").read_text())["groups"]
    return cast("list[dict[str, Any]]", group["rules"])


def _board() -> dict[str, Any]:
    return cast("dict[str, Any]", json.loads((MONITORING / "grafana.json").read_text()))


def _queries() -> list[str]:
    board = _board()
    asked = [target["expr"] for panel in board["panels"] for target in panel["targets"]]
    asked += [one["expr"] for one in board["annotations"]["list"]]
    asked += [one["query"]["query"] for one in board["templating"]["list"][1:]]
    return [*asked, *(rule["expr"] for rule in _rules())]


async def _scraped(data: Path) -> tuple[set[str], dict[str, set[str]]]:
    """Names of samples of a service with a space that has decided, and the labels of each."""
    settings = Settings(data=str(data))
    async with running(settings) as (service, client):
        service.metrics.connections = Connections(settings)
        body = {"name": "news", "policy": "ucb", "context": {"size": 0}}
        assert (await client.post("/v1/spaces", json=body)).status_code == 201
        decided = await client.post(
            "/v1/spaces/news/decisions", json={"context": [], "candidates": ["a", "b"]}
        )
        assert decided.status_code == 200
        text = (await client.get("/metrics")).text
    labels: dict[str, set[str]] = {}
    names: set[str] = set()
    for family in text_string_to_metric_families(text):
        names.add(family.name)
        for sample in family.samples:
            names.add(sample.name)
            labels.setdefault(sample.name, set()).update(sample.labels)
    return names, labels


def test_monitoring_names_only_metrics_and_labels_that_exist(tmp_path: Path) -> None:
    names, labels = asyncio.run(_scraped(tmp_path))
    replica: Any = SimpleNamespace(lag=(0, 0.0), leads=True, shards=[])
    names |= {family.name for family in _of_the_replica(replica)}
    queries = _queries()
    assert len(queries) > 30
    for query in queries:
        used = NAME.findall(query)
        assert used or query.startswith(("up{", "sum(up{")), query
        assert set(used) <= names, f"{set(used) - names} in {query}"
        for name, inside in re.findall(r"(\bwhim_\w+)\{(.*?)\}(?=[\[\s)]|$)", query):
            keys = set(re.findall(r'(\w+)\s*[=!]~?\s*"', inside)) - {"instance", "job"}
            assert keys <= labels.get(name, set()), f"{keys} of {name} in {query}"
        paths = {route.path for route in API}
        assert set(ROUTE.findall(query)) <= paths


def test_latency_is_that_of_decisions_and_of_lists() -> None:
    paths = {route.path for route in API}
    shown = {f"/v1/spaces/{{space}}/{what}" for what in ("decisions", "lists")}
    asked = [query for query in _queries() if "whim_request_seconds_bucket" in query]
    assert len(asked) == 4
    for query in asked:
        [pattern] = ROUTES.findall(query)
        assert {path for path in paths if re.fullmatch(pattern, path)} == shown


def test_alerts_say_what_is_wrong_and_how_bad_it_is() -> None:
    rules = _rules()
    assert len({rule["alert"] for rule in rules}) == len(rules)
    for rule in rules:
        assert rule["labels"]["severity"] in ("page", "warn", "info")
        assert rule["annotations"]["summary"]


def test_panels_do_not_lie_over_each_other() -> None:
    panels = _board()["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    taken: set[tuple[int, int]] = set()
    for place in (panel["gridPos"] for panel in panels):
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken
        assert max(x for x, _ in cells) < 24
        taken |= cells
