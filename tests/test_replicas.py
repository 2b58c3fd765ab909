"""Several services over one log in PostgreSQL: one answer for an id, one order for all."""

from __future__ import annotations

import contextlib
import http.server
import json
import re
import signal
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.crashes import Service
from tests.postgres import Server, binaries
from whim.serve.jobs.trim import trim
from whim.serve.log.configs import config_histories
from whim.serve.log.reader import LogReader
from whim.serve.log.rows import ConfigRow, Kind
from whim.serve.postgres.append import Appender, Entry
from whim.serve.postgres.reader import Reader
from whim.serve.postgres.trimming import trim_shared
from whim.serve.settings import ConfigError, load
from whim.serve.state.engine import Engine
from whim.serve.state.recovery import rebuild
from whim.serve.wire import SpaceConfig

pytestmark = pytest.mark.skipif(binaries() is None, reason="there is no PostgreSQL for this system")
NEWS = {
    "name": "news", "policy": "linucb-disjoint", "context": {"size": 2},
    "rewards": {"wait_seconds": 30},
}  # fmt: skip
SPACE = "/v1/spaces/news"


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with Server.start() as made:
        yield made


@pytest.fixture
def address(server: Server) -> str:
    return server.address(server.database())


class Group:
    """Replicas, each with a directory of its own."""

    def __init__(self, folder: Path, address: str, n: int, *more: str) -> None:
        self.folder, self.address, self.more = folder, address, more
        self.all: list[Service] = []
        for i in range(n):
            self.all.append(self.begin(i))
        for one in self.all:
            one.wait()

    def begin(self, i: int) -> Service:
        return Service(self.folder / str(i), "--store", self.address, *self.more)

    def digests(self) -> set[str]:
        """Of the space, in every directory and in a fold of PostgreSQL's rows from nothing."""
        found = set()
        for i, one in enumerate(self.all):
            assert one.stop() == 0, "".join(one.said)
            engine = Engine(self.folder / str(i), copy=True)
            found.add(engine.space("news").state.digest())
            engine.close()
        reader = Reader(self.address)
        number = engine.space("news").number
        state, _ = rebuild(reader, number, config_histories(reader)[number].now)
        reader.close()
        return found | {state.digest()}


@contextlib.contextmanager
def group(folder: Path, address: str, n: int, *more: str) -> Iterator[Group]:
    made = Group(folder, address, n, *more)
    try:
        yield made
    finally:
        for one in made.all:
            one.stop(signal.SIGKILL)


def until(true: Callable[[], Any], seconds: float = 30) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end
        time.sleep(0.02)


def decide(one: Service, key: str, **more: Any) -> tuple[int, Any]:
    body = {"decision_id": key, "context": [0.5, 1.0], "candidates": ["a", "b", "c"], **more}
    return one.ask("POST", f"{SPACE}/decisions", body)


def reward(one: Service, key: str, value: float = 1.0, **more: Any) -> tuple[int, Any]:
    return one.ask("POST", f"{SPACE}/rewards", {"decision_id": key, "value": value, **more})


def leader(replicas: Group) -> int:
    """Which of them leads; -1: none says so now."""
    for i, one in enumerate(replicas.all):
        if one.process.poll() is None and one.ask("GET", "/healthz")[1]["replica"]["leads"]:
            return i
    return -1


