"""One bad caller never stops the others, and a key gives no more than it says."""

from __future__ import annotations

import asyncio
import gc
import http.client
import json
import socket
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.clocks import Clock
from tests.crashes import Service, asked
from tests.in_process import running
from whim.errors import InvalidInputError
from whim.serve import wire
from whim.serve.http.keys import Keys
from whim.serve.http.limits import Attempts, Rates
from whim.serve.http.problems import ProblemError
from whim.serve.http.routes import Buffers, read
from whim.serve.http.service import Service as LiveService
from whim.serve.http.turns import Turns
from whim.serve.log.rows import Kind
from whim.serve.settings import Settings
from whim.serve.state.engine import Engine
from whim.serve.state.limits import FullError, LimitError, Limits
from whim.serve.state.recovery import rebuild
from whim.serve.state.views import arm_views

SECOND = 1_000_000_000
SMALL = Limits(max_arms=6, max_waiting=5, max_values=40, max_rewards=3)


@pytest.fixture
def clock() -> Clock:
    return Clock(1_700_000_000 * SECOND)


@pytest.fixture
def engine(tmp_path: Path, clock: Clock) -> Iterator[Engine]:
    made = Engine(tmp_path / "data", clock=clock, limits=SMALL)
    yield made
    made.close()


@pytest.fixture
def roomy(tmp_path: Path, clock: Clock) -> Iterator[Engine]:
    made = Engine(tmp_path / "data", clock=clock)
    yield made
    made.close()


def ask(engine: Engine, name: str, candidates: list[Any], context: Any = (), **more: Any) -> Any:
    body = wire.DecisionBody(candidates=candidates, context=list(context), **more)
    return msgspec.json.decode(engine.decide(name, body, b""))


def pay(engine: Engine, name: str, key: str, value: float, reward_id: str | None = None) -> str:
    body = wire.RewardBody(decision_id=key, value=value, reward_id=reward_id)
    return str(engine.reward(name, body))


def config(size: int = 0, **rules: Any) -> wire.SpaceConfig:
    policy = "linucb-disjoint" if size else "ucb"
    return wire.SpaceConfig(
        policy=policy, context=wire.Features(size=size),
        rewards=wire.RewardRules(wait_seconds=5, **rules),
    )  # fmt: skip


def rows_of(engine: Engine, kind: Kind) -> int:
    engine.store.flush()
    return sum(row[3] == kind for block in engine.store.blocks(0) for row in block)


# -- work and memory --------------------------------------------------------------------------


def test_a_repeat_among_many_candidates_is_found_at_once(roomy: Engine) -> None:
    roomy.create("s", config())
    ids: list[Any] = [f"article-{i:06}" for i in range(9_998)]
    began = time.perf_counter()
    for _ in range(5):
        with pytest.raises(InvalidInputError, match=r"\$\.candidates\[9998\] must not repeat"):
            ask(roomy, "s", [*ids, ids[-1]])
    assert time.perf_counter() - began < 1.0  # 28 s for 32 of them, when each was compared with all


def test_a_space_holds_so_many_arms_and_says_so(engine: Engine) -> None:
    engine.create("s", config())
    ask(engine, "s", ["a", "b", "c", "d"])
    before = engine.space("s").state.digest()
    with pytest.raises(LimitError, match=r"at most 6 arms \(max_arms\), got 7"):
        ask(engine, "s", ["a", "e", "f", "g"])
    assert engine.space("s").state.digest() == before  # none of them was added
    ask(engine, "s", ["a", "e", "f"])
    engine.retire_arms("s", ["a", "b"])
    ask(engine, "s", ["g", "h"])


