"""``deploy/loadtest.py`` measures a real service, and says in a line why it cannot."""

from __future__ import annotations

import json
import re
import runpy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.crashes import Service

LOADTEST = runpy.run_path(str(Path(__file__).parent.parent / "deploy" / "loadtest.py"))
FEW = ["--rate", "50", "--seconds", "1", "--arms", "8", "--candidates", "4"]


def ran(*arguments: str) -> int:
    code = LOADTEST["main"](list(arguments))
    assert isinstance(code, int)
    return code


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with Service(tmp_path_factory.mktemp("data")) as made:
        made.wait()
        yield made


@pytest.fixture
def url(service: Service, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.delenv("WHIM_KEY", raising=False)
    return f"http://127.0.0.1:{service.port}"


def test_it_measures_and_leaves_nothing_behind(
    url: str, service: Service, capsys: pytest.CaptureFixture[str]
) -> None:
    for run in ("the first", "again, after the space was retired"):
        assert ran(url, *FEW, "--p99-ms", "60000") == 0, run
        told: dict[str, Any] = json.loads(capsys.readouterr().out)
        assert told["errors"] == {}
        assert told["turned_away"] == 0
        for kind in ("decision", "reward"):
            assert told[kind]["count"] == 50
            assert 0 < told[kind]["p50_ms"] <= told[kind]["p99_ms"] <= told[kind]["worst_ms"]
    spaces = [one["name"] for one in service.ask("GET", "/v1/spaces")[1]["spaces"]]
    assert spaces == ["demo"]


def test_it_fails_where_decisions_take_too_long(
    url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ran(url, *FEW, "--p99-ms", "0.001") == 1
    said = capsys.readouterr().err
    assert re.fullmatch(
        r"loadtest: p99 of decisions must be at most 0.001 ms, got [\d.]+\.\n", said
    )


def test_it_says_what_a_run_failed_by() -> None:
    told = {"decision": {"p99_ms": None}, "errors": {"503 busy": 1200}, "turned_away": 7}
    slow, failed, late = LOADTEST["missed"](told, 50.0)
    assert slow == "p99 of decisions must be at most 50 ms, and none was answered."
    assert failed == "all requests must be answered, got errors: 1,200 × 503 busy."
    assert late.startswith("at most 5,000 readers must wait at a time; 7 more came")
    assert (
        LOADTEST["missed"]({"decision": {"p99_ms": 3.0}, "errors": {}, "turned_away": 0}, 5) == []
    )


def test_a_space_of_somebody_else_is_left_alone(
    url: str, service: Service, capsys: pytest.CaptureFixture[str]
) -> None:
    before = service.ask("GET", "/v1/spaces/demo")[1]
    assert ran(url, *FEW, "--space", "demo") == 2
    said = capsys.readouterr().err
    assert said.startswith("loadtest: --space must be a name that is free, got 'demo'")
    assert said.count("\n") == 1
    assert service.ask("GET", "/v1/spaces/demo")[1] == before


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("127.0.0.1:8126", "url must be http://HOST:PORT or https://HOST, got '127.0.0.1:8126'"),
        ("ftp://127.0.0.1", "url must be http://HOST:PORT or https://HOST"),
        ("http://127.0.0.1:1", "url must be of a service that answers"),
    ],
)
def test_an_address_where_no_service_is(
    address: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ran(address, *FEW) == 2
    printed = capsys.readouterr().err
    assert printed.startswith(f"loadtest: {said}")
    assert printed.count("\n") == 1


@pytest.mark.parametrize(
    ("option", "value"),
    [("--rate", "0"), ("--rate", "fast"), ("--seconds", "-1"), ("--arms", "0.5"),
     ("--timeout", "nan"), ("--p99-ms", "inf")],
)  # fmt: skip
def test_numbers_that_make_no_sense(
    option: str, value: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        ran("http://127.0.0.1:1", option, value)
    assert ended.value.code == 2
    assert f"{option}: must be" in capsys.readouterr().err