def test_any_replica_answers_any_request_and_all_agree(tmp_path: Path, address: str) -> None:
    config = tmp_path / "whim.toml"
    config.write_text('personalizer_space = "news"\n')
    with group(tmp_path, address, 2, "--config", str(config)) as both:
        a, b = both.all
        assert a.ask("POST", "/v1/spaces", NEWS)[0] == 201
        until(lambda: b.ask("GET", SPACE)[0] == 200)
        assert b.ask("POST", "/v1/spaces", NEWS)[0] == 409
        first = decide(a, "one")
        assert first[0] == 200
        assert decide(b, "one") == first
        assert decide(b, "one", candidates=["a"])[1]["error"]["code"] == "conflict"
        for i in range(40):  # made at one, rewarded at the other at once
            here, there = both.all[i % 2], both.all[1 - i % 2]
            assert decide(here, f"d{i}", deferred=i % 4 == 3)[0] == 200
            if i % 4 == 3:
                path = f"{SPACE}/decisions/d{i}/activate"
                assert there.ask("POST", path) == (200, {"activated": True})
                assert here.ask("POST", path) == (200, {"activated": False})
            assert reward(there, f"d{i}", float(i % 2), reward_id="r")[1]["state"] == "learnt"
            assert reward(here, f"d{i}", reward_id="r")[1]["state"] == "duplicate"
            assert reward(here, f"d{i}", reward_id="other")[1]["state"] == "late"
        assert reward(a, "nobody")[0] == 404
        same = {"decisions": [{"decision_id": f"d{i}", "context": [0.5, 1.0],
                               "candidates": ["a", "b", "c"]} for i in range(3)]}  # fmt: skip
        answers = [one.ask("POST", f"{SPACE}/decisions/batch", same)[1] for one in both.all]
        assert answers[0] == answers[1]
        assert [told["decision_id"] for told in answers[0]["answers"]] == ["d0", "d1", "d2"]
        pages = {"lists": [{"decision_id": f"p{i}", "context": [0.5, 1.0], "k": 2,
                            "candidates": ["a", "b", "c"]} for i in (0, 1, 1)]}  # fmt: skip
        answers = [one.ask("POST", f"{SPACE}/lists/batch", pages)[1] for one in both.all]
        assert answers[0] == answers[1]
        assert [told["decision_id"] for told in answers[0]["answers"]] == ["p0", "p1", "p1"]
        assert reward(b, "p0", slot=0)[1]["state"] == "learnt"
        assert reward(a, "p0", slot=1)[1]["state"] == "late"
        for i in range(10):  # a page is made at one and rewarded at the other at once
            page = {"context": [0.5, 1.0], "candidates": ["a", "b", "c"], "decision_id": f"s{i}"}
            told = a.ask("POST", f"{SPACE}/lists", {**page, "slots": [{"id": "top"}, {"id": "x"}]})
            assert told[0] == 200
            path = f"/personalizer/v1.1-preview.3/multislot/events/s{i}/reward"
            wrong = [{"slotId": "top", "value": 0}, {"slotId": "none", "value": 1}]
            status, told = b.ask("POST", path, {"reward": wrong})
            assert (status, told["error"]["path"]) == (422, "$.reward[1].slotId")
            assert reward(b, f"s{i}", 0.0, slot="top")[1]["state"] == "kept"  # the first
        assert a.ask("POST", f"{SPACE}/arms/retire", {"arms": ["c"]})[0] == 204
        assert len(both.digests()) == 1


