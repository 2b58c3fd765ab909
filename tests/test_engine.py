"""The log is the truth: whatever happened live, the fold of the rows says the same bits."""

import random
import resource
import signal
import sqlite3
import subprocess
import sys
import textwrap
import uuid
from unittest import mock

import msgspec
import numpy as np
import pytest

from tests.clocks import Clock
from tests.oracles.rewards import fates
from whim.errors import InvalidInputError
from whim.serve import wire
from whim.serve.log.reader import StoreError
from whim.serve.log.rows import DECODERS, Kind
from whim.serve.log.store import pack_changes
from whim.serve.state.drawing import draws, probability
from whim.serve.state.engine import Engine
from whim.serve.state.recovery import BusyError, Rebuilt, rebuild
from whim.serve.state.space import ConflictError, NotFoundError
from whim.serve.state.space_state import SpaceState

SECOND = 1_000_000_000
ANSWER = msgspec.json.Decoder(wire.Answer)
RULES = wire.RewardRules(wait_seconds=5)
CONFIGS = {
    "score test": wire.SpaceConfig(
        context=wire.Features(size=3, constant=True), rewards=RULES, explore=0.1, holdback=0.2
    ),
    "paper's test": wire.SpaceConfig(
        params={"window": 10, "threshold": 0.2}, context=wire.Features(size=3), rewards=RULES
    ),
    "draws": wire.SpaceConfig(
        policy="lints",
        context=wire.Features(size=2),
        rewards=wire.RewardRules(wait_seconds=3, combine="sum", default=-0.5),
    ),
    "hybrid": wire.SpaceConfig(
        policy="pslinucb-hybrid", context=wire.Features(size=2), items=wire.Features(size=2)
    ),
    "no context": wire.SpaceConfig(policy="ucb", context=wire.Features(), baseline="random"),
    "shadow": wire.SpaceConfig(context=wire.Features(size=1), shadow=True, rewards=RULES),
}


@pytest.fixture
def clock():
    return Clock(1_700_000_000 * SECOND)


@pytest.fixture
def engine(tmp_path, clock):
    made = Engine(tmp_path / "data", clock=clock)
    yield made
    made.close()


def ask(engine, name, candidates=("a", "b", "c"), context=None, **more):
    size = engine.space(name).config.context.size
    body = wire.DecisionBody(
        candidates=list(candidates), context=[0.5] * size if context is None else context, **more
    )
    return ANSWER.decode(engine.decide(name, body, repr(body).encode(errors="replace")))


def reward(engine, name, key, value=1.0, **more):
    return engine.reward(name, wire.RewardBody(decision_id=key, value=value, **more))


def traffic(engine, clock, name, steps, seed):
    """Decisions, rewards early and late, activations, ends of waiting, arms that go."""
    ids = random.Random(seed)  # what is drawn follows from them
    with mock.patch("uuid.uuid4", side_effect=lambda: uuid.UUID(int=ids.getrandbits(128))):
        return _traffic(engine, clock, name, steps, seed)


