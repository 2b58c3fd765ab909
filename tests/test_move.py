"""``whim move``: between a directory and PostgreSQL and back, bit for bit, and whatever ends it."""

from __future__ import annotations

import contextlib
import json
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from typer.testing import CliRunner

from tests.crashes import Service
from tests.postgres import MISSING, Server, binaries
from tests.shared_log import appender, until
from whim.cli.app import app
from whim.errors import InvalidInputError, WhimError
from whim.serve import move as moving
from whim.serve import wire
from whim.serve.backup import backup
from whim.serve.http.keys import Keys
from whim.serve.jobs.cursors import Cursors
from whim.serve.jobs.trim import trim
from whim.serve.log.origin import moved_of
from whim.serve.log.reader import LogReader, StoreError
from whim.serve.log.rows import Expiry, Kind
from whim.serve.log.store import pack_changes
from whim.serve.move import move
from whim.serve.postgres import schema
from whim.serve.postgres.append import Entry
from whim.serve.postgres.connection import connect
from whim.serve.postgres.databases import shards_of
from whim.serve.postgres.moving import claimed
from whim.serve.postgres.queries import Queries
from whim.serve.postgres.reader import Reader
from whim.serve.state import recovery
from whim.serve.state.engine import Engine
from whim.serve.state.replica import Replica

pytestmark = pytest.mark.skipif(binaries() is None, reason=MISSING)

NEWS = wire.SpaceConfig(
    policy="pslinucb-disjoint", params={"window": 8, "threshold": 0.2},
    context=wire.Features(size=2, constant=True), explore=0.1,
    rewards=wire.RewardRules(wait_seconds=3600),
)  # fmt: skip
TOKEN = "a token that only tests know"
KEY = {"authorization": f"Bearer {TOKEN}"}
SHOP = wire.SpaceConfig(policy="ucb", context=wire.Features(), explore=0.5)


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with Server.start() as made:
        yield made


@pytest.fixture
def store(server: Server) -> str:
    return server.address(server.database())