def test_arms_are_listed_in_slices_and_may_retire_meanwhile(roomy: Engine) -> None:
    """20,000 of them held everybody else up for as long as it took."""
    roomy.create("s", config())
    ask(roomy, "s", list(range(100)))
    between = 0

    def slowly() -> Iterator[Any]:
        for view in arm_views(roomy.space("s")):
            time.sleep(0.001)
            yield view

    async def run() -> list[Any]:
        nonlocal between
        listing = asyncio.ensure_future(Turns().collect(slowly()))
        while not listing.done():
            await asyncio.sleep(0)
            between += 1
            if between == 3:
                roomy.retire_arms("s", [99])
        return await listing

    views = asyncio.run(run())
    assert between > 20  # of the 100 ms that it takes, others wait for 3 at a time
    assert {view.arm for view in views} == set(range(99))


@pytest.mark.parametrize("n", [3, 3000], ids=["small", "large"])
def test_refused_decisions_leave_no_work_to_the_collector(tmp_path: Path, n: int) -> None:
    """It freed thousands of them at a time, and everybody waited."""

    async def refused(service: LiveService) -> None:
        for _ in range(30):
            body = wire.DecisionBody(candidates=[*range(n), 0])
            with pytest.raises(InvalidInputError, match="must not repeat"):
                await service.decided("s", body)

    async def run() -> int:
        async with running(Settings(data=str(tmp_path / "data"), demo=False)) as (service, _):
            await service.create("s", config())
            await refused(service)
            gc.collect()
            gc.disable()
            try:
                await refused(service)
                return gc.collect()
            finally:
                gc.enable()

    assert asyncio.run(run()) < 30  # it was several for each


def test_arms_are_also_limited_by_their_memory(tmp_path: Path) -> None:
    engine = Engine(tmp_path / "data", limits=Limits(max_arm_bytes=200_000))
    try:
        engine.create("s", config(size=64))
        each = engine.space("s").state.policy.arm_bytes
        assert each > 64 * 64 * 4
        most = 200_000 // each
        ask(engine, "s", list(range(most)), [0.0] * 64)
        with pytest.raises(LimitError, match=rf"at most {most} arms \(max_arm_bytes\)"):
            ask(engine, "s", [most], [0.0] * 64)
    finally:
        engine.close()


def test_one_decision_brings_so_many_arms(tmp_path: Path) -> None:
    """5,000 arms of 256 features took 1.3 GB and 16 s, in which nobody else was served."""
    engine = Engine(tmp_path / "data", limits=Limits(max_new_arm_bytes=100_000))
    try:
        space = engine.create("s", config(size=64))
        once = 100_000 // space.state.policy.arm_bytes
        with pytest.raises(LimitError, match=rf"at most {once} new arms at a time .*, got 20\."):
            ask(engine, "s", list(range(20)), [0.0] * 64)
        models = space.state.policy._cum
        for at in range(0, 400, once):
            ask(engine, "s", list(range(at, at + once)), [0.0] * 64)
        assert space.state.policy._cum is models  # nothing was moved
    finally:
        engine.close()


def test_memory_for_new_arms_is_got_in_slices(roomy: Engine) -> None:
    space = roomy.create("s", config(size=64))
    bodies = [wire.DecisionBody(candidates=list(range(600)), context=[0.0] * 64)]
    assert space.needs_room(bodies[0])
    before, slices = space.state.digest(), 1
    while not space.make_room(bodies, 0.0):
        slices += 1
    assert slices > 500  # one arm at a time, where there is no time at all
    assert space.state.digest() == before
    assert space.make_room(bodies, 0.0)  # it has it
    context = [0.1 * i for i in range(64)]
    for name in ("s", "other"):  # the same as without
        if name not in roomy:
            roomy.create(name, config(size=64))
        answer = ask(roomy, name, [0, 1, 2], context, decision_id="first")
        pay(roomy, name, "first", 1.0)
        roomy.retire_arms(name, [1])
        ask(roomy, name, [1, *range(3, 600)], context, decision_id="second")
        assert answer["arm"] == 0
    states = [roomy.space(name).state.policy.to_bytes() for name in ("s", "other")]
    assert states[0] == states[1]