def _traffic(engine, clock, name, steps, seed):
    rng, dice = np.random.default_rng(seed), random.Random(seed)
    config = engine.space(name).config
    made = []
    for t in range(steps):
        clock.now += int(0.2 * SECOND)
        arms = dice.sample(range(12), 5)
        candidates = [
            wire.Candidate(f"i{a}", rng.normal(size=2).tolist() if config.items.size else None)
            for a in arms
        ]
        if t % 2 and not config.items.size:
            candidates = [c.id for c in candidates]
        key = f"{seed}-{t}" if dice.random() < 0.5 else None
        found = ask(
            engine, name, candidates, rng.normal(size=config.context.size).tolist(),
            decision_id=key, deferred=dice.random() < 0.1,
        )  # fmt: skip
        made.append(found.decision_id)
        engine.store.flush()
        if dice.random() < 0.8:
            value = float(dice.random() < (0.3 if t < steps // 2 else 0.8))
            reward(engine, name, dice.choice(made[-40:]), value)
        if dice.random() < 0.1:
            engine.activate(name, made[-1])
        if dice.random() < 0.3:
            engine.tick()
        if t == steps // 2:
            engine.retire_arms(name, [engine.space(name).state.policy.arms[0]])
    engine.store.flush()


def rebuilt(engine, name):
    """What ``swap`` takes, built here instead of by a worker."""
    number, wanted = engine.wanted(name)
    state, changes = rebuild(engine.store, number, wanted)
    return Rebuilt(number, state, pack_changes(number, wanted.version, changes))


def folded(engine, name):
    """The space from the whole log, by rows alone."""
    space = engine.space(name)
    held = SpaceState(space.config, space.state.version)
    for row in engine.store.rows(space=space.number):
        held.apply(row)
    return held


@pytest.mark.parametrize("kind", CONFIGS)
def test_the_fold_of_the_log_is_the_live_state_bit_for_bit(engine, clock, kind):
    engine.create("s", CONFIGS[kind])
    traffic(engine, clock, "s", 150, seed=1)
    assert folded(engine, "s").digest() == engine.space("s").state.digest()
    assert engine.space("s").state.policy.step > 50


@pytest.mark.parametrize("kind", CONFIGS)
def test_a_restart_goes_on_from_a_snapshot_and_the_rest(tmp_path, clock, kind):
    data = tmp_path / "data"
    engine = Engine(data, clock=clock)
    engine.create("s", CONFIGS[kind])
    traffic(engine, clock, "s", 60, seed=2)
    assert engine.snapshot("s") > 0
    traffic(engine, clock, "s", 40, seed=3)
    live = engine.space("s").state.digest()
    engine.close()
    again = Engine(data, clock=clock)
    assert 0 < again.recovered < again.store.last_seq
    assert again.space("s").state.digest() == live
    traffic(again, clock, "s", 20, seed=4)
    assert folded(again, "s").digest() == again.space("s").state.digest()
    again.close()


def test_a_snapshot_writes_only_pages_that_changed(engine):
    config = wire.SpaceConfig(policy="linucb-disjoint", context=wire.Features(size=30))
    engine.create("s", config)
    for first in range(0, 2000, 500):  # 8 MB of models
        ask(engine, "s", [f"i{a}" for a in range(first, first + 500)])
    engine.store.flush()
    whole = engine.snapshot("s")
    found = ask(engine, "s", ["i7"])
    engine.store.flush()
    reward(engine, "s", found.decision_id)
    engine.store.flush()
    assert whole > 400
    assert engine.snapshot("s") < 20


def test_damaged_snapshots_are_not_used(tmp_path, clock):
    data = tmp_path / "data"
    engine = Engine(data, clock=clock)
    engine.create("s", CONFIGS["score test"])
    traffic(engine, clock, "s", 40, seed=5)
    engine.snapshot("s")
    live = engine.space("s").state.digest()
    engine.close()
    with sqlite3.connect(data / "snapshots.db") as connection:
        connection.execute("UPDATE page SET data = zeroblob(length(data)) WHERE part LIKE 'array%'")
    again = Engine(data, clock=clock)
    assert again.recovered == again.store.last_seq  # all of it anew
    assert again.space("s").state.digest() == live
    again.close()
    (data / "snapshots.db").write_bytes(b"not a database at all, and cut sh")
    again = Engine(data, clock=clock)
    assert again.space("s").state.digest() == live
    again.close()


def test_other_parameters_lose_no_learning_and_the_old_ones_serve_meanwhile(tmp_path, clock):
    data = tmp_path / "data"
    engine = Engine(data, clock=clock)
    config = CONFIGS["score test"]
    engine.create("s", config)
    traffic(engine, clock, "s", 80, seed=6)
    steps = engine.space("s").state.policy.step
    other = msgspec.structs.replace(config, params={"alpha": 0.3})
    assert engine.change("s", other) == 2
    new = rebuilt(engine, "s")
    assert ask(engine, "s").version == 1
    engine.swap("s", new)
    assert ask(engine, "s").version == 2
    engine.store.flush()
    now = engine.space("s").state
    assert now.policy.params["alpha"] == 0.3
    assert now.policy.step == steps
    assert folded(engine, "s").digest() == now.digest()
    live = now.digest()
    engine.close()
    again = Engine(data, clock=clock)
    assert again.space("s").state.digest() == live
    again.close()


def test_a_change_that_was_cut_short_is_still_wanted_after_a_restart(tmp_path, clock):
    data = tmp_path / "data"
    engine = Engine(data, clock=clock)
    engine.create("s", CONFIGS["score test"])
    engine.change("s", msgspec.structs.replace(CONFIGS["score test"], params={"alpha": 0.3}))
    engine.close()
    again = Engine(data, clock=clock)
    assert again.info("s").rebuilding
    assert again.info("s").version == 1
    again.swap("s", rebuilt(again, "s"))
    assert again.info("s").version == 2
    again.close()


def test_a_newer_change_takes_the_place_of_one_that_is_not_built(engine, clock):
    config = CONFIGS["score test"]
    engine.create("s", config)
    traffic(engine, clock, "s", 20, seed=9)
    engine.change("s", msgspec.structs.replace(config, params={"alpha": 0.3}))
    first = rebuilt(engine, "s")
    engine.rebuild_failed("s", 2, "no room")
    info = engine.info("s")
    assert (info.wanted, info.rebuilding, info.failed) == (2, False, "no room")
    assert engine.change("s", msgspec.structs.replace(config, params={"alpha": 0.4})) == 3
    info = engine.info("s")
    assert (info.version, info.wanted, info.rebuilding, info.failed) == (1, 3, True, None)
    with pytest.raises(BusyError):
        engine.swap("s", first)
    engine.swap("s", rebuilt(engine, "s"))
    assert engine.space("s").state.policy.params["alpha"] == 0.4
    engine.store.flush()
    assert folded(engine, "s").digest() == engine.space("s").state.digest()


def test_a_space_made_anew_under_a_name_is_not_the_one_that_was_rebuilt(engine, clock):
    config = CONFIGS["score test"]
    other = msgspec.structs.replace(config, params={"alpha": 0.3})
    engine.create("s", config)
    engine.change("s", other)
    engine.store.flush()
    old = rebuilt(engine, "s")
    engine.retire("s")
    engine.create("s", config)
    engine.change("s", other)
    with pytest.raises(BusyError):
        engine.swap("s", old)
    assert engine.info("s").version == 1


def test_the_same_decision_twice_is_one_and_another_body_is_refused(engine):
    engine.create("s", CONFIGS["score test"])
    first = ask(engine, "s", decision_id="d")
    assert ask(engine, "s", decision_id="d") == first  # before its row is committed
    engine.store.flush()
    assert ask(engine, "s", decision_id="d") == first  # and after
    with pytest.raises(ConflictError, match=r"\$\.decision_id"):
        ask(engine, "s", candidates=["a"], decision_id="d")
    engine.store.flush()
    assert engine.store.last_seq == 0  # of when it was opened
    assert [row.kind for row in engine.store.rows()] == [Kind.CONFIG, Kind.DECISION]


def test_rewards_are_learnt_once_and_in_time(engine, clock):
    engine.create("s", CONFIGS["score test"])
    policy = engine.space("s").state.policy
    a, b, c = (ask(engine, "s").decision_id for _ in range(3))
    engine.store.flush()
    assert reward(engine, "s", a) == "learnt"
    assert reward(engine, "s", a) == "late"  # it is closed
    assert policy.step == 1
    clock.now += 6 * SECOND
    assert reward(engine, "s", b) == "late"
    assert engine.tick() is None
    assert policy.step == 3  # b and c with the default
    assert reward(engine, "s", c) == "late"
    with pytest.raises(NotFoundError, match="nobody"):
        reward(engine, "s", "nobody")
    counts = engine.space("s").state.stats.counts
    assert (counts["closed"], counts["matched"], counts["rewards_late"]) == (3, 1, 3)


def test_sums_are_learnt_when_the_time_is_over(engine, clock):
    engine.create("s", CONFIGS["draws"])
    key = ask(engine, "s", context=[1.0, 0.0]).decision_id
    engine.store.flush()
    assert reward(engine, "s", key, 0.25, reward_id="r1") == "kept"
    assert reward(engine, "s", key, 0.25, reward_id="r1") == "duplicate"
    assert reward(engine, "s", key, 0.5, reward_id="r2") == "kept"
    waiting = engine.space("s").state.pending[key]
    assert waiting.total == 0.75
    clock.now += 4 * SECOND
    engine.tick()
    held = engine.space("s").state
    assert held.stats.bins[waiting.at // held.stats.width].total == 0.75


def test_a_sum_beyond_all_bounds_is_learnt_as_the_bound(engine, clock):
    engine.create("s", CONFIGS["draws"])
    key = ask(engine, "s", context=[1.0, 0.0]).decision_id
    other = ask(engine, "s", context=[1.0, 0.0]).decision_id
    engine.store.flush()
    for _ in range(3):
        reward(engine, "s", key, 1e10)
    clock.now += 4 * SECOND
    engine.tick()
    engine.store.flush()
    assert not {key, other} & engine.space("s").state.pending.keys()
    assert folded(engine, "s").digest() == engine.space("s").state.digest()


def test_what_cannot_be_logged_changes_nothing(engine):
    engine.create("s", wire.SpaceConfig(context=wire.Features(rest=1)))
    before = engine.space("s").state.digest()
    for candidates, context in (
        ([10**30], {}),
        ([wire.Candidate("a", {"size": 1})], {"big": 10**30}),
        (["a"], {"one": [9e9, 9e9]}),
        (["\ud800"], {}),
    ):
        with pytest.raises(InvalidInputError):
            ask(engine, "s", candidates, context)
    with pytest.raises(InvalidInputError):
        ask(engine, "s", ["a"], {}, decision_id="\ud800")
    assert engine.space("s").state.digest() == before
    ask(engine, "s", [wire.Candidate("a", {"ignored": 10**30})], {})
    engine.store.flush()


def test_what_was_deferred_is_learnt_only_if_it_was_shown(engine, clock):
    engine.create("s", CONFIGS["score test"])
    shown = ask(engine, "s", deferred=True).decision_id
    never = ask(engine, "s", deferred=True).decision_id
    clock.now += 3 * SECOND
    assert engine.activate("s", shown)
    assert not engine.activate("s", shown)
    clock.now += 4 * SECOND
    engine.tick()  # the waiting of the first began when it was shown
    assert list(engine.space("s").state.pending) == [shown]
    engine.store.flush()
    assert reward(engine, "s", shown) == "learnt"
    assert reward(engine, "s", never) == "late"
    assert engine.space("s").state.policy.step == 1


def test_waiting_goes_on_across_a_restart(tmp_path, clock):
    data = tmp_path / "data"
    engine = Engine(data, clock=clock)
    engine.create("s", CONFIGS["score test"])
    ask(engine, "s")
    engine.close()
    clock.now += 10 * SECOND
    again = Engine(data, clock=clock)
    again.tick()
    assert again.space("s").state.policy.step == 1
    again.close()


def test_a_clock_that_jumps_back_does_not_take_rows_with_it(engine, clock):
    engine.create("s", CONFIGS["score test"])
    ask(engine, "s")
    clock.now -= 3600 * SECOND
    ask(engine, "s")
    engine.store.flush()
    times = [row.at for row in engine.store.rows()]
    assert times == sorted(times)


def test_probabilities_are_those_with_which_arms_are_shown():
    config = wire.SpaceConfig(explore=0.3, holdback=0.2, baseline="random", seed=4)
    from whim.serve.state.space import Space

    space = Space(1, "s", SpaceState(config))
    shown = np.zeros(4)
    stated = np.zeros(4)
    n = 20_000
    for i in range(n):
        place, _ = space._draw(f"d{i}", 2, 4)
        shown[place] += 1 / n
        stated[place] = probability(config, place, 2, 4)
    assert stated.sum() == pytest.approx(1.0)
    np.testing.assert_allclose(shown, stated, atol=4 * np.sqrt(0.25 / n))


def test_draws_belong_to_the_decision_alone():
    assert draws(0, "a") == draws(0, "a") != draws(1, "a")
    numbers = np.array([draws(0, str(i)) for i in range(5000)])
    np.testing.assert_allclose(numbers.mean(axis=0), 0.5, atol=0.02)
    assert abs(np.corrcoef(numbers.T) - np.eye(3)).max() < 0.06


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"policy": "magic"}, r"\$\.policy must be one of"),
        ({"policy": "oracle-restart"}, r"\$\.policy must be one of"),
        ({"params": {"alpha": -1}}, "alpha must be"),
        ({"params": {"n_features": 7}}, r"\$\.params\.n_features must be left out or 1"),
        ({"params": {"speed": 7}}, "must fit"),
        ({"items": wire.Features(size=2)}, r"\$\.items must be empty"),
        ({"policy": "linucb-hybrid"}, "n_item_features|items"),
        ({"policy": "AdaptiveLinUCB"}, r"got 'AdaptiveLinUCB'; did you mean adaptive-linucb\?"),
        ({"policy": "pslinucb"}, r"did you mean pslinucb-disjoint\?"),
        ({"policy": "pslinucb-hybrid"}, r"\$\.items must describe the features that pslinucb-h"),
        ({"policy": "lints", "params": {"payoff": "cross"}}, r"\$\.items must describe"),
        ({"context": wire.Features()}, r"\$\.context must describe the features that pslinucb-d"),
    ],
)
def test_spaces_that_cannot_be_built_are_refused(engine, config, said):
    with pytest.raises(InvalidInputError, match=said):
        engine.create("s", wire.SpaceConfig(**config))
    assert not engine.spaces