def test_the_same_id_at_all_of_them_at_once_is_decided_once(tmp_path: Path, address: str) -> None:
    with group(tmp_path, address, 2) as both:
        assert both.all[0].ask("POST", "/v1/spaces", {**NEWS, "explore": 1.0})[0] == 201
        until(lambda: both.all[1].ask("GET", SPACE)[0] == 200)
        answers: dict[str, list[Any]] = {}

        def ask(one: Service, turn: int) -> None:
            for i in range(30):
                # other candidates would be another body: other draws come from other states
                answers.setdefault(f"k{i}", []).append(decide(one, f"k{i}"))
                reward(one, f"k{i - turn}", float(turn))

        threads = [
            threading.Thread(target=ask, args=(one, turn))
            for one in both.all
            for turn in range(1, 3)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for told in answers.values():
            assert len(told) == 4
            assert all(one == told[0] and one[0] == 200 for one in told)
        assert len(both.digests()) == 1


def test_a_changed_configuration_serves_on_all_and_a_newcomer_agrees(
    tmp_path: Path, address: str
) -> None:
    with group(tmp_path, address, 2) as replicas:
        a, b = replicas.all
        a.ask("POST", "/v1/spaces", NEWS)
        for i in range(20):
            decide(a, f"d{i}")
            reward(a, f"d{i}", float(i % 3 == 0))
        wish = {**{k: v for k, v in NEWS.items() if k != "name"}, "params": {"alpha": 0.3}}
        until(lambda: b.ask("GET", SPACE)[0] == 200)
        assert b.ask("PUT", SPACE, wish) == (202, {"version": 2})
        for one in replicas.all:
            until(lambda one=one: one.ask("GET", SPACE)[1]["version"] == 2)
        decide(b, "after")
        third = replicas.begin(2)
        replicas.all.append(third)
        third.wait()
        assert third.ask("GET", SPACE)[1]["version"] == 2
        assert decide(third, "after") == decide(a, "after")
        assert third.ask("GET", f"{SPACE}/stats")[1]["counts"]["decisions"] == 21
        assert len(replicas.digests()) == 1


def test_a_version_that_was_overtaken_before_it_was_built_never_serves(
    tmp_path: Path, address: str
) -> None:
    with group(tmp_path, address, 1) as replicas:
        (a,) = replicas.all
        a.ask("POST", "/v1/spaces", NEWS)
        decide(a, "d")
        assert reward(a, "d")[1]["state"] == "learnt"
        number = 2 if "demo" in json.dumps(a.ask("GET", "/v1/spaces")[1]) else 1
        config = msgspec.convert({k: v for k, v in NEWS.items() if k != "name"}, SpaceConfig)
        encode = msgspec.msgpack.encode
        rules = msgspec.structs.replace(config.rewards, wait_seconds=1.0)
        other = msgspec.structs.replace(config, rewards=rules)
        appender = Appender(address)
        appender.append([
            Entry(number, Kind.CONFIG, "2", encode(ConfigRow("news", 2, other))),
            Entry(number, Kind.CONFIG, "3", encode(ConfigRow("news", 3, config))),
            Entry(number, Kind.BUILT, "2", encode(ConfigRow("news", 2, other))),
        ])  # fmt: skip
        appender.disconnect()
        until(lambda: a.ask("GET", SPACE)[1]["version"] == 3)
        assert decide(a, "later")[0] == 200
        assert len(replicas.digests()) == 1
        again = replicas.all[0] = replicas.begin(0)
        again.wait()
        assert again.ask("GET", SPACE)[1]["version"] == 3


def test_the_database_goes_and_comes_and_no_replica_restarts(tmp_path: Path) -> None:
    settings = tmp_path / "whim.toml"
    settings.write_text("max_lag_seconds = 1.0\ncommit_seconds = 2.0\n")
    with (
        Server.start() as server,
        group(tmp_path, server.dsn, 2, "--config", str(settings)) as both,
    ):
        a, b = both.all
        a.ask("POST", "/v1/spaces", NEWS)
        assert decide(a, "before")[0] == 200
        server.stop("immediate")
        status, told = decide(a, "during")
        assert (status, told["error"]["code"]) == (503, "unavailable")
        until(lambda: b.ask("GET", "/readyz")[0] == 503)
        assert b.ask("GET", "/readyz")[1]["status"] == "behind"
        assert a.ask("GET", SPACE)[0] == 200  # what is known is still told
        server.resume()
        for one in both.all:  # what is refused until the database answers may be tried again
            while (told := decide(one, "during"))[0] == 503:
                time.sleep(0.05)
            assert told[0] == 200, told
        assert decide(b, "during") == decide(a, "during")
        until(lambda: b.ask("GET", "/readyz")[0] == 200)
        assert len(both.digests()) == 1


def test_changes_are_delivered_once_whoever_leads(tmp_path: Path, address: str) -> None:
    got: list[Any] = []

    class Sink(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            got.append(json.loads(self.rfile.read(int(self.headers["content-length"]))))
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            pass

    sink = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Sink)
    threading.Thread(target=sink.serve_forever, daemon=True).start()
    settings = tmp_path / "whim.toml"
    settings.write_text(f'[[webhooks]]\nurl = "http://127.0.0.1:{sink.server_port}/"\n')
    config = {
        "name": "news", "policy": "pslinucb-disjoint", "params": {"window": 8, "threshold": 0.2},
        "context": {"size": 1}, "rewards": {"wait_seconds": 30},
    }  # fmt: skip
    with group(tmp_path, address, 2, "--config", str(settings)) as both:
        both.all[0].ask("POST", "/v1/spaces", config)
        until(lambda: both.all[1].ask("GET", SPACE)[0] == 200)

        def play(one: Service, tag: str, value: float) -> None:
            for i in range(24):
                decide(one, f"{tag}{i}", context=[1.0], candidates=["a"])
                reward(one, f"{tag}{i}", value)

        def found(one: Service) -> list[int]:
            return [c["seq"] for c in one.ask("GET", f"{SPACE}/changes")[1]["changes"]]

        def counted(one: Service) -> int:
            text = one.ask("GET", "/metrics")[1].decode()
            match = re.search(r'whim_changes_total{space="news"} (\d+)', text)
            assert match is not None
            return int(match[1])

        def told(one: Service) -> int:
            return sum(" change " in line and "space=news" in line for line in one.said)

        play(both.all[0], "x", 1.0)
        play(both.all[1], "y", 0.0)
        until(lambda: found(both.all[0]) and found(both.all[0]) == found(both.all[1]))
        before = found(both.all[0])
        until(lambda: [one["change"]["seq"] for one in got] == before)
        until(lambda: leader(both) >= 0)
        gone = leader(both)
        both.all[gone].stop(signal.SIGKILL)
        other = both.all[1 - gone]
        play(other, "z", 1.0)
        assert len(found(other)) > len(before)
        until(lambda: counted(other) == told(other) == len(found(other)))
        until(lambda: [one["change"]["seq"] for one in got] == found(other))
        both.all[gone] = both.begin(gone)
        both.all[gone].wait()
        until(lambda: found(both.all[gone]) == found(other))
        assert [one["change"]["seq"] for one in got] == found(other)
        # which it has read of at its start, and has not detected
        assert counted(both.all[gone]) == told(both.all[gone]) == 0
        assert len(both.digests()) == 1
    sink.shutdown()
    sink.server_close()


def test_a_copy_is_no_log_of_its_own_and_one_that_is_damaged_is_made_anew(
    tmp_path: Path, address: str
) -> None:
    with group(tmp_path, address, 1) as one:
        one.all[0].ask("POST", "/v1/spaces", NEWS)
        for i in range(10):
            decide(one.all[0], f"d{i}")
        assert one.all[0].stop() == 0
        with Service(tmp_path / "0") as alone:
            assert alone.process.wait(60) == 1
        assert "a replica's copy of one in PostgreSQL" in "".join(alone.said)
        with contextlib.closing(sqlite3.connect(tmp_path / "0" / "log.db")) as log:
            log.execute("UPDATE log SET body = x'00' WHERE seq = (SELECT max(seq) FROM log)")
            log.commit()
        again = one.all[0] = one.begin(0)
        again.wait()
        assert "the copy of the log is discarded" in "".join(again.said)
        assert decide(again, "d3")[0] == 200
        with contextlib.closing(LogReader(tmp_path / "0" / "log.db")) as log:
            until(lambda: log.last()[0] >= 10)
        assert len(one.digests()) == 1


def test_a_directory_with_a_log_of_its_own_is_not_overwritten(tmp_path: Path, address: str) -> None:
    Engine(tmp_path / "own").close()
    with Service(tmp_path / "own", "--store", address) as refused:
        assert refused.process.wait(60) == 1
    assert "which has a log of its own" in "".join(refused.said)


def test_an_address_of_another_kind_is_refused_and_not_shown() -> None:
    with pytest.raises(ConfigError, match="store must begin with postgresql://") as error:
        load(None, store="mysql://root:secret@h")
    assert "secret" not in str(error.value)


def test_retention_removes_rows_for_all_and_a_newcomer_starts_from_what_is_left(
    tmp_path: Path, server: Server
) -> None:
    name = server.database()
    with group(tmp_path, server.address(name), 2) as replicas:
        a, b = replicas.all
        a.ask("POST", "/v1/spaces", {**NEWS, "rewards": {"wait_seconds": 3600}})
        until(lambda: b.ask("GET", SPACE)[0] == 200)
        for i in range(60):
            assert decide(replicas.all[i % 2], f"d{i}")[0] == 200
            if i % 3:
                reward(replicas.all[i % 2], f"d{i}", float(i % 2))
        for one in replicas.all:
            assert one.stop() == 0
        path = tmp_path / "0" / "log.db"
        done = trim(path, time.time_ns(), pause=lambda seconds: None)
        with contextlib.closing(LogReader(path)) as copy:
            removed = trim_shared(replicas.address, copy)
            assert trim_shared(replicas.address, copy) == 0
        assert 60 < removed == done.rows
        (left,) = server.execute("SELECT count(*) FROM whim.log WHERE kind > 2", database=name)[0]
        assert left < 40  # what waits, and the last row
        replicas.all = [replicas.begin(i) for i in range(3)]  # the last has no copy yet
        for one in replicas.all:
            one.wait()
        third = replicas.all[2]
        assert decide(third, "d0") == decide(replicas.all[1], "d0")  # one that waits is known
        assert reward(third, "d0")[1]["state"] == "learnt"
        assert third.ask("GET", f"{SPACE}/stats")[1]["counts"]["decisions"] == 60
        assert len(replicas.digests()) == 1