def test_one_request_ranks_so_many_values(engine: Engine) -> None:
    engine.create("s", config(size=10))
    ask(engine, "s", ["a", "b", "c", "d"], [0.0] * 10)
    with pytest.raises(LimitError, match=r"at most 40 .*\(max_values\), got 5 times 10"):
        ask(engine, "s", ["a", "b", "c", "d", "e"], [0.0] * 10)


def test_so_many_decisions_wait(engine: Engine, clock: Clock) -> None:
    engine.create("s", config())
    keys = [ask(engine, "s", ["a"])["decision_id"] for _ in range(5)]
    with pytest.raises(FullError, match=r"at most 5 decisions of s may wait .*\(max_waiting\)"):
        ask(engine, "s", ["a"])
    pay(engine, "s", keys[0], 1.0)
    ask(engine, "s", ["a"])
    clock.now += 6 * SECOND
    engine.tick()
    ask(engine, "s", ["a"])


def test_a_sum_has_so_many_rewards(engine: Engine, clock: Clock) -> None:
    engine.create("s", config(combine="sum"))
    key = ask(engine, "s", ["a"])["decision_id"]
    assert [pay(engine, "s", key, 1.0, f"r{i}") for i in range(3)] == ["kept"] * 3
    with pytest.raises(LimitError, match=r"at most 3 rewards to be summed \(max_rewards\)"):
        pay(engine, "s", key, 1.0, "r3")
    assert pay(engine, "s", key, 1.0, "r0") == "duplicate"
    clock.now += 6 * SECOND
    engine.tick()
    assert engine.space("s").state.stats.arms["a"].total == 3.0


def test_bodies_on_their_way_are_bounded_together() -> None:
    buffers = Buffers(1000)

    def sender(*parts: bytes) -> Any:
        left = list(parts)

        async def receive() -> dict[str, Any]:
            await asyncio.sleep(0)
            part = left.pop(0)
            return {"type": "http.request", "body": part, "more_body": bool(left)}

        return receive

    async def two() -> list[Any]:
        parts = [b"x" * 200] * 4
        both = (read({}, sender(*parts), 10_000, buffers) for _ in range(2))
        return await asyncio.gather(*both, return_exceptions=True)

    first, second = asyncio.run(two())
    refused = first if isinstance(first, ProblemError) else second
    assert (refused.status, refused.problem.code) == (503, "busy")
    assert "at most 1000 bytes" in str(refused)
    assert len(asyncio.run(read({}, sender(b"x" * 500, b"x" * 500), 10_000, buffers))) == 1000


def test_slices_of_long_work_leave_turns_to_others() -> None:
    async def counted() -> tuple[int, int]:
        turns, ticks = Turns(), 0

        async def others() -> None:
            nonlocal ticks
            while True:
                ticks += 1
                await asyncio.sleep(0)

        async def large() -> None:
            for _ in range(50):
                await turns.run(lambda: seen.append(ticks))

        seen: list[int] = []
        other = asyncio.ensure_future(others())
        await asyncio.gather(large(), large(), large())
        other.cancel()
        return len(seen), len(set(seen))

    assert asyncio.run(counted()) == (150, 150)  # never two of them in one turn


# -- rewards ----------------------------------------------------------------------------------


def test_a_reward_outside_of_the_range_is_refused_and_counted(roomy: Engine) -> None:
    roomy.create("s", config(range=wire.RewardRange(least=0, most=1)))
    key = ask(roomy, "s", ["a"])["decision_id"]
    for value in (1e10, -0.5, 1.0001):
        with pytest.raises(InvalidInputError, match=r"\$\.value must be from 0 to 1, got"):
            pay(roomy, "s", key, value)
    assert roomy.space("s").guard.counts["refused"] == 3
    assert pay(roomy, "s", key, 1.0) == "learnt"
    assert roomy.space("s").state.stats.arms["a"].mean() == 1.0