def test_a_bad_request_changes_nothing(engine):
    engine.create("s", CONFIGS["hybrid"])
    before = engine.space("s").state.digest()
    for candidates, context in (
        (["a"], [0.0, 0.0]),  # no features the first time
        ([wire.Candidate("a", [1.0])], [0.0, 0.0]),
        ([wire.Candidate("a", [1.0, 1.0]), wire.Candidate("a", [1.0, 1.0])], [0.0, 0.0]),
        ([wire.Candidate("a", [1.0, 1.0])], [0.0]),
    ):
        with pytest.raises(InvalidInputError):
            ask(engine, "s", candidates, context)
    assert engine.space("s").state.digest() == before
    with pytest.raises(NotFoundError):
        engine.decide("nowhere", wire.DecisionBody(candidates=["a"]), b"")


# -- a disk that fails ------------------------------------------------------------------------


def _fill(engine):
    for _ in range(500):
        ask(engine, "s", [f"{'x' * 200}{i}" for i in range(20)])
        engine.store.flush()


def test_a_full_disk_stops_it_with_a_reason_and_loses_nothing_committed(tmp_path, clock):
    data = tmp_path / "data"
    engine = Engine(data, clock=clock)
    engine.create("s", CONFIGS["score test"])
    traffic(engine, clock, "s", 10, seed=7)
    committed = max(row.seq for row in engine.store.rows())
    room = max(path.stat().st_size for path in data.iterdir()) + 100_000
    resource.prlimit(engine.store.writer, resource.RLIMIT_FSIZE, (room, room))
    with pytest.raises(StoreError, match="cannot be written: disk"):
        _fill(engine)
    with pytest.raises(StoreError, match="cannot be written: disk"):
        ask(engine, "s")
    engine.close()
    again = Engine(data, clock=clock)
    assert again.store.last_seq >= committed
    assert folded(again, "s").digest() == again.space("s").state.digest()
    again.close()


