"""How far a replica is behind, and whether it leads, is shown wherever one would look for it."""

from __future__ import annotations

import http.client
import json
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.crashes import CONFIG, Service
from tests.postgres import MISSING, Server, binaries
from tests.proxy import Proxy
from tests.shared_log import until
from whim.serve.http.routes import Reply

pytestmark = pytest.mark.skipif(binaries() is None, reason=MISSING)
LAG = re.compile(r"rows=(\d+), seconds=(\d+\.\d{3})")
LINE = re.compile(r"This replica (leads|does not lead) · <span(?: class=\"([^\"]*)\")?>([^<]*)<")
MAX_LAG = 2.0


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with Server.start() as made:
        yield made


@pytest.fixture(scope="module")
def replicas(
    server: Server, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Service, Service, Proxy]]:
    """Two of them; the second one's network can be cut."""
    folder = tmp_path_factory.mktemp("replicas")
    settings = folder / "whim.toml"
    settings.write_text(f"demo = false\nmax_lag_seconds = {MAX_LAG}\n")
    more = "--config", str(settings), "--store"
    with (
        Proxy(server.port) as proxy,
        Service(folder / "a", *more, server.dsn) as first,
        Service(folder / "b", *more, server.address("postgres", proxy.port)) as second,
    ):
        first.wait()
        second.wait()
        assert first.ask("POST", "/v1/spaces", CONFIG)[0] == 201
        until(lambda: second.ask("GET", "/v1/spaces/news")[0] == 200)
        yield first, second, proxy


def _lag(service: Service, path: str = "/v1/spaces") -> tuple[int, float] | None:
    """What the header of an answer says."""
    link = http.client.HTTPConnection("127.0.0.1", service.port, timeout=30)
    link.request("GET", path)
    found = link.getresponse().headers.get("whim-lag")
    link.close()
    if found is None:
        return None
    match = LAG.fullmatch(found)
    assert match is not None, found
    return int(match[1]), float(match[2])


def _line(service: Service, path: str) -> tuple[str, str | None, str]:
    """Who leads, how it is marked, and how far behind it is, by a page."""
    found = LINE.search(service.ask("GET", path)[1].decode())
    assert found is not None
    return found[1], found[2], found[3]


def test_one_leads_and_all_places_agree(replicas: tuple[Service, Service, Proxy]) -> None:
    first, second, _ = replicas
    until(lambda: sum(s.ask("GET", "/healthz")[1]["replica"]["leads"] for s in (first, second)))
    leading = 0
    for service in (first, second):
        leads = service.ask("GET", "/healthz")[1]["replica"]["leads"]
        leading += leads
        metrics = service.ask("GET", "/metrics")[1].decode()
        assert f"whim_replica_leads {float(leads)}\n" in metrics
        assert re.search(r"^whim_replica_lag_rows 0\.0$", metrics, re.M)
        assert re.search(r"^whim_replica_lag_seconds \d+\.\d+", metrics, re.M)
        for path in ("/", "/spaces/news", "/page/spaces", "/page/spaces/news/summary"):
            who, _, behind = _line(service, path)
            assert who == ("leads" if leads else "does not lead")
            assert re.fullmatch(r"0 rows and at most [\d.]+\u00a0m?s behind the shared log", behind)
    assert leading == 1


@pytest.mark.parametrize("path", ["/v1/spaces", "/v1/spaces/none", "/readyz", "/metrics"])
def test_every_answer_says_it(replicas: tuple[Service, Service, Proxy], path: str) -> None:
    def small() -> bool:
        lag = _lag(replicas[0], path)
        assert lag is not None
        return lag[0] == 0 and lag[1] < MAX_LAG

    until(small)


def test_a_decision_says_it(replicas: tuple[Service, Service, Proxy]) -> None:
    link = http.client.HTTPConnection("127.0.0.1", replicas[1].port, timeout=30)
    body = {"context": [1, 0, 0], "candidates": ["x"], "decision_id": "says"}
    link.request("POST", "/v1/spaces/news/decisions", json.dumps(body))
    answer = link.getresponse()
    assert answer.status == 200
    assert LAG.fullmatch(answer.headers["whim-lag"])
    link.close()


def test_a_replica_that_is_cut_off_is_behind_and_says_so_until_it_is_not(
    replicas: tuple[Service, Service, Proxy],
) -> None:
    first, second, proxy = replicas
    proxy.cut()
    try:
        until(lambda: second.ask("GET", "/readyz")[0] == 503)
        health = second.ask("GET", "/readyz")[1]
        assert health["status"] == "behind"
        assert "max_lag_seconds" in health["reason"]
        lag = _lag(second)
        assert lag is not None
        assert lag[1] > MAX_LAG
        until(lambda: _line(second, "/")[1] == "tag warn")
        assert second.ask("GET", "/healthz")[0] == 200  # to restart it would not help
        assert first.ask("GET", "/readyz")[0] == 200
        assert _line(first, "/")[1] is None
    finally:
        proxy.heal()
    until(lambda: second.ask("GET", "/readyz")[0] == 200)
    until(lambda: _line(second, "/")[1] is None)


def test_a_replica_has_as_many_connections_as_the_guide_says(
    server: Server, replicas: tuple[Service, Service, Proxy]
) -> None:
    sql = (
        "SELECT application_name FROM pg_stat_activity WHERE application_name LIKE 'whim%%' "
        "AND datname = current_database()"
    )

    def each_twice() -> bool:
        return Counter(name for (name,) in server.execute(sql)) == {
            "whim append": 2, "whim tail": 2, "whim lease": 2, "whim queries": 2,
        }  # fmt: skip

    for service in replicas[:2]:  # the one for appending is made when there is something to append
        body = {"context": [1, 0, 0], "candidates": ["x"], "decision_id": f"d{service.port}"}
        assert service.ask("POST", "/v1/spaces/news/decisions", body)[0] == 200
    until(each_twice)
    guide = Path(__file__).parent.parent / "docs" / "scaling.md"
    assert "4 connections per replica" in guide.read_text()


def test_a_service_of_its_own_says_nothing_of_it(tmp_path: Path) -> None:
    with Service(tmp_path / "data") as alone:
        alone.wait()
        assert _lag(alone) is None
        assert "shared log" not in alone.ask("GET", "/")[1].decode()
        assert "whim_replica" not in alone.ask("GET", "/metrics")[1].decode()


def test_replies_do_not_share_their_headers() -> None:
    one = Reply(b"")
    one.headers.append((b"whim-lag", b""))
    assert Reply(b"").headers == []