def test_a_reward_outside_of_the_range_is_clipped_and_counted(roomy: Engine, clock: Clock) -> None:
    rules = {"range": wire.RewardRange(least=-1, most=2, outside="clip")}
    roomy.create("s", config(**rules))
    roomy.create("sums", config(combine="sum", **rules))
    assert pay(roomy, "s", ask(roomy, "s", ["a"])["decision_id"], 1e10) == "learnt"
    assert roomy.space("s").state.stats.arms["a"].mean() == 2.0
    key = ask(roomy, "sums", ["a"])["decision_id"]
    for value in (1e10, -1e10, 1.5):
        assert pay(roomy, "sums", key, value) == "kept"
    clock.now += 6 * SECOND
    roomy.tick()
    assert roomy.space("sums").state.stats.arms["a"].mean() == 2.5
    assert roomy.space("sums").guard.counts == {"refused": 0, "clipped": 2, "not_logged": 0}


@pytest.mark.parametrize(
    ("least", "most", "default", "said"),
    [(1, 1, 1, r"\$\.rewards\.range\.least must be below most, got 1 and 1"),
     (0, 1, -1, r"\$\.rewards\.default must be in the range from 0 to 1, got -1")],
)  # fmt: skip
def test_a_range_must_make_sense(
    roomy: Engine, least: float, most: float, default: float, said: str
) -> None:
    with pytest.raises(InvalidInputError, match=said):
        roomy.create("s", config(range=wire.RewardRange(least=least, most=most), default=default))


def test_a_configuration_without_a_range_is_stored_as_it_always_was() -> None:
    rules = wire.RewardRules()
    assert "range" not in msgspec.to_builtins(rules)
    ranged = wire.RewardRules(range=wire.RewardRange(least=0, most=1))
    again = msgspec.msgpack.decode(msgspec.msgpack.encode(ranged), type=wire.RewardRules)
    assert again == ranged


def test_late_rewards_of_one_decision_do_not_fill_the_log(roomy: Engine) -> None:
    roomy.create("s", config())
    key, other = (ask(roomy, "s", ["a"])["decision_id"] for _ in range(2))
    pay(roomy, "s", key, 1.0)
    roomy.store.flush()
    assert {pay(roomy, "s", key, 0.5) for _ in range(300)} == {"late"}
    assert rows_of(roomy, Kind.REWARD) < 10
    assert roomy.space("s").guard.counts["not_logged"] > 290
    pay(roomy, "s", other, 1.0)
    roomy.store.flush()
    assert pay(roomy, "s", other, 1.0) == "late"  # another's are logged
    roomy.store.flush()
    number, row = roomy.in_force("s")
    state, _ = rebuild(roomy.store, number, row)
    assert state.digest() == roomy.space("s").state.digest()


def test_repeated_duplicates_do_not_fill_the_log(roomy: Engine) -> None:
    roomy.create("s", config(combine="sum"))
    key = ask(roomy, "s", ["a"])["decision_id"]
    states = [pay(roomy, "s", key, 1.0, "once") for _ in range(300)]
    assert states == ["kept"] + ["duplicate"] * 299
    assert rows_of(roomy, Kind.REWARD) < 10


# -- rates and keys ---------------------------------------------------------------------------


def test_a_batch_costs_as_many_tokens_as_it_has_entries() -> None:
    clock = Clock(100.0)
    rates = Rates(10.0, 20, clock)
    assert rates.take("a") == 0.0
    rates.charge("a", 99)
    assert rates.take("a") == pytest.approx(8.1)  # 100 taken, of 20, at 10 a second
    assert rates.wait("a") == pytest.approx(8.1)
    assert rates.take("b") == 0.0
    clock.now += 8.2
    assert rates.take("a") == 0.0