def test_an_altered_row_is_never_taken_for_the_truth(tmp_path, clock):
    data = tmp_path / "data"
    engine = Engine(data, clock=clock)
    engine.create("s", CONFIGS["score test"])
    traffic(engine, clock, "s", 10, seed=8)
    engine.close()
    with sqlite3.connect(data / "log.db") as connection:
        connection.execute("UPDATE log SET at = at + 1 WHERE seq = 5")
    with pytest.raises(StoreError, match=r"row 5 .* checksum"):
        Engine(data, clock=clock)
    with sqlite3.connect(data / "log.db") as connection:
        connection.execute("DELETE FROM log WHERE seq = 5")
    with pytest.raises(StoreError, match="every row, got 6 after 4"):
        Engine(data, clock=clock)


def test_a_file_that_is_no_log_is_refused(tmp_path, clock):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "log.db").write_bytes(b"x" * 5000)
    with pytest.raises(StoreError, match=r"log\.db must be a readable log"):
        Engine(tmp_path / "data", clock=clock)


_SERVED = """
    import sys
    from pathlib import Path
    import msgspec
    from whim.serve import wire
    from whim.serve.state.engine import Engine

    engine = Engine(Path(sys.argv[1]))
    if "s" not in engine.spaces:
        rules = wire.RewardRules(wait_seconds=0.05)
        engine.create("s", wire.SpaceConfig(context=wire.Features(size=2), rewards=rules))
    start = engine.store.last_seq
    for i in range(10_000):
        key = f"{start}.{i}"
        body = wire.DecisionBody(candidates=["a", "b"], context=[i % 3, 1.0], decision_id=key)
        engine.decide("s", body, b"")
        engine.store.flush()
        print("d", body.decision_id, flush=True)
        if i % 2:
            state = engine.reward("s", wire.RewardBody(decision_id=body.decision_id, value=i % 5))
            engine.store.flush()
            print("r", body.decision_id, state, flush=True)
        engine.tick()
        if i % 50 == 49:
            engine.snapshot("s")
"""