def go_on(engine: Engine, first: int, last: int, tag: str = "d") -> None:
    """Decisions and rewards; what is liked changes every hundred."""
    chance = random.Random(first)
    for i in range(first, last):
        for name in engine.names:
            context = [chance.uniform(-1, 1) for _ in range(2 if name == "news" else 0)]
            body = wire.DecisionBody(
                candidates=["a", "b", 7], context=context, decision_id=f"{tag}{i}"
            )
            arm = json.loads(engine.decide(name, body, b"%d" % i))["arm"]
            if i % 5:
                liked = "ab"[i // 100 % 2]
                value = round(chance.uniform(0.6, 1) if arm == liked else chance.uniform(0, 0.3), 3)
                engine.reward(name, wire.RewardBody(decision_id=f"{tag}{i}", value=value))
    engine.store.flush()


def changed(engine: Engine, name: str, config: wire.SpaceConfig) -> None:
    """Another version of a space, which serves at once."""
    engine.change(name, config)
    engine.store.flush()
    number, wanted = engine.wanted(name)
    state, changes = recovery.rebuild(engine.store, number, wanted)
    packed = pack_changes(number, wanted.version, changes)
    engine.swap(name, recovery.Rebuilt(number, state, packed))


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with all that there may be: versions, changes, a retired space, keys, cursors."""
    folder = tmp_path_factory.mktemp("made") / "data"
    engine = Engine(folder)
    engine.create("news", NEWS)
    engine.create("gone", SHOP)
    go_on(engine, 0, 150)
    engine.retire("gone")
    engine.create("shop", SHOP)
    other = {"window": 10, "threshold": 0.25}
    changed(engine, "news", _with(other))
    engine.snapshot("news")
    go_on(engine, 150, 320)
    engine.close()
    Keys(folder / "keys.json").make_first(TOKEN)
    with contextlib.closing(Cursors(folder / "webhooks.db")) as cursors:
        cursors.meet("hash of an address", 3, ["news"])
        cursors.write("hash of an address", "news", 31, 1)
    return folder


@pytest.fixture
def data(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "data"))


def _with(params: dict[str, Any]) -> wire.SpaceConfig:
    return msgspec.structs.replace(NEWS, params=params)


class Held:
    """All that a directory holds that a move must keep."""

    def __init__(self, data: Path) -> None:
        with contextlib.closing(LogReader(data / "log.db")) as reader:
            self.rows = reader.query("SELECT * FROM log ORDER BY seq")
            self.changes = sorted(reader.query("SELECT * FROM change"))
            self.trimmed = reader.trimmed()
            self.bases = [reader.base(number) for number in range(1, 5)]
        keys = data / "keys.json"
        self.keys = keys.read_bytes() if keys.exists() else None
        with contextlib.closing(sqlite3.connect(data / "webhooks.db")) as cursors:
            self.hooks = [
                cursors.execute(f"SELECT * FROM {table}").fetchall() for table in ("hook", "cursor")
            ]

    def __eq__(self, other: object) -> bool:
        return self.__dict__ == other.__dict__

    __hash__ = None  # type: ignore[assignment]


def digests(data: Path) -> dict[str, str]:
    engine = Engine(data)
    try:
        return {name: engine.space(name).state.digest() for name in engine.names}
    finally:
        engine.close()


def opens(store: str) -> None:
    """What a replica does first."""
    with contextlib.closing(Queries(store)) as queries:
        queries.open()


def run(*arguments: str) -> Any:
    return CliRunner().invoke(app, arguments)


def rebuilt(store: str, data: Path) -> list[Any]:
    """What ``whim rebuild`` finds over PostgreSQL, beside the copy of a replica."""
    done = run("rebuild", "--store", store, "--data", str(data), "--json")
    assert done.exit_code == 0, (done.output, done.exception)
    return list(json.loads(done.stdout)["spaces"])


# -- there and back ---------------------------------------------------------------------------


def test_there_and_back_every_bit_is_the_same(data: Path, store: str, tmp_path: Path) -> None:
    before, states = Held(data), digests(data)
    assert len({version for *_, version, _ in before.changes}) == 2  # both versions found some
    there = run("move", str(data), store, "--json")
    assert there.exit_code == 0, (there.output, there.exception)
    assert json.loads(there.stdout)["digests"] == states
    assert json.loads(there.stdout)["rows"] == before.rows[-1][0]

    with pytest.raises(StoreError, match=r"whose log was moved to postgresql://127.0.0.1"):
        Engine(data)
    with pytest.raises(StoreError, match="whose log was moved to"):
        backup(data, tmp_path / "backup")
    with contextlib.closing(Reader(store)) as reader:
        assert [row[:6] for block in reader.blocks() for row in block] == [
            tuple(row[:6]) for row in before.rows
        ]
        assert _stored(reader, 1, 2) == _events(data, 1, 2) != []

    back = tmp_path / "back"
    again = run("move", store, str(back))
    assert again.exit_code == 0, (again.output, again.exception)
    assert Held(back) == before
    assert digests(back) == states
    with pytest.raises(StoreError, match=f"its log was moved to {back}"):
        opens(store)
    assert sorted(p.name for p in back.iterdir() if p.suffix != ".lock") == [
        "keys.json", "lock", "log.db", "snapshots.db", "webhooks.db",
    ]  # fmt: skip


def _stored(reader: Reader, space: int, version: int) -> list[tuple[int, int, Any]]:
    """The changes that the database holds."""
    sql = "SELECT seq, at, body FROM whim.change WHERE space = %s AND version = %s ORDER BY seq, i"
    rows = reader.query(sql, (space, version))
    return [(seq, at, json.loads(body)) for seq, at, body in rows]


def _events(data: Path, space: int, version: int) -> Any:
    with contextlib.closing(LogReader(data / "log.db")) as reader:
        return reader.changes(space, version)


def test_it_goes_to_and_fro_and_on_in_between(data: Path, store: str) -> None:
    for turn in range(2):
        move(str(data), store)
        opens(store)
        move(store, str(data))
        engine = Engine(data)
        go_on(engine, 400 + 50 * turn, 450 + 50 * turn)
        engine.close()
    held = Held(data)
    assert [row[0] for row in held.rows] == list(range(1, len(held.rows) + 1))
    whole = run("rebuild", "--data", str(data), "--json")
    assert whole.exit_code == 0
    assert {row["space"]: row["digest"] for row in json.loads(whole.stdout)["spaces"]} == digests(
        data
    )


def test_what_replicas_did_meanwhile_comes_back(
    data: Path, store: str, tmp_path: Path, server: Server
) -> None:
    """With changes that replicas found, which are nowhere but in their own copies.

    Rows that came without keys do not keep a replica from saying again that a version serves.
    """
    move(str(data), store)
    with contextlib.closing(Reader(store)) as reader:
        (built,) = [row for row in reader.configs() if row.kind == Kind.BUILT]
    with appender(store) as twice:
        twice.append([Entry(built.space, built.kind, "2", built.body)])
    with Service(tmp_path / "replica", "--store", store) as service:
        service.wait()
        chance = random.Random(5)
        for i in range(10):
            bodies = [
                {"decision_id": f"s{i}-{j}", "candidates": ["a", "b", 7],
                 "context": [chance.uniform(-1, 1), chance.uniform(-1, 1)]}
                for j in range(20)
            ]  # fmt: skip
            path = "/v1/spaces/news/decisions/batch"
            status, told = service.ask("POST", path, {"decisions": bodies}, **KEY)
            assert status == 200, told
            rewards = [
                {"decision_id": one["decision_id"], "value": float(one["arm"] == "ab"[i // 4 % 2])}
                for one in told["answers"]
            ]
            path = "/v1/spaces/news/rewards/batch"
            assert service.ask("POST", path, {"rewards": rewards}, **KEY)[0] == 200
        refused = run("move", store, str(data))
        assert "no service must run over postgresql://127.0.0.1" in str(refused.exception)
        assert service.stop() == 0
    with contextlib.closing(LogReader(tmp_path / "replica" / "log.db")) as reader:
        rows = reader.query("SELECT * FROM log ORDER BY seq")
        changes = sorted(reader.query("SELECT * FROM change"))
    assert [row["equal"] for row in rebuilt(store, tmp_path / "replica")] == [None, None]
    engine = Engine(tmp_path / "replica", copy=True)
    engine.snapshot("news")
    engine.close()
    assert [row["equal"] for row in rebuilt(store, tmp_path / "replica")] == [True, None]
    before = Held(data)
    move(store, str(data))
    gone = run("rebuild", "--store", store)
    assert "its log was moved to" in str(gone.exception)
    after = Held(data)
    assert after.rows == rows
    assert after.changes == changes
    assert len(changes) > len(before.changes)
    assert after.rows[: len(before.rows)] == before.rows
    engine = Engine(data)  # and it goes on
    go_on(engine, 700, 710)
    engine.close()


def test_a_trimmed_log_is_moved_with_its_base(data: Path, store: str, tmp_path: Path) -> None:
    with contextlib.closing(LogReader(data / "log.db")) as reader:
        (at,) = [row.at for row in reader.rows(399, 400)]
    assert trim(data / "log.db", at, pause=lambda _: None).rows > 100
    before, states = Held(data), digests(data)
    assert before.trimmed > 300
    assert before.bases[0] is not None
    move(str(data), store)
    with Service(tmp_path / "replica", "--store", store) as service:
        service.wait()
        body = {"decision_id": "d319", "candidates": ["a"], "context": [0.0, 0.0]}
        status, _ = service.ask("POST", "/v1/spaces/news/decisions", body, **KEY)
        assert status == 409  # it is known, and was another
        assert service.stop() == 0
    folded = rebuilt(store, tmp_path / "replica")
    assert {row["space"]: row["digest"] for row in folded} == states
    back = tmp_path / "back"
    move(store, str(back))
    assert Held(back) == before


# -- what is refused --------------------------------------------------------------------------


def test_what_is_in_use_is_not_moved(data: Path, store: str, tmp_path: Path) -> None:
    engine = Engine(data)
    with pytest.raises(StoreError, match="no other running service"):
        move(str(data), store)
    engine.close()
    with claimed(store, make=True), pytest.raises(StoreError, match="another `whim move` uses it"):
        move(str(data), store)
    with claimed(store, make=True), pytest.raises(StoreError, match="`whim move` uses it"):
        opens(store)


def test_places_that_will_not_do(data: Path, store: str, tmp_path: Path) -> None:
    other = tmp_path / "other"
    engine = Engine(other)
    engine.create("shop", SHOP)
    engine.close()
    for source, target, words in (
        (str(data), str(other), "got two directories"),
        (store, store, "got two addresses"),
        (str(tmp_path / "none"), store, "from must be a service's directory"),
        (store, str(tmp_path / "new"), "store must hold a log of format"),
    ):
        with pytest.raises(InvalidInputError, match=words):
            move(source, target)
    move(str(data), store)
    with pytest.raises(StoreError, match=r"to must be empty, got postgresql:.* a log of"):
        move(str(other), store)
    with pytest.raises(StoreError, match="was moved to"):
        move(str(data), store)
    with pytest.raises(InvalidInputError, match=r"one that has log\.db"):
        move(store, str(other))
    move(store, str(tmp_path / "back"))
    with pytest.raises(StoreError, match="its log was moved to"):
        move(store, str(data))
    with pytest.raises(StoreError, match="to must be empty or where this log was before"):
        move(str(other), store)
    assert digests(other)  # it is as it was


def test_a_replica_does_not_take_a_directory_whose_log_has_gone(data: Path, store: str) -> None:
    move(str(data), store)
    with pytest.raises(StoreError, match="with another directory as data"):
        Replica(data, *shards_of([store]))


def test_a_log_that_has_gone_takes_no_more_rows(data: Path, store: str, tmp_path: Path) -> None:
    """Not even from a service that began before and was not seen."""
    move(str(data), store)
    with appender(store) as late:
        nothing = Entry(1, Kind.EXPIRY, None, msgspec.msgpack.encode(Expiry([])))
        late.append([nothing])
        move_back = tmp_path / "back"
        with pytest.raises(StoreError, match="no service must run"):
            move(store, str(move_back))
        late.disconnect()
        move(store, str(move_back))
        with pytest.raises(WhimError):
            late.append([nothing])


# -- interruptions ----------------------------------------------------------------------------


class _Stop(BaseException):
    pass


def _break_off(
    monkeypatch: pytest.MonkeyPatch, step: tuple[Any, str, bool, Callable[..., bool]]
) -> None:
    """The next call of a function ends the move, before or after its work."""
    owner, name, after, when = step
    real = getattr(owner, name)

    def stop(*arguments: Any, **more: Any) -> Any:
        if not when(*arguments):
            return real(*arguments, **more)
        if after:
            real(*arguments, **more)
        raise _Stop

    monkeypatch.setattr(owner, name, stop)


def _any(*arguments: Any) -> bool:
    return True


def _the_log(path: Path, *to: Any) -> bool:
    return path.parent.name == "arriving" and path.name == "log.db"


def _all_is_here(data: Path, moved: Any) -> bool:
    return moved is None


TO_STORE = [
    (moving.Claim, "put_log", True, _any), (moving, "_compare", False, _any),
    (moving.origin, "say_moved", False, _any), (moving.origin, "say_moved", True, _any),
    (moving.Claim, "arrived", True, _any),
]  # fmt: skip
TO_DIRECTORY = [
    (moving.fetched, "fetch", True, _any), (moving.Claim, "gone", False, _any),
    (moving.Claim, "gone", True, _any), (Path, "replace", False, _the_log),
    (Path, "replace", True, _the_log), (moving.origin, "say_moved", False, _all_is_here),
]  # fmt: skip


@pytest.mark.parametrize("step", TO_STORE, ids=lambda step: f"{step[1]} {step[2]}")
def test_interrupted_on_its_way_there(
    data: Path, store: str, step: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    before, name = Held(data), step[1]
    with monkeypatch.context() as patched:
        _break_off(patched, step)
        with pytest.raises(_Stop):
            move(str(data), store)
    assert _at_directory(data) + _at_store(store) <= 1
    if name in ("put_log", "_compare"):  # the old place works as before
        engine = Engine(data)
        go_on(engine, 500, 503)
        engine.close()
        before = Held(data)
    if name != "arrived":
        move(str(data), store)
    assert not _at_directory(data)
    assert _at_store(store)
    move(store, str(tmp_path / "back"))
    assert Held(tmp_path / "back") == before


@pytest.mark.parametrize("step", TO_DIRECTORY, ids=lambda step: f"{step[1]} {step[2]}")
def test_interrupted_on_its_way_back(
    data: Path, store: str, step: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = Held(data)
    move(str(data), store)
    with monkeypatch.context() as patched:
        _break_off(patched, step)
        with pytest.raises(_Stop):
            move(store, str(data))
    assert not _at_directory(data)
    assert _at_store(store) == (step[:3] in [one[:3] for one in TO_DIRECTORY[:2]])
    move(store, str(data))
    assert Held(data) == before
    assert _at_directory(data)
    assert not _at_store(store)


def _at_directory(data: Path) -> bool:
    """Whether a service may start there: ``Engine`` asks the same first."""
    return moved_of(data) is None


def _at_store(store: str) -> bool:
    """The same of a database, with any of the log in it."""
    try:
        opens(store)
    except StoreError:
        return False
    with contextlib.closing(Reader(store)) as reader:
        return bool(reader.query("SELECT 1 FROM whim.log LIMIT 1"))


def test_killed_while_it_copies(data: Path, store: str, server: Server) -> None:
    """By SIGKILL, while its transaction waits; the lock goes with it."""
    with connect(store) as connection:
        schema.create(connection)
        with connection.transaction():
            connection.execute("LOCK TABLE whim.log IN SHARE MODE")  # who copies waits
            process = subprocess.Popen(
                [sys.executable, "-m", "whim", "move", str(data), store],
                stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            )  # fmt: skip
            until(lambda: bool(server.execute(
                "SELECT 1 FROM pg_stat_activity WHERE application_name = 'whim move' "
                "AND wait_event_type = 'Lock'"
            )))  # fmt: skip
            process.send_signal(signal.SIGKILL)
            process.communicate(timeout=20)
    assert digests(data)
    until(lambda: not server.execute(
        "SELECT 1 FROM pg_stat_activity WHERE application_name = 'whim move'"
    ))  # fmt: skip
    opens(store)
    move(str(data), store)


# -- schema -----------------------------------------------------------------------------------


def test_the_schema_is_printed_for_others_to_run(server: Server, data: Path) -> None:
    printed = run("schema", "--shards", "3")
    assert printed.exit_code == 0
    name = server.database()
    server.execute(printed.stdout, database=name)
    assert server.execute("SELECT shard FROM whim.head ORDER BY 1", database=name) == [
        (0,), (1,), (2,),
    ]  # fmt: skip
    opens(server.address(name))
    move(str(data), server.address(name))
    assert len(server.execute("SELECT 1 FROM whim.head", database=name)) == 3