def test_too_many_wrong_keys_must_wait_and_known_callers_need_not() -> None:
    clock = Clock(100.0)
    attempts = Attempts(3, clock)
    assert attempts.right("here", "shop") == 0.0
    assert [attempts.wrong("here") > 0 for _ in range(5)] == [False, False, False, True, True]
    assert attempts.right("here", "guessed") > 0  # else the right one of many guesses would pass
    assert attempts.right("here", "shop") == 0.0
    assert attempts.right("there", "guessed") == 0.0
    clock.now += 60
    assert attempts.right("here", "guessed") == 0.0


def test_a_key_ends(tmp_path: Path) -> None:
    wall = Clock(0.0)
    keys = Keys(tmp_path / "keys.json", wall=wall)
    token = keys.make("day", ["read"], until="2999-01-31")
    exact = keys.make("time", ["read"], until="2999-01-31T12:00:00+02:00")
    assert keys.list()[1].until == "2999-01-31T10:00:00Z"
    wall.now = datetime(2999, 1, 31, 10, tzinfo=UTC).timestamp()
    assert keys.check(token) is not None
    assert keys.check(exact) is not None
    wall.now += 1
    assert keys.check(exact) is None
    wall.now = datetime(2999, 2, 1, tzinfo=UTC).timestamp()
    assert keys.check(token) is None


@pytest.mark.parametrize("until", ["soon", "2020-01-01", "2999-13-01"])
def test_an_end_must_be_a_day_to_come(tmp_path: Path, until: str) -> None:
    with pytest.raises(InvalidInputError, match=r"until must be .*, got"):
        Keys(tmp_path / "keys.json").make("k", ["read"], until=until)


def test_keys_without_limits_are_stored_as_they_always_were(tmp_path: Path) -> None:
    keys = Keys(tmp_path / "keys.json")
    keys.make("plain", ["read"])
    keys.make("limited", ["read"], spaces=["news", "news"])
    stored = json.loads((tmp_path / "keys.json").read_text())["keys"]
    assert set(stored[0]) == {"name", "scopes", "made", "revoked", "sha256"}
    assert stored[1]["spaces"] == ["news"]
    assert keys.list()[1].spaces == ["news"]
    with pytest.raises(InvalidInputError, match="spaces must be 1 to 64 letters"):
        keys.make("other", ["read"], spaces=["no such name"])


# -- a service with limits and keys -----------------------------------------------------------

SETTINGS = """
rate = 50
burst = 100
wrong_keys = 20
max_header_bytes = 4096
max_connections = 24
header_seconds = 1
body_seconds = 1
idle_seconds = 2
"""
NEWS = {"name": "news", "policy": "ucb", "context": {"size": 0}}
KEYS: dict[str, dict[str, Any]] = {
    "admin": {"scopes": ["admin"]},
    "decide": {"scopes": ["decide"]},
    "reward": {"scopes": ["reward"]},
    "batch": {"scopes": ["reward"]},
    "spaces": {"scopes": ["admin"], "spaces": ["news", "mine"]},
    "unused": {"scopes": ["read"]},
}


class Locked(Service):
    """A service whose every caller has a key of its own."""

    tokens: dict[str, str]

    def as_(self, name: str, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        return self.ask(method, path, body, x_api_key=self.tokens[name])


@pytest.fixture(scope="module")
def locked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Locked]:
    folder = tmp_path_factory.mktemp("callers")
    (folder / "whim.toml").write_text(SETTINGS)
    (folder / "data").mkdir()
    keys = Keys(folder / "data" / "keys.json")
    tokens = {name: keys.make(name, **given) for name, given in KEYS.items()}
    with Locked(folder / "data", "--config", str(folder / "whim.toml")) as made:
        made.tokens = tokens
        made.wait(120)
        for name in ("news", "other"):
            assert made.as_("admin", "POST", "/v1/spaces", {**NEWS, "name": name})[0] == 201
        yield made


