"""Spaces on several shards, in one database and in two: one name, one place, one answer."""

from __future__ import annotations

import concurrent.futures
import contextlib
import json
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from typer.testing import CliRunner

from tests.cluster import lasts_of
from tests.crashes import Service
from tests.postgres import MISSING, Server, binaries
from tests.shared_log import appender, entry, until
from whim.cli.app import app
from whim.errors import InvalidInputError
from whim.serve.jobs.trim import trim
from whim.serve.log.origin import logs_of, origin_of
from whim.serve.log.reader import LogReader, StoreError
from whim.serve.log.rows import DECODERS
from whim.serve.move import move
from whim.serve.postgres import schema
from whim.serve.postgres.databases import Shard, existing_shards, shards_of
from whim.serve.postgres.queries import Place, Queries
from whim.serve.postgres.reader import Reader
from whim.serve.postgres.trimming import trim_shared
from whim.serve.settings import ConfigError, load
from whim.serve.state import copied
from whim.serve.state.engine import Engine

pytestmark = pytest.mark.skipif(binaries() is None, reason=MISSING)
SETTINGS = "demo = false\nmax_lag_seconds = 1.0\ncommit_seconds = 2.0\nsnapshot_seconds = 0.5\n"


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with Server.start() as made:
        yield made


@pytest.fixture
def address(server: Server) -> str:
    return server.address(server.database())


def config(name: str, **more: Any) -> dict[str, Any]:
    return {
        "name": name, "policy": "linucb-disjoint", "context": {"size": 1},
        "rewards": {"wait_seconds": 30}, **more,
    }  # fmt: skip


@contextlib.contextmanager
def replicas(folder: Path, n: int, *more: str) -> Iterator[list[Service]]:
    settings = folder / "whim.toml"
    settings.write_text(SETTINGS)
    with contextlib.ExitStack() as opened:
        made = [
            opened.enter_context(Service(folder / str(i), "--config", str(settings), *more))
            for i in range(n)
        ]
        for one in made:
            one.wait()
        yield made


def play(service: Service, space: str, key: str, value: float = 1.0) -> Any:
    """A decision and its reward; what the decision was."""
    path = f"/v1/spaces/{space}"
    body = {"decision_id": key, "context": [1.0], "candidates": ["a", "b"]}
    status, told = service.ask("POST", f"{path}/decisions", body)
    assert status == 200, told
    status, _ = service.ask("POST", f"{path}/rewards", {"decision_id": key, "value": value})
    assert status == 200
    return told


def digests(folder: Path) -> dict[str, str]:
    """Of every space in every copy of a replica that has ended."""
    found = {}
    for data in logs_of(folder):
        engine = Engine(data, copy=True)
        found |= {name: engine.space(name).state.digest() for name in engine.names}
        engine.close()
    return found


# -- places -----------------------------------------------------------------------------------