def test_killed_at_any_moment_it_has_all_that_it_acknowledged_and_nothing_twice(tmp_path):
    data = tmp_path / "data"
    dice = random.Random(0)
    decided, rewarded = [], []
    for _ in range(5):
        lines, stop = [], dice.randint(40, 200)
        with subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(_SERVED), str(data)],
            stdout=subprocess.PIPE, text=True,
        ) as process:  # fmt: skip
            for line in process.stdout:
                lines.append(line.split())
                if len(lines) == stop:
                    process.send_signal(signal.SIGKILL)
        decided += [words[1] for words in lines if words[0] == "d"]
        rewarded += [words[1] for words in lines if words[0] == "r"]
    engine = Engine(data)
    rows = [(row.kind, DECODERS[row.kind].decode(row.body)) for row in engine.store.rows()]
    keys = [row.id for kind, row in rows if kind == Kind.DECISION]
    became = fates(engine.store.rows())
    learnt, late, closed = (
        [key for key, state in became if state == which] for which in ("learnt", "late", "ended")
    )
    assert set(decided) <= set(keys)
    assert len(set(keys)) == len(keys)
    assert set(rewarded) <= {*learnt, *late}
    assert len({*learnt, *closed}) == len(learnt) + len(closed)  # each learnt once
    assert engine.space("s").state.policy.step == len(learnt) + len(closed)
    assert folded(engine, "s").digest() == engine.space("s").state.digest()
    engine.close()


def test_the_reward_that_closed_a_decision_is_known_when_it_comes_again(tmp_path):
    engine = Engine(tmp_path / "data")
    engine.create("s", wire.SpaceConfig())
    body = wire.DecisionBody(context=[1.0], candidates=["a"], decision_id="d")
    engine.decide("s", body, b"d")
    once = wire.RewardBody(decision_id="d", value=1.0, reward_id="r")
    other = wire.RewardBody(decision_id="d", value=1.0, reward_id="another")
    assert [engine.reward("s", r) for r in (once, once, other)] == ["learnt", "duplicate", "late"]
    digest = engine.space("s").state.digest()
    engine.close()
    again = Engine(tmp_path / "data")
    assert again.space("s").state.digest() == digest
    again.close()