def raw(service: Service, data: bytes, seconds: float = 10) -> tuple[bytes, float]:
    """What comes back until the service closes, and after how long it does."""
    with socket.create_connection(("127.0.0.1", service.port), seconds) as link:
        began = time.monotonic()
        link.sendall(data)
        reply = b""
        while more := link.recv(65536):
            reply += more
        return reply, time.monotonic() - began


def test_a_large_batch_does_not_stop_the_others(locked: Locked) -> None:
    """It froze everything for 28 s."""
    ids = [f"a{i:04}" for i in range(9_000)]
    repeat = {"candidates": [*ids, ids[-1]]}
    body = json.dumps({"decisions": [repeat] * 25}).encode()
    told: list[tuple[int, Any]] = []

    def attack() -> None:
        told.append(locked.as_("decide", "POST", "/v1/spaces/news/decisions/batch", body))

    attacker = threading.Thread(target=attack)
    attacker.start()
    slowest = 0.0
    while attacker.is_alive():
        began = time.monotonic()
        assert locked.ask("GET", "/healthz")[0] == 200
        slowest = max(slowest, time.monotonic() - began)
    attacker.join()
    status, answer = told[0]
    assert status == 200
    assert {a["error"]["path"] for a in answer["answers"]} <= {
        f"$.decisions[{i}].candidates[9000]" for i in range(25)
    }
    assert slowest < 1.0  # 100 ms on a machine that does nothing else: tests/slow/attacks.py


@pytest.mark.parametrize(
    ("data", "said"),
    [(b"POST /v1/spaces HTTP/1.1\r\nhost: localhost\r\nx-a", b"headers must be sent within 1 s"),
     (b"", b"headers must be sent within 1 s"),
     (b"POST /v1/spaces/news/rewards HTTP/1.1\r\nhost: localhost\r\nx-api-key: KEY\r\n"
      b"content-length: 100\r\n\r\n{", b"body must be sent within 1 s")],
    ids=["half of the headers", "nothing", "half of the body"],
)  # fmt: skip
def test_half_a_request_is_closed_with_a_reason(locked: Locked, data: bytes, said: bytes) -> None:
    reply, seconds = raw(locked, data.replace(b"KEY", locked.tokens["reward"].encode()))
    assert reply.startswith(b"HTTP/1.1 408 ")
    assert said in reply
    assert json.loads(reply.partition(b"\r\n\r\n")[2])["error"]["code"] == "timeout"
    assert 0.9 < seconds < 5