def test_a_name_has_one_place_for_ever_and_numbers_are_of_one_sequence(address: str) -> None:
    shards_of([address], 2)
    queries = [Queries(address) for _ in range(8)]
    found: list[Place] = []

    def take(one: Queries, shard: int) -> None:
        found.append(one.take_place("news", 0, 3, shard, ""))

    threads = [threading.Thread(target=take, args=(q, i % 2)) for i, q in enumerate(queries)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    (place,) = set(found)
    assert place.space == 4
    one = queries[0]
    assert one.take_place("other", 0, 0, 1, "log") == Place(5, 1, "log")
    # made again: the place stays, the number is new, and the same for all who know as much
    again = [one.take_place("news", 4, 4, 1 - place.shard, "") for _ in range(2)]
    assert again == [Place(6, place.shard, "")] * 2
    for query in queries:
        query.close()


def test_tables_of_before_get_places(server: Server) -> None:
    name = server.database()
    now = schema.text(2)
    new = ",\n  name text NOT NULL UNIQUE"
    assert new in now
    low, high = now.index("\n-- The place of a name"), now.index("INSERT INTO whim.head (shard)")
    server.execute((now[:low] + now[high:]).replace(new, ""), database=name)
    server.execute("UPDATE whim.meta SET value = '1' WHERE name = 'format'", database=name)
    address = server.address(name)
    result = CliRunner().invoke(app, ["schema", "--from", "1"])
    assert "take_place" in result.stdout
    assert [shard.label for shard in shards_of([address])] == ["0.0", "0.1"]
    with contextlib.closing(Queries(address)) as queries:
        assert queries.take_place("news", 0, 0, 1, "") == Place(1, 1, "")


# -- which databases --------------------------------------------------------------------------


def test_shards_are_added_and_never_removed(address: str) -> None:
    assert [shard.number for shard in shards_of([address])] == [0]
    assert [shard.number for shard in shards_of([address], 3)] == [0, 1, 2]
    assert [shard.number for shard in shards_of([address])] == [0, 1, 2]
    with pytest.raises(StoreError, match=r"shards must be at least 3, .* got 2"):
        shards_of([address], 2)


def test_a_log_knows_its_databases_and_they_know_it(server: Server, address: str) -> None:
    second, third, other = (server.address(server.database()) for _ in range(3))
    first = shards_of([address, second], 2)
    assert [shard.label for shard in first] == ["0.0", "0.1", "1.0", "1.1"]
    assert [bool(shard.store) for shard in first] == [False, False, True, True]
    # in whatever order they are given, they keep their places
    again = shards_of([address, third, second])
    assert [(s.address, s.label) for s in again if s.address != address] == [
        (second, "1.0"), (second, "1.1"), (third, "2.0"),
    ]  # fmt: skip
    assert len(existing_shards([address, second, third])) == 5
    for few in ([address], [second, third], [address, second]):
        with pytest.raises(StoreError, match="store must be given for every database"):
            existing_shards(few)
    keys = CliRunner().invoke(app, ["keys", "make", "k", "--scope", "admin", "--store", second])
    assert "store must be the first database of the log" in str(keys.exception)
    for stores, wrong in {
        (address,): "more_stores must name every database",
        (address, second, third, second): "got one of them twice",
        (second,): "store must be the first database of its log",
        (other, third): r"more_stores\[0\] must be empty or of this log, got one of another",
        (address, second, third, other): r"more_stores\[2\] .* got a log of its own",
    }.items():
        if "of its own" in wrong:
            with appender(other) as one:
                one.append([entry("x")])
        with pytest.raises(StoreError, match=wrong):
            shards_of(list(stores))


def test_settings_of_shards() -> None:
    store = "postgresql://h/whim"
    both = {"WHIM_STORE": store, "WHIM_MORE_STORES": "postgresql://a,b/x postgresql://c/y"}
    settings = load(None, environment={**both, "WHIM_SHARDS": "4"})
    assert (settings.shards, settings.more_stores) == (
        4,
        ["postgresql://a,b/x", "postgresql://c/y"],
    )
    with pytest.raises(ConfigError, match="store must be given with shards"):
        load(None, shards=2)
    with pytest.raises(ConfigError, match=r"more_stores\[0\] must begin with postgresql") as error:
        load(None, store=store, more_stores=["mysql://root:secret@h"])
    assert "secret" not in str(error.value)


# -- services ---------------------------------------------------------------------------------


def test_two_shards_in_one_database(tmp_path: Path, server: Server, address: str) -> None:
    """A service of one shard, then the same with two: what is there stays, what is new is new."""
    with replicas(tmp_path, 1, "--store", address) as (one,):
        assert one.ask("POST", "/v1/spaces", config("old"))[0] == 201
        first = play(one, "old", "x")
        assert "shards" not in one.ask("GET", "/healthz")[1]["replica"]
    with replicas(tmp_path, 2, "--store", address, "--shards", "2") as both:
        a, b = both
        statuses: list[int] = []

        def create(service: Service) -> None:
            statuses.append(service.ask("POST", "/v1/spaces", config("new"))[0])

        threads = [threading.Thread(target=create, args=(one,)) for one in both]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(statuses) == [201, 409]
        until(lambda: all(one.ask("GET", "/v1/spaces/new")[0] == 200 for one in both))
        shards = a.ask("GET", "/healthz")[1]["replica"]["shards"]
        assert [(s["shard"], s["spaces"]) for s in shards] == [("0.0", 1), ("0.1", 1)]
        for i in range(10):
            for name in ("old", "new"):
                told = play(both[i % 2], name, f"d{i}", float(i % 2))
                body = {"decision_id": f"d{i}", "context": [1.0], "candidates": ["a", "b"]}
                path = f"/v1/spaces/{name}/decisions"
                assert both[1 - i % 2].ask("POST", path, body) == (200, told)
        assert play(b, "old", "x") == first
        wish = {k: v for k, v in config("new", params={"alpha": 0.3}).items() if k != "name"}
        assert a.ask("PUT", "/v1/spaces/new", wish)[0] == 202
        status, job = b.ask("POST", "/v1/spaces/new/whatif", wish)
        assert status == 202
        path = f"/v1/spaces/new/whatif/{job['job']}"
        until(lambda: a.ask("GET", path)[1].get("state") == "done")
        for one in both:
            until(lambda one=one: one.ask("GET", "/v1/spaces/new")[1]["version"] == 2)
        assert a.ask("DELETE", "/v1/spaces/new")[0] == 204
        until(lambda: b.ask("GET", "/v1/spaces/new")[0] == 404)
        assert b.ask("POST", "/v1/spaces", config("new"))[0] == 201  # where it was
        play(b, "new", "d0")
        metrics = b.ask("GET", "/metrics")[1].decode()
        assert 'whim_shard_spaces{shard="0.1"} 1.0\n' in metrics
        assert 'whim_decisions_total{mode="policy",space="new"} 11.0\n' in metrics
        with contextlib.closing(Queries(address)) as queries:
            ends = [queries.end(shard) for shard in range(2)]
        for folder in ("0", "1"):
            until(lambda folder=folder: lasts_of(tmp_path / folder) == ends)
    assert digests(tmp_path / "0") == digests(tmp_path / "1")
    assert set(digests(tmp_path / "0")) == {"old", "new"}
    check = ["rebuild", "--store", address, "--data", str(tmp_path / "0"), "--json"]
    result = CliRunner().invoke(app, check)
    assert result.exit_code == 0, result.output
    spaces = {row["space"]: row for row in json.loads(result.stdout)["spaces"]}
    assert {name: row["digest"] for name, row in spaces.items()} == digests(tmp_path / "0")
    assert spaces["old"]["equal"]
    assert spaces["new"]["equal"] is not False  # there may be no snapshot of it yet
    out = tmp_path / "new.parquet"
    result = CliRunner().invoke(
        app, ["export", "--data", str(tmp_path / "0"), "--space", "new", "--out", str(out)]
    )
    assert "1 decisions of new" in result.output
    with pytest.raises(StoreError, match="must have its rows in one shard"):
        move(address, str(tmp_path / "alone"))
    _check_retention(tmp_path, address)


def _check_retention(folder: Path, address: str) -> None:
    """Rows go from both shards, and a newcomer starts from what stands for each."""
    shards = shards_of([address])
    for shard, data in zip(shards, logs_of(folder / "0"), strict=True):
        done = trim(data / "log.db", time.time_ns(), pause=lambda seconds: None)
        with contextlib.closing(LogReader(data / "log.db")) as copy:
            assert trim_shared(address, copy, shard.number) == done.rows > 10
        copied.prepare(folder / "fresh" / shard.label, shard)
    fresh = {}
    for shard in shards:
        fresh |= digests(folder / "fresh" / shard.label)
    assert fresh == digests(folder / "1")


def test_a_database_that_is_away_is_away_for_its_own_spaces_alone(tmp_path: Path) -> None:
    with Server.start() as home, Server.start() as other:
        stores = "--store", home.dsn, "--store", other.dsn
        with replicas(tmp_path, 2, *stores) as both:
            a, b = both
            for name in ("here", "there"):
                assert a.ask("POST", "/v1/spaces", config(name))[0] == 201
                until(lambda name=name: b.ask("GET", f"/v1/spaces/{name}")[0] == 200)
                play(a, name, "before")
            shards = a.ask("GET", "/healthz")[1]["replica"]["shards"]
            assert [(s["shard"], s["spaces"]) for s in shards] == [("0.0", 1), ("1.0", 1)]
            other.stop("immediate")
            body = {"decision_id": "during", "context": [1.0], "candidates": ["a", "b"]}
            status, told = a.ask("POST", "/v1/spaces/there/decisions", body)
            assert (status, told["error"]["code"]) == (503, "unavailable")
            until(lambda: _refusing(b) == ["1.0"])  # by its age: nobody has asked for anything
            assert b.ask("POST", "/v1/spaces/there/decisions", body)[0] == 503
            for i in range(5):
                play(both[i % 2], "here", f"during{i}")
            assert [one.ask("GET", "/readyz")[0] for one in both] == [200, 200]
            assert "max_lag_seconds" in a.ask("GET", "/readyz")[1]["reason"]
            assert a.ask("GET", "/v1/spaces/there")[0] == 200  # what is known is still told
            assert b.ask("POST", "/v1/spaces", config("more"))[0] == 201  # where somebody answers
            until(lambda: a.ask("GET", "/v1/spaces/more")[0] == 200)
            play(a, "more", "x")
            metrics = b.ask("GET", "/metrics")[1].decode()
            assert 'whim_shard_refuses{shard="1.0"} 1.0\n' in metrics
            assert 'whim_shard_refuses{shard="0.0"} 0.0\n' in metrics
            assert "shard 1.0 cannot be written to" in b.ask("GET", "/")[1].decode()
            other.resume()
            until(lambda: a.ask("POST", "/v1/spaces/there/decisions", body)[0] == 200)
            until(lambda: not _refusing(a) + _refusing(b))
            answers = [one.ask("POST", "/v1/spaces/there/decisions", body) for one in both]
            assert answers[0] == answers[1]
            home.stop("immediate")  # and the other way around
            until(lambda: _refusing(a) == ["0.0"])
            play(a, "there", "again")
            assert a.ask("POST", "/v1/spaces", config("new"))[0] == 503
            home.resume()
            until(lambda: not _refusing(a) + _refusing(b))
            _make_and_retire(both)
            assert a.stop() == 0
            _end_link_of_the_last_shard(b)
            until(lambda: b.ask("GET", "/healthz")[0] == 503)
            assert "shard 1.0: the process that talks" in b.ask("GET", "/healthz")[1]["reason"]
            assert b.ask("POST", "/v1/spaces/there/decisions", body)[0] == 503
            play(b, "here", "still")
            b.stop()
        shards = existing_shards([home.dsn, other.dsn])
        assert [shard.origin for shard in shards] == [*map(origin_of, logs_of(tmp_path / "0"))]
        _check_places(shards)
        found = digests(tmp_path / "0")
        assert {"here", "there", "more"} <= set(found)
        assert found.pop("here") != digests(tmp_path / "1").pop("here")  # it has one more
        assert found.items() <= digests(tmp_path / "1").items()
        with pytest.raises(StoreError, match="shards of a log in several databases"):
            move(home.dsn, str(tmp_path / "alone"))


def _make_and_retire(services: list[Service]) -> None:
    """The same few names, at both replicas at once."""

    def run(one: Service, turn: int) -> None:
        for i in range(20):
            path, name = "/v1/spaces", f"n{(i * turn) % 3}"
            if i % 2:
                status, _ = one.ask("POST", path, config(name))
                assert status in (201, 404, 409)  # 404: made, and retired by another at once
            else:
                assert one.ask("DELETE", f"{path}/{name}")[0] in (204, 404, 409)

    with concurrent.futures.ThreadPoolExecutor() as pool:
        list(pool.map(run, services * 2, (1, 2, 4, 5)))


def _check_places(shards: list[Shard]) -> None:
    """A name is on one shard, has one space at a time, and every space a number of its own."""
    numbers: Counter[int] = Counter()
    where: dict[str, set[str]] = {}
    for shard in shards:
        live: dict[str, int] = {}
        with contextlib.closing(Reader(shard.address, shard.number)) as reader:
            for row in reader.configs():
                config_row = DECODERS[row.kind].decode(row.body)
                where.setdefault(config_row.name, set()).add(shard.origin)
                if config_row.config is None:
                    assert live.pop(config_row.name) == row.space
                else:
                    assert config_row.name not in live
                    live[config_row.name] = row.space
                    numbers[row.space] += 1
    assert set(numbers.values()) == {1}
    assert len(numbers) > 6
    assert all(len(places) == 1 for places in where.values())


def _end_link_of_the_last_shard(service: Service) -> None:
    children = psutil.Process(service.process.pid).children()
    links = [one for one in children if "whim.serve.postgres.process" in one.cmdline()]
    max(links, key=lambda one: (one.create_time(), one.pid)).kill()


def _refusing(service: Service) -> list[str]:
    shards = service.ask("GET", "/healthz")[1]["replica"]["shards"]
    return [shard["shard"] for shard in shards if "reason" in shard]


def test_a_replica_that_does_not_follow_all_shards_does_not_deny_what_is_there(
    tmp_path: Path, address: str
) -> None:
    with replicas(tmp_path, 1, "--store", address) as (one,):
        shards_of([address], 2)
        until(lambda: one.ask("GET", "/v1/spaces/none")[0] == 503)
        assert one.ask("POST", "/v1/spaces", config("mine"))[0] == 201
        play(one, "mine", "x")


def test_the_verb_refuses_a_format_that_is_not_older() -> None:
    result = CliRunner().invoke(app, ["schema", "--from", str(schema.FORMAT)])
    assert isinstance(result.exception, (InvalidInputError, SystemExit))
