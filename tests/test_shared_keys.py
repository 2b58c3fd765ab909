"""What replicas share beside their log: API keys, and what-ifs that any of them can tell of."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from typer.testing import CliRunner

from tests.crashes import CONFIG, Service
from tests.postgres import MISSING, Server, binaries
from tests.shared_log import until
from whim.cli.app import app
from whim.errors import InvalidInputError
from whim.serve import logging
from whim.serve.http import shared_keys, whatifs
from whim.serve.http.keys import Keys, KeysError
from whim.serve.http.opening import open_engine
from whim.serve.http.service import Service as ServiceHere
from whim.serve.http.shared_keys import StoreKeys, keep_settled, open_shared, settle
from whim.serve.jobs.background import Job
from whim.serve.log.reader import UnavailableError
from whim.serve.postgres.queries import Queries
from whim.serve.settings import ConfigError, Settings

pytestmark = pytest.mark.skipif(binaries() is None, reason=MISSING)

SOON = 2.0  # seconds within which all replicas know


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with Server.start() as made:
        yield made


@pytest.fixture
def store(server: Server) -> str:
    return server.address(server.database())


@pytest.fixture
def documents(store: str) -> Iterator[Queries]:
    with contextlib.closing(Queries(store)) as made:
        made.open()
        yield made


def run(*arguments: str) -> Any:
    return CliRunner().invoke(app, arguments)


# -- the document -----------------------------------------------------------------------------


def test_keys_of_the_store_are_made_listed_and_revoked(store: str, tmp_path: Path) -> None:
    made = run("keys", "make", "web", "--scope", "decide", "--store", store)
    assert made.exit_code == 0, made.output
    token = made.stdout.strip()
    again = run("keys", "make", "web", "--scope", "read", "--store", store)
    assert isinstance(again.exception, InvalidInputError)
    (listed,) = json.loads(run("keys", "list", "--json", "--store", store).stdout)["keys"]
    assert (listed["name"], listed["revoked"]) == ("web", False)
    assert run("keys", "revoke", "web", "--store", store).exit_code == 0
    with contextlib.closing(Queries(store)) as documents:
        version, body = documents.document("keys") or (0, b"")
    assert version == 2
    assert token.encode() not in body
    (tmp_path / "keys.json").write_bytes(body)  # it is what a directory would have
    assert [key.revoked for key in Keys(tmp_path / "keys.json").list()] == [True]


def test_none_of_many_who_change_them_at_once_is_lost(store: str) -> None:
    with contextlib.closing(Queries(store)) as first:
        first.open()

    def change(i: int) -> None:
        with contextlib.closing(Queries(store)) as documents:
            keys = StoreKeys(documents)
            keys.make(f"key-{i}", ["read"])
            keys.revoke(f"key-{i}")

    threads = [threading.Thread(target=change, args=(i,)) for i in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with contextlib.closing(Queries(store)) as documents:
        listed = StoreKeys(documents).list()
    assert sorted(key.name for key in listed) == [f"key-{i}" for i in range(6)]
    assert all(key.revoked for key in listed)


def test_a_replica_brings_its_keys_or_takes_those_that_are_there(
    documents: Queries, tmp_path: Path
) -> None:
    one, other = tmp_path / "one" / "keys.json", tmp_path / "other" / "keys.json"
    assert not settle(documents, one)  # there are none at all
    Keys(one).make("mine", ["read"])
    Keys(other).make("theirs", ["read"])
    assert not settle(documents, one)
    assert settle(documents, other)
    assert other.read_bytes() == one.read_bytes()
    assert not settle(documents, other)
    StoreKeys(documents).make("more", ["admin"])
    assert settle(documents, other)
    assert [key.name for key in Keys(other).list()] == ["mine", "more"]
    other.write_bytes(b"{}")  # edited by hand: the database's count
    assert settle(documents, other)
    assert [key.name for key in Keys(other).list()] == ["mine", "more"]


def test_keys_that_are_damaged_do_not_spread(documents: Queries, tmp_path: Path) -> None:
    (tmp_path / "keys.json").write_bytes(b"{")
    with pytest.raises(KeysError, match="it was altered"):
        settle(documents, tmp_path / "keys.json")
    assert documents.document("keys") is None


def test_the_keys_of_another_directory_are_left_alone(
    documents: Queries, store: str, tmp_path: Path
) -> None:
    """A wrong --data must not cost its keys: it is looked at first whose directory it is."""
    StoreKeys(documents).make("web", ["read"])
    Keys(tmp_path / "keys.json").make("own", ["read"])
    (tmp_path / "log.db").touch()
    before = (tmp_path / "keys.json").read_bytes()

    async def start() -> Exception | None:
        service = ServiceHere(Settings(data=str(tmp_path), store=store))
        await service.start()
        await service.opened.wait()
        await service.close()
        return service.problem

    assert "which has a log of its own" in str(asyncio.run(start()))
    assert (tmp_path / "keys.json").read_bytes() == before


def test_without_keys_nobody_else_is_let_in(documents: Queries, tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    settings = Settings(data=str(tmp_path), store="postgresql://", host="0.0.0.0")
    with pytest.raises(ConfigError, match="loopback address while there are no keys"):
        open_shared(settings, documents, path)
    StoreKeys(documents).make("web", ["read"])
    open_shared(settings, documents, path)
    assert [key.name for key in Keys(path).list()] == ["web"]


def test_that_there_are_no_keys_is_found_before_the_log_is_read(
    documents: Queries, store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("WHIM_FIRST_KEY", raising=False)
    settings = Settings(data=str(tmp_path / "data"), store=store, host="0.0.0.0")

    def opened(settings: Settings) -> None:
        engine = open_engine(
            settings, time.time_ns, lambda commit: None, lambda name: None, lambda leads: None
        )
        engine.documents.close()
        engine.close()

    with pytest.raises(ConfigError, match="loopback address while there are no keys"):
        opened(settings)
    assert not (tmp_path / "data" / "log.db").exists()
    # a secret becomes one, and keys that are there count
    monkeypatch.setenv("WHIM_FIRST_KEY", "x" * 40)
    opened(settings)
    monkeypatch.delenv("WHIM_FIRST_KEY")
    StoreKeys(documents).make("web", ["read"])
    opened(settings)


def test_the_keys_of_a_replica_are_not_changed_in_its_directory(tmp_path: Path) -> None:
    (tmp_path / "origin").write_text("a log\n")
    for words in (["make", "web", "--scope", "read"], ["revoke", "web"], ["list"]):
        done = run("keys", *words, "--data", str(tmp_path))
        assert "store must be given for a replica" in str(done.exception)


def test_the_last_keys_count_while_the_database_is_away(
    documents: Queries, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared_keys, "_EVERY", 0.001)
    keys = Keys(tmp_path / "keys.json")
    token = StoreKeys(documents).make("web", ["read"])
    asked, away = list[str](), False

    def document(name: str) -> Any:
        asked.append(name)
        if away:
            raise UnavailableError("the database does not answer.")
        return documents.document(name)

    async def more() -> None:
        wanted = len(asked) + 3
        while len(asked) < wanted:
            await asyncio.sleep(0.001)

    async def follow() -> None:
        nonlocal away
        engine = SimpleNamespace(documents=SimpleNamespace(document=document))
        service: Any = SimpleNamespace(engine=engine, keys=keys, log=logging.get("whim"))
        following = asyncio.ensure_future(keep_settled(service))
        await more()
        assert keys.check(token) is not None
        away = True
        await more()
        StoreKeys(documents).revoke("web")
        await more()
        assert keys.check(token) is not None
        away = False
        await more()
        assert keys.check(token) is None  # at once: it need not wait for its next look
        following.cancel()

    asyncio.run(follow())


# -- what-ifs ---------------------------------------------------------------------------------


class _Here:
    """A replica with no what-ifs of its own."""

    def __init__(self, documents: Any) -> None:
        self.engine = self
        self.documents = documents

    def job(self, key: str) -> None:
        return None


def _find(documents: Any, key: str) -> Job | None:
    """As a replica that has no what-ifs of its own."""
    here: Any = _Here(documents)
    return asyncio.run(whatifs.find(here, key))


def test_what_ifs_are_bounded_and_end_with_their_replica(documents: Queries) -> None:
    documents.set_clock()
    keys = [f"{i:032x}" for i in range(104)]
    for key in keys:
        whatifs._write(documents, key, Job(state="running", progress=0.5, space="news"))
    assert _find(documents, keys[3]) is None  # the oldest are gone
    found = _find(documents, keys[4])
    assert found is not None
    assert (found.state, found.progress, found.space) == ("running", 0.5, "news")
    for wrong in ("", "x" * 32, "keys", "\x00", "0" * 33):
        assert _find(documents, wrong) is None
    whatifs._write(documents, "f" * 32, Job(result={"long": "x" * (1 << 20)}))
    assert _find(documents, "f" * 32) is None
    long_ago = whatifs._Stored(Job(state="running"), documents.time_ns() - 16 * 10**9)
    documents.ask(whatifs._PUT, (f"whatif/{keys[50]}", msgspec.json.encode(long_ago)))
    lost = _find(documents, keys[50])
    assert lost is not None
    assert lost.state == "failed"
    assert lost.error is not None
    assert "has ended" in lost.error


def test_a_database_that_is_away_is_said() -> None:
    with (
        contextlib.closing(Queries("postgresql://127.0.0.1:1/none")) as away,
        pytest.raises(UnavailableError),
    ):
        _find(away, "0" * 32)


# -- replicas ---------------------------------------------------------------------------------


class _Pair:
    """Two replicas that start at the same time, each with a first key of its own."""

    def __init__(self, server: Server, folder: Path) -> None:
        self.store = server.address(server.database())
        self.tokens = [f"{name}-secret-{'x' * 32}" for name in "ab"]
        self.services = []
        for name, token in zip("ab", self.tokens, strict=True):
            (folder / f"{name}.key").write_text(token)
            (folder / f"{name}.toml").write_text(
                f'first_key_file = "{folder / f"{name}.key"}"\ndemo = false\n'
            )
            config = ("--config", str(folder / f"{name}.toml"))
            self.services.append(Service(folder / name, "--store", self.store, *config))

    def wait(self) -> None:
        for service in self.services:
            service.wait()

    def statuses(self, token: str) -> list[int]:
        """What a request with this key gets from each."""
        path = "/v1/spaces"
        return [s.ask("GET", path, authorization=f"Bearer {token}")[0] for s in self.services]


@pytest.fixture(scope="module")
def pair(server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[_Pair]:
    made = _Pair(server, tmp_path_factory.mktemp("pair"))
    try:
        made.wait()
        yield made
    finally:
        for service in made.services:
            service.stop()


@pytest.fixture(scope="module")
def admin(pair: _Pair) -> str:
    """The token of the one first key."""
    (token,) = [token for token in pair.tokens if pair.statuses(token) == [200, 200]]
    return token


def test_replicas_that_start_together_make_one_first_key(pair: _Pair, admin: str) -> None:
    (other,) = {*pair.tokens} - {admin}
    assert pair.statuses(other) == [401, 401]
    (listed,) = json.loads(run("keys", "list", "--json", "--store", pair.store).stdout)["keys"]
    assert (listed["name"], listed["scopes"]) == ("first", ["admin"])


def test_a_revoked_key_and_its_streams_end_at_every_replica(pair: _Pair, admin: str) -> None:
    status, told = pair.services[0].ask(
        "POST", "/v1/spaces", CONFIG, authorization=f"Bearer {admin}"
    )
    assert status == 201, told
    took = float("inf")
    for attempt in range(3):  # a machine that is busy otherwise may be late once
        took = min(took, _time_to_end(pair, f"listener-{attempt}"))
        if took < SOON:
            break
    assert took < SOON
    assert pair.statuses(admin) == [200, 200]


def _time_to_end(pair: _Pair, name: str) -> float:
    """Seconds from the revocation of a key to the end of its streams."""
    token = run("keys", "make", name, "--scope", "read", "--store", pair.store).stdout.strip()
    until(lambda: pair.statuses(token) == [200, 200])
    with contextlib.ExitStack() as opened:
        streams = []
        for service in pair.services:
            link = http.client.HTTPConnection("127.0.0.1", service.port, timeout=20)
            opened.callback(link.close)
            headers = {"authorization": f"Bearer {token}"}
            link.request("GET", "/v1/spaces/news/changes/stream", headers=headers)
            reply = link.getresponse()
            assert reply.status == 200
            assert reply.readline() == b": whim\n"
            streams.append(reply)
        assert run("keys", "revoke", name, "--store", pair.store).exit_code == 0
        began = time.monotonic()
        for stream in streams:
            stream.read()  # to its end
        took = time.monotonic() - began
    until(lambda: pair.statuses(token) == [401, 401])
    return took


def test_a_what_if_is_told_of_by_any_replica(pair: _Pair, admin: str) -> None:
    one, other = pair.services
    headers = {"authorization": f"Bearer {admin}"}
    for i in range(20):
        body = {"decision_id": f"w{i}", "candidates": ["a", "b"], "context": [0.1, 0.2, 0.3]}
        assert one.ask("POST", "/v1/spaces/news/decisions", body, **headers)[0] == 200
        reward = {"decision_id": f"w{i}", "value": 1.0}
        assert one.ask("POST", "/v1/spaces/news/rewards", reward, **headers)[0] == 200
    config = {name: value for name, value in CONFIG.items() if name != "name"}
    status, begun = one.ask("POST", "/v1/spaces/news/whatif", config, **headers)
    assert status == 202, begun
    path = f"/v1/spaces/news/whatif/{begun['job']}"
    status, job = other.ask("GET", path, **headers)
    assert status == 200, job

    def done() -> bool:
        return bool(other.ask("GET", path, **headers)[1]["state"] == "done")

    until(done, 60)
    assert other.ask("GET", path, **headers) == one.ask("GET", path, **headers)
    assert other.ask("GET", path, **headers)[1]["result"]["events"] == 20
    assert other.ask("GET", f"/v1/spaces/news/whatif/{'0' * 32}", **headers)[0] == 404