def test_a_drip_of_headers_does_not_extend_the_time(locked: Locked) -> None:
    with socket.create_connection(("127.0.0.1", locked.port), 10) as link:
        began = time.monotonic()
        link.sendall(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n")
        with pytest.raises(ConnectionError):  # noqa: PT012
            while time.monotonic() - began < 8:
                link.sendall(b"x-a: b\r\n")
                time.sleep(0.2)
        assert time.monotonic() - began < 6


def test_an_idle_connection_is_closed(locked: Locked) -> None:
    reply, seconds = raw(locked, b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n")
    assert reply.startswith(b"HTTP/1.1 200 ")
    assert 1.5 < seconds < 6


@pytest.mark.parametrize("whole", [False, True])
def test_headers_have_an_end(locked: Locked, whole: bool) -> None:
    """60 MB of them were read before any key was checked."""
    line = b"x-" + b"a" * 60 + b": " + b"b" * 60 + b"\r\n"
    data = b"GET /v1/spaces HTTP/1.1\r\nhost: localhost\r\n" + line * 40 + b"\r\n" * whole
    reply, seconds = raw(locked, data)
    assert reply.startswith(b"HTTP/1.1 431 ")
    assert b"at most 4096 bytes" in reply
    assert seconds < 0.9


def test_idle_connections_shut_nobody_out(locked: Locked) -> None:
    """400 of them did, at 200 file descriptors."""
    idle = [socket.create_connection(("127.0.0.1", locked.port)) for _ in range(60)]
    try:
        assert locked.ask("GET", "/healthz")[0] == 200
        assert locked.as_("admin", "GET", "/v1/spaces")[0] == 200
        scraped = str(locked.as_("admin", "GET", "/metrics")[1], "utf-8")
        held = [line for line in scraped.splitlines() if line.startswith("whim_connections ")]
        assert float(held[0].split()[1]) <= 24
    finally:
        for one in idle:
            one.close()


def test_many_requests_in_one_go_are_cut_off(locked: Locked) -> None:
    one = b"GET /v1/spaces HTTP/1.1\r\nhost: localhost\r\n\r\n"
    with socket.create_connection(("127.0.0.1", locked.port), 10) as link:
        link.sendall(one * 1000)
        with pytest.raises(ConnectionError):  # noqa: PT012
            while link.recv(65536):
                pass
            raise ConnectionError  # or closed without a reset


def test_a_stream_ends_with_its_caller_whatever_waits_behind_it(locked: Locked) -> None:
    """A second request on the same connection made it keep its place for ever."""
    token = locked.tokens["admin"].encode()
    head = b" HTTP/1.1\r\nhost: localhost\r\nx-api-key: " + token + b"\r\n"
    stream = b"GET /v1/spaces/news/changes/stream" + head + b"\r\n"
    post = b"POST /v1/spaces" + head + b"content-length: 9\r\n\r\n"  # whose body never comes

    def listen() -> tuple[socket.socket, bytes]:
        link = socket.create_connection(("127.0.0.1", locked.port), 10)
        link.sendall(stream)
        return link, link.recv(65536)

    listening = [listen() for _ in range(12)]  # half of the connections
    assert all(reply.startswith(b"HTTP/1.1 200 ") for _, reply in listening)
    link, reply = listen()
    link.close()
    assert reply.startswith(b"HTTP/1.1 429 ")
    for i, (link, _) in enumerate(listening):
        link.sendall(post if i else stream)
        link.close()
    until = time.monotonic() + 10
    while not reply.startswith(b"HTTP/1.1 200 "):
        assert time.monotonic() < until
        link, reply = listen()
        link.close()


def test_what_is_not_http_gets_the_one_shape_of_errors(locked: Locked) -> None:
    reply, _ = raw(locked, b"\x16\x03\x01 what\r\n\r\n")
    assert reply.startswith(b"HTTP/1.1 400 ")
    assert json.loads(reply.partition(b"\r\n\r\n")[2])["error"]["code"] == "not_http"


def test_health_is_outside_of_the_rate_and_a_batch_is_not(locked: Locked) -> None:
    rewards = [{"decision_id": f"nobody-{i}", "value": 1} for i in range(1000)]
    path = "/v1/spaces/news/rewards/batch"
    assert locked.as_("batch", "POST", path, {"rewards": rewards})[0] == 200
    link = http.client.HTTPConnection("127.0.0.1", locked.port, timeout=30)
    link.request("POST", path, b"{}", {"x-api-key": locked.tokens["batch"]})
    reply = link.getresponse()
    assert reply.status == 429
    assert json.loads(reply.read())["error"]["code"] == "rate"
    assert 10 <= int(reply.headers["retry-after"]) <= 20  # 1000 tokens, of 100, at 50 a second
    for path in ("/healthz", "/readyz"):
        assert {asked(link, "GET", path)[0] for _ in range(150)} == {200}
    link.close()


def test_reward_may_reward_and_nothing_else(locked: Locked) -> None:
    """It could make the retired Personalizer space again, and activate."""
    events = "/personalizer/v1.0/events/e1"
    assert locked.as_("reward", "POST", f"{events}/activate")[0] == 403
    assert locked.as_("reward", "POST", f"{events}/reward", {"value": 1})[0] == 404
    names = [s["name"] for s in locked.as_("admin", "GET", "/v1/spaces")[1]["spaces"]]
    assert "personalizer" not in names  # a reward has not made it
    action = {"id": "a", "features": [{"taste": "salty"}]}
    ranked = {"actions": [action], "eventId": "e1", "deferActivation": True}
    assert locked.as_("decide", "POST", "/personalizer/v1.0/rank", ranked)[0] == 201
    assert locked.as_("decide", "POST", f"{events}/activate")[0] == 204
    assert locked.as_("reward", "POST", f"{events}/reward", {"value": 1})[0] == 204
    assert locked.as_("admin", "DELETE", "/v1/spaces/personalizer")[0] == 204
    for name, path, body in (
        ("reward", f"{events}/reward", {"value": 1}),
        ("decide", f"{events}/activate", None),
        ("decide", "/personalizer/v1.0/rank", ranked),
    ):
        assert locked.as_(name, "POST", path, body)[0] == 404
    names = [s["name"] for s in locked.as_("admin", "GET", "/v1/spaces")[1]["spaces"]]
    assert "personalizer" not in names


def test_a_key_may_be_for_some_spaces_only(locked: Locked) -> None:
    decision = {"candidates": ["a"]}
    assert locked.as_("spaces", "POST", "/v1/spaces/news/decisions", decision)[0] == 200
    status, told = locked.as_("spaces", "POST", "/v1/spaces/other/decisions", decision)
    assert (status, told["error"]["code"]) == (403, "space")
    assert locked.as_("spaces", "GET", "/v1/spaces/other/stats")[0] == 403
    assert locked.as_("spaces", "GET", "/metrics")[0] == 403
    listed = locked.as_("spaces", "GET", "/v1/spaces")[1]["spaces"]
    assert [s["name"] for s in listed] == ["news"]
    for name, status in (("mine", 201), ("yours", 403)):
        assert locked.as_("spaces", "POST", "/v1/spaces", {**NEWS, "name": name})[0] == status
    ranked = {"actions": [{"id": "a"}]}
    assert locked.as_("spaces", "POST", "/personalizer/v1.0/rank", ranked)[0] == 403
    assert locked.as_("spaces", "GET", "/spaces/news")[0] == 200  # pages, too
    assert locked.as_("spaces", "GET", "/spaces/other")[0] == 403
    cards = locked.as_("spaces", "GET", "/page/spaces")[1].decode()
    assert "/spaces/news" in cards
    assert "/spaces/other" not in cards


def test_wrong_keys_are_limited(locked: Locked) -> None:
    source = ("127.0.0.2", 0)
    link = http.client.HTTPConnection("127.0.0.1", locked.port, 30, source_address=source)
    path = "/v1/spaces/news/stats"
    assert asked(link, "GET", path, x_api_key=locked.tokens["admin"])[0] == 200
    states = [asked(link, "GET", path, x_api_key=f"whim_{i}")[0] for i in range(40)]
    assert states[:20] == [401] * 20
    assert states[-10:] == [429] * 10
    assert asked(link, "GET", path, x_api_key=locked.tokens["unused"])[0] == 429
    assert asked(link, "GET", path, x_api_key=locked.tokens["admin"])[0] == 200
    link.close()
    assert locked.as_("unused", "GET", path)[0] == 200  # from another address


def test_what_was_opened_with_a_key_ends_with_its_time_and_its_spaces(tmp_path: Path) -> None:
    """A stream asks again now and then whether its key would still be let in."""
    now = 1_800_000_000.0  # in January 2027
    keys = Keys(tmp_path / "keys.json", wall=lambda: now)
    key = keys.check(keys.make("one", ["read"], spaces=["s"], until="2027-12-31"))
    assert key is not None
    assert keys.still_allows(key, "read", "s")
    assert not keys.still_allows(key, "decide", "s")
    assert not keys.still_allows(key, "read", "other")
    now += 366 * 86_400
    assert not keys.still_allows(key, "read", "s")
