"""What a replica waits for, and for how long: its database when it starts, rows of others later."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.crashes import CONFIG, Service, children
from tests.postgres import MISSING, Server, binaries
from tests.shared_log import until
from whim.serve import wire
from whim.serve.log import rows as log_rows
from whim.serve.log.rows import Kind, Raw
from whim.serve.postgres.connection import RefusedError
from whim.serve.postgres.queries import Queries
from whim.serve.state.space import DecisionRequest, Space
from whim.serve.state.space_state import SpaceState

needs_postgres = pytest.mark.skipif(binaries() is None, reason=MISSING)


@needs_postgres
def test_a_start_waits_for_the_database(tmp_path: Path) -> None:
    with Server.start() as server:
        server.stop()
        with Service(tmp_path, "--store", server.dsn) as service:
            until(lambda: any("waiting for the database" in line for line in service.said))
            assert service.ask("GET", "/readyz")[0] == 503
            server.resume()
            service.wait()


@needs_postgres
def test_a_start_does_not_wait_for_a_database_that_lets_nobody_in(tmp_path: Path) -> None:
    with Server.start() as server:
        server.execute("CREATE ROLE locked LOGIN PASSWORD 'right'")
        server.execute("CREATE ROLE idle")
        access = server.data / "pg_hba.conf"
        access.write_text(
            "host all locked 127.0.0.1/32 scram-sha-256\nhost all out 127.0.0.1/32 reject\n"
            + access.read_text()
        )
        server.execute("SELECT pg_reload_conf()")
        found = []
        for user, database in (
            ("whim", "none"), ("nobody", "postgres"), ("idle", "postgres"), ("locked", "postgres"),
            ("locked:wrong", "postgres"), ("out", "postgres"),
        ):  # fmt: skip
            address = server.address(database).replace("whim@", f"{user}@")
            with pytest.raises(RefusedError, match="lets Whim in, got: ") as refused:
                Queries(address).open()
            found.append(str(refused.value).partition("got: ")[2])
        assert found[:4] == [
            'database "none" does not exist.', 'role "nobody" does not exist.',
            'role "idle" is not permitted to log in.', "no password supplied.",
        ]  # fmt: skip
        assert found[4] == 'password authentication failed for user "locked".'
        assert "pg_hba.conf rejects connection" in found[5]
        with Service(tmp_path, "--store", server.address("none")) as service:
            assert service.process.wait(30) == 2
            service.stop()
            assert service.said[-1].startswith("whim: store must be a database that exists")
            assert 'database "none" does not exist' in service.said[-1]
            assert not any("waiting for the database" in line for line in service.said)


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Service, Service]]:
    """Two replicas that wait for the database for a second at most."""
    folder = tmp_path_factory.mktemp("two")
    settings = folder / "whim.toml"
    settings.write_text("commit_seconds = 1.0\ndemo = false\n")
    with Server.start() as server:
        more = "--config", str(settings), "--store", server.dsn
        with Service(folder / "a", *more) as one, Service(folder / "b", *more) as other:
            for service in (one, other):
                service.wait()
            yield one, other


@contextlib.contextmanager
def not_following(service: Service) -> Iterator[None]:
    """What follows the log for a replica stands still."""
    (link,) = children(service, "process")
    os.kill(link, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(link, signal.SIGCONT)


@needs_postgres
def test_a_space_that_is_not_here_yet_is_not_unknown(two: tuple[Service, Service]) -> None:
    one, other = two
    assert other.ask("GET", "/v1/spaces/later")[0] == 404
    with not_following(other):
        assert one.ask("POST", "/v1/spaces", {**CONFIG, "name": "later"})[0] == 201
        status, said = other.ask("GET", "/v1/spaces/later")
        assert (status, said["error"]["code"]) == (503, "unavailable"), said
    body = {"decision_id": "d", "candidates": ["x"], "context": [1.0, 0.0, 0.0]}
    assert other.ask("POST", "/v1/spaces/later/decisions", body)[0] == 200


@needs_postgres
def test_nobody_waits_for_ever_for_a_row_that_does_not_come(two: tuple[Service, Service]) -> None:
    """The decision of another replica is in the log."""
    one, other = two
    assert one.ask("POST", "/v1/spaces", CONFIG)[0] == 201
    assert other.ask("GET", "/v1/spaces/news")[0] == 200
    with not_following(other):
        body = {"decision_id": "d", "candidates": ["x"], "context": [1.0, 0.0, 0.0]}
        assert one.ask("POST", "/v1/spaces/news/decisions", body)[0] == 200
        began = time.monotonic()
        for path in ("rewards", "decisions/d/activate"):
            body = {"decision_id": "d", "value": 1.0} if path == "rewards" else {}
            status, said = other.ask("POST", f"/v1/spaces/news/{path}", body, timeout=20)
            assert (status, said["error"]["code"]) == (503, "unavailable"), said
        assert time.monotonic() - began < 15


def test_what_has_ended_is_named_once() -> None:
    """Two replicas may each have logged that a decision was shown."""
    config = wire.SpaceConfig(rewards=wire.RewardRules(wait_seconds=1.0))
    space = Space(1, "s", SpaceState(config))
    body = wire.DecisionBody(candidates=["x"], context=[1.0], decision_id="d", deferred=True)
    request = DecisionRequest.of(body)
    space.propose([request])
    shown = space.encoded(log_rows.Activation("d"))
    rows: list[Raw] = [(1, 10, 1, int(Kind.DECISION), "d", request.logged, 0)]
    rows += [(seq, 20, 1, int(Kind.ACTIVATION), None, shown, 0) for seq in (2, 3)]
    space.take(rows)
    assert space.expiry(1_000_019) is None
    assert space.expiry(1_000_020) == log_rows.Expiry(["d"])
    assert space.expiry(1_000_020) is None
