"""Lists in the service: chosen, logged, rewarded and learnt from as the log says."""

from __future__ import annotations

import contextlib
import itertools
import json
import math
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from scipy import stats

import whim
from tests.clocks import Clock
from whim.errors import InvalidInputError, WhimError
from whim.serve import wire
from whim.serve.jobs import whatif
from whim.serve.jobs.export import export
from whim.serve.jobs.trim import trim
from whim.serve.log.rows import DECODERS, Kind
from whim.serve.state.choosing import ConflictError, DecisionRequest, NotFoundError
from whim.serve.state.engine import Engine
from whim.serve.state.limits import LimitError, Limits
from whim.serve.state.lists import Slots, uniforms
from whim.serve.state.recovery import Rebuilt, rebuild
from whim.serve.state.space_state import SpaceState

ARMS = ["a", "b", "c", "d", "e", "f"]
SECOND = 1_000_000_000


def config(**more: Any) -> wire.SpaceConfig:
    fields: dict[str, Any] = {
        "policy": "linucb-disjoint", "context": {"size": 2}, "rewards": {"wait_seconds": 10},
    }  # fmt: skip
    return msgspec.convert(fields | more, wire.SpaceConfig)


@pytest.fixture
def clock() -> Clock:
    return Clock(1_790_000_000 * SECOND)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.fixture
def engine(data: Path, clock: Clock) -> Iterator[Engine]:
    made = Engine(data, clock=clock)
    yield made
    with contextlib.suppress(OSError):  # some tests close it themselves
        made.close()


def ask(engine: Engine, key: str, space: str = "s", **more: Any) -> Any:
    fields: dict[str, Any] = {"context": [1.0, 0.5], "candidates": ARMS, "decision_id": key}
    fields |= {} if "slots" in more else {"k": 3}
    body = msgspec.convert(fields | more, wire.ListBody)
    request = DecisionRequest.of(body)
    return json.loads(engine.decide(space, body, request.raw))


def pay(engine: Engine, key: str, value: float, space: str = "s", **more: Any) -> str:
    return str(engine.reward(space, wire.RewardBody(decision_id=key, value=value, **more)))


def steps(engine: Engine, space: str = "s") -> int:
    return engine.space(space).state.policy.step


def shown(answer: Any) -> list[Any]:
    return [item["arm"] for item in answer["items"]]


# -- what is shown ------------------------------------------------------------------------------


def test_a_list_is_the_top_of_the_ranking_and_the_same_when_asked_again(
    engine: Engine, data: Path, clock: Clock
) -> None:
    engine.create("s", config())
    for arm, value in zip("bdf", (1.0, 3.0, 2.0), strict=True):
        body = wire.DecisionBody(context=[1.0, 0.5], candidates=[arm], decision_id=arm)
        engine.decide("s", body, b"")
        pay(engine, arm, value)
    ranking = engine.space("s").state.policy.rank(np.array([1.0, 0.5]), k=3)
    answer = ask(engine, "x", candidates=["b", "d", "f"])
    assert shown(answer) == [one.arm for one in ranking]
    assert [item["mean"] for item in answer["items"]] == [one.mean for one in ranking]
    assert [item["slot"] for item in answer["items"]] == [0, 1, 2]
    assert {item["prefix_probability"] for item in answer["items"]} == {1.0}
    assert ask(engine, "x", candidates=["b", "d", "f"]) == answer
    with pytest.raises(ConflictError, match="same body"):
        ask(engine, "x", candidates=["b", "d", "f"], k=2)
    one = wire.DecisionBody(context=[1.0, 0.5], candidates=["b", "d", "f"], decision_id="x")
    with pytest.raises(ConflictError, match="same body"):
        engine.decide("s", one, DecisionRequest.of(one).raw)
    engine.close()
    with contextlib.closing(Engine(data, clock=clock)) as again:
        assert ask(again, "x", candidates=["b", "d", "f"]) == answer


def test_a_list_of_one_is_the_decision_of_the_same_id(engine: Engine) -> None:
    draws = {"explore": 0.4, "holdback": 0.2, "baseline": "random"}
    for name in ("ones", "lists"):
        engine.create(name, config(**draws))
    for i in range(60):
        body = wire.DecisionBody(context=[1.0, 0.1 * i], candidates=ARMS, decision_id=f"{i}")
        one = json.loads(engine.decide("ones", body, b""))
        (item,) = (answer := ask(engine, f"{i}", "lists", context=[1.0, 0.1 * i], k=1))["items"]
        assert (item["arm"], item["probability"], answer["mode"]) == (
            one["arm"], one["probability"], one["mode"],
        )  # fmt: skip
        assert item["prefix_probability"] == pytest.approx(one["probability"])
        pay(engine, f"{i}", i % 2, "ones")
        pay(engine, f"{i}", i % 2, "lists", slot=0)
    a, b = (engine.space(name).state.policy.to_bytes() for name in ("ones", "lists"))
    assert a == b


def test_slots_have_names_features_exclusions_and_a_baseline(engine: Engine) -> None:
    engine.create("s", config(holdback=1.0))
    slots = [
        {"id": "hero", "features": [1.0], "exclude": ["a", "nobody"]},
        {"id": "side", "features": [0.0], "baseline": "b"},
        {"features": [0.5], "exclude": ["c"]},
    ]
    answer = ask(engine, "x", context=[1.0], slots=slots)
    # the first candidates that may stand there and that are nobody's baseline
    assert shown(answer) == ["c", "b", "a"]
    assert [item["slot"] for item in answer["items"]] == ["hero", "side", 2]
    assert answer["items"][2]["prefix_probability"] == 1.0
    waiting = engine.space("s").state.ledger.lists["x"]
    assert [np.frombuffer(x).tolist() for x in waiting.x] == [[1, 1], [1, 0], [1, 0.5]]
    assert pay(engine, "x", 1.0, slot="side") == "learnt"
    policy = whim.policy("linucb-disjoint", n_features=2)
    policy.add_arms(ARMS)
    policy.update("c", [1.0, 1.0], 0.0)
    policy.update("b", [1.0, 0.0], 1.0)
    x = np.array([0.3, 0.7])
    assert np.array_equal(engine.space("s").state.policy.scores(x, arms=ARMS), policy.scores(x))


def test_named_features_of_a_slot_join_the_context(engine: Engine) -> None:
    fields = [{"name": name, "kind": "number"} for name in ("hour", "size")]
    engine.create("s", config(context={"fields": fields}))
    ask(engine, "x", context={"hour": 3}, slots=[{"features": {"size": 2}}, {}])
    waiting = engine.space("s").state.ledger.lists["x"]
    assert [np.frombuffer(x).tolist() for x in waiting.x] == [[3, 2], [3, 0]]


BAD: list[tuple[dict[str, Any], str]] = [
    ({"k": None}, r"\$\.k or \$\.slots must say what to fill, got neither"),
    ({"k": 2, "slots": [{}]}, r"got both"),
    ({"k": 7}, r"\$\.k must be at most 6"),
    ({"slots": [{}] * 7}, r"\$\.slots must be at most 6"),
    ({"slots": [{"id": "a"}, {"id": "a"}]}, r"\$\.slots\[1\]\.id must not repeat, got 'a'"),
    ({"slots": [{"id": 1}, {}]}, r"\$\.slots\[1\]\.id must not repeat, got 1"),
    ({"slots": [{"baseline": "z"}]}, r"\$\.slots\[0\]\.baseline must be a candidate"),
    ({"slots": [{"baseline": "a", "exclude": ["a"]}]}, r"\.baseline must not be excluded"),
    ({"slots": [{"baseline": "a"}, {"baseline": "a"}]}, r"\[1\]\.baseline must not repeat"),
    ({"slots": [{"exclude": ARMS}]}, r"\$\.slots must leave a candidate of its own for each"),
    ({"slots": [{"exclude": ARMS[1:]}] * 2}, r"\$\.slots must leave a candidate of its own"),
    ({"slots": [{"features": {"size": 1}}]}, r"\$\.slots\[0\]\.features must be a list"),
    ({"slots": [{"features": [1.0]}]}, r"\$\.context must .*2"),
    ({"candidates": ["a", "b", "a"]}, r"\$\.candidates\[2\] must not repeat"),
]


@pytest.mark.parametrize(("more", "said"), BAD)
def test_what_contradicts_itself_is_refused_and_changes_nothing(
    engine: Engine, more: dict[str, Any], said: str
) -> None:
    engine.create("s", config())
    before = engine.seq, engine.space("s").state.digest()
    with pytest.raises(InvalidInputError, match=said):
        ask(engine, "x", **more)
    assert (engine.seq, engine.space("s").state.digest()) == before


def test_configurations_that_make_no_sense_are_refused(engine: Engine) -> None:
    for rules, said in (
        ({"feedback": "positions"}, "got 0 with positions"),
        ({"feedback": "semi", "examine": [1.0]}, "got 1 with semi"),
    ):
        with pytest.raises(InvalidInputError, match=said):
            engine.create("s", config(list=rules))
    with pytest.raises(InvalidInputError, match=r"\$\.list\.feedback must be cascade or semi"):
        engine.create("s", config(policy="ucb", list={"feedback": "positions", "examine": [1.0]}))
    engine.create("s", config(list={"feedback": "positions", "examine": [1.0, 0.5]}))
    with pytest.raises(InvalidInputError, match=r"\$\.k must be at most 2, as list\.examine"):
        ask(engine, "x")


def test_candidates_times_features_times_slots_are_bounded(data: Path) -> None:
    engine = Engine(data, limits=Limits(max_values=24))
    engine.create("s", config())
    ask(engine, "x", slots=[{}] * 3)
    with pytest.raises(LimitError, match="6 times 2 times 3 slots with features"):
        ask(engine, "y", context=[1.0], slots=[{"features": [1.0]}] * 3)
    engine.close()


# -- how likely it was --------------------------------------------------------------------------


def can_be_filled(slots: list[set[int]], used: tuple[int, ...]) -> bool:
    """Literally: whether some candidates, each once, fill the slots that are left."""
    left = slots[len(used) :]
    free = set().union(*slots) - set(used)
    return any(
        all(p in allowed for p, allowed in zip(places, left, strict=True))
        for places in itertools.permutations(free, len(left))
    )


def enumerated(slots: list[set[int]]) -> dict[tuple[int, ...], float]:
    """How likely each list is: all of them, slot by slot, as the description says."""
    lists: dict[tuple[int, ...], float] = {(): 1.0}
    for j, allowed in enumerate(slots):
        longer: dict[tuple[int, ...], float] = {}
        for used, chance in lists.items():
            free = [p for p in allowed - set(used) if can_be_filled(slots, (*used, p))]
            for p in free:
                longer[*used, p] = chance / len(free)
        assert all(len(one) == j + 1 for one in longer)
        lists = longer
    return lists


@pytest.mark.parametrize("seed", range(12))
def test_a_uniform_draw_against_the_enumeration_of_all_lists(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n, k = 5, 3
    exclude = [[p for p in range(n) if rng.random() < 0.15 * (seed % 5)] for _ in range(k)]
    allowed = [set(range(n)) - set(out) for out in exclude]
    if not can_be_filled(allowed, ()):
        with pytest.raises(InvalidInputError, match="a candidate of its own"):
            Slots(n, k, exclude)
        return
    slots, lists = Slots(n, k, exclude), enumerated(allowed)
    assert sum(lists.values()) == pytest.approx(1.0)
    for places, chance in lists.items():
        wanted = [sum(p for o, p in lists.items() if o[j] == places[j]) for j in range(k)]
        assert slots.chances(list(places)) == pytest.approx(wanted)
        starts = [
            sum(p for o, p in lists.items() if o[: j + 1] == places[: j + 1]) for j in range(k)
        ]
        assert slots.prefixes(list(places)) == pytest.approx(starts)
        assert starts[-1] == chance
        assert tuple(slots.fill([list(places), *[list(range(n))] * 0])) in lists
    drawn = {tuple(slots.draw(rng.random(k))) for _ in range(2000)}
    assert drawn <= lists.keys()
    assert len(drawn) > 0.9 * len(lists)


def test_too_many_ways_leave_the_place_of_an_item_unknown_but_never_a_prefix() -> None:
    n, k = 40, 12  # each slot excludes another one: as many groups
    slots = Slots(n, k, [[j, j + 12] for j in range(k)])
    places = slots.draw(uniforms(0, "x", k))
    chances, prefixes = slots.chances(places), slots.prefixes(places)
    assert chances[0] == pytest.approx(1 / 38)
    assert chances[-1] is None
    assert all(p is not None and p > 0 for p in prefixes)


SETTINGS: list[dict[str, Any]] = [
    {"explore": 0.3},
    {"explore": 0.2, "holdback": 0.3},
    {"explore": 0.2, "holdback": 0.3, "baseline": "random"},
    {"shadow": True, "baseline": "random"},
]


@pytest.mark.parametrize("exclusions", [False, True])
@pytest.mark.parametrize("more", SETTINGS)
def test_logged_probabilities_are_those_of_the_lists_that_are_shown(
    engine: Engine, more: dict[str, Any], exclusions: bool
) -> None:
    """Three thousand draws; a million of them in ``tests/slow/list_probabilities.py``."""
    engine.create("s", config(**more))
    slots = [{"exclude": ["a"]}, {"baseline": "d"}, {"exclude": ["b", "c"]}]
    body: dict[str, Any] = {"slots": slots} if exclusions else {"k": 3}
    assert compare(engine, body, 3_000) > 1e-4


def compare(engine: Engine, more: dict[str, Any], n: int) -> float:
    """The least p-value of the counts of items and prefixes, given what was logged for them."""
    ask(engine, "first", **more)  # so that the arms are known
    space = engine.space("s")
    fields = {"context": [1.0, 0.5], "candidates": ARMS, **more}
    said: dict[tuple[int, tuple[str, ...]], float] = {}
    counts: Counter[tuple[int, tuple[str, ...]]] = Counter()
    for first in range(0, n, 500):
        bodies = [
            msgspec.convert({**fields, "decision_id": f"k{i}"}, wire.ListBody)
            for i in range(first, min(first + 500, n))
        ]
        requests = [DecisionRequest(one) for one in bodies]
        space.propose(requests)  # deciding changes nothing
        for one in requests:
            items = json.loads(one.answer)["items"]
            arms = tuple(item["arm"] for item in items)
            for j, item in enumerate(items):
                for key, chance in (
                    ((j, arms[j : j + 1]), item["probability"]),
                    ((-1 - j, arms[: j + 1]), item["prefix_probability"]),
                ):
                    counts[key] += 1
                    assert said.setdefault(key, chance) == pytest.approx(chance, rel=1e-12)
    for kind in {kind for kind, _ in said}:
        total = sum(p for (k, _), p in said.items() if k == kind)
        assert total <= 1 + 1e-9
    tests = [
        stats.binomtest(counts[key], n, min(1.0, p)).pvalue for key, p in said.items() if p * n >= 5
    ]
    assert len(tests) > 10
    return float(min(tests) * len(tests))


def test_of_a_policy_that_draws_only_the_top_is_known(engine: Engine) -> None:
    engine.create("s", config(policy="lints", explore=0.2))
    answer = ask(engine, "x")
    known = [item["probability"] is not None for item in answer["items"]]
    assert known == [True, False, False]
    body = wire.DecisionBody(context=[1.0, 0.5], candidates=ARMS, decision_id="x")
    engine.create("one", config(policy="lints", explore=0.2))
    one = json.loads(engine.decide("one", body, b""))
    assert (answer["items"][0]["arm"], answer["items"][0]["probability"]) == (
        one["arm"], one["probability"],
    )  # fmt: skip
    engine.create("shadow", config(policy="lints", shadow=True))
    items = ask(engine, "x", "shadow")["items"]
    assert [item["prefix_probability"] for item in items] == [1.0] * 3


# -- what is learnt -----------------------------------------------------------------------------

FEEDBACK: list[dict[str, Any]] = [
    {"feedback": "cascade"}, {"feedback": "semi"},
    {"feedback": "positions", "examine": [1.0, 0.6, 0.3]},
]  # fmt: skip


@pytest.mark.parametrize("rules", FEEDBACK, ids=lambda rules: rules["feedback"])
@pytest.mark.parametrize("combine", ["earliest", "sum"])
def test_it_learns_what_update_list_learns(
    engine: Engine, clock: Clock, rules: dict[str, Any], combine: str
) -> None:
    rewards = {"wait_seconds": 10, "combine": combine, "default": -0.25}
    engine.create("s", config(list=rules, rewards=rewards, explore=0.3))
    policy = whim.policy("linucb-disjoint", n_features=2)
    policy.add_arms(ARMS)
    rng = np.random.default_rng(3)
    for i in range(40):
        x = rng.normal(size=2)
        answer = ask(engine, f"{i}", context=x.tolist())
        came = [-0.25] * 3
        for slot in rng.permutation(3)[: rng.integers(4)].tolist():
            value = float(rng.integers(2))
            state = pay(engine, f"{i}", value, slot=slot)
            came[slot] = value
            if state == "learnt":
                break
        clock.now += 11 * SECOND
        engine.tick()
        policy.update_list(shown(answer), x, came, **rules)
    served = engine.space("s").state.policy
    probe = np.array([0.3, -0.7])
    assert served.step == policy.step
    assert np.array_equal(served.scores(probe, arms=ARMS), policy.scores(probe))


def test_a_click_closes_a_cascade_and_what_stands_below_it_is_not_learnt(engine: Engine) -> None:
    engine.create("s", config())
    answer = ask(engine, "x")
    assert pay(engine, "x", 0.0, slot=0) == "kept"  # no click: it goes on
    assert pay(engine, "x", 0.5, slot=0) == "duplicate"
    assert pay(engine, "x", 1.0, arm=shown(answer)[1], reward_id="r") == "learnt"
    assert steps(engine) == 2
    assert pay(engine, "x", 1.0, slot=1, reward_id="r") == "duplicate"
    assert pay(engine, "x", 1.0, slot=2) == "late"
    plays = [engine.space("s").state.policy.plays(arm) for arm in shown(answer)]
    assert plays == [1, 1, 0]


def test_without_a_click_all_learn_the_default_at_the_end(engine: Engine, clock: Clock) -> None:
    engine.create("s", config(rewards={"wait_seconds": 10, "default": 0.5}))
    ask(engine, "x")
    clock.now += 9 * SECOND
    engine.tick()
    assert steps(engine) == 0
    clock.now += 2 * SECOND
    engine.tick()
    assert steps(engine) == 3  # a default above 0 is no click
    counts = engine.space("s").state.stats.summary()["counts"]
    assert (counts["lists"], counts["closed"], counts["matched"]) == (1, 1, 0)


def test_semi_learns_once_every_item_has_a_reward(engine: Engine) -> None:
    engine.create("s", config(list={"feedback": "semi"}))
    ask(engine, "x")
    states = [pay(engine, "x", value, slot=i) for i, value in enumerate((1.0, 0.0, 1.0))]
    assert states == ["kept", "kept", "learnt"]
    assert steps(engine) == 3
    summary = engine.space("s").state.stats.summary()
    assert [one["clicks"] for one in summary["positions"]] == [1, 0, 1]


def test_sums_are_by_item(engine: Engine, clock: Clock) -> None:
    rewards = {"wait_seconds": 10, "combine": "sum"}
    engine.create("s", config(rewards=rewards, list={"feedback": "semi"}))
    answer = ask(engine, "x")
    for value in (1.0, 2.0):
        assert pay(engine, "x", value, slot=1) == "kept"
    clock.now += 11 * SECOND
    engine.tick()
    totals = {arm: c.total for arm, c in engine.space("s").state.stats.arms.items()}
    assert [totals[arm] for arm in shown(answer)] == [0.0, 3.0, 0.0]


def test_a_deferred_list_waits_for_its_activation(engine: Engine, clock: Clock) -> None:
    engine.create("s", config())
    for key in ("shown", "never"):
        ask(engine, key, deferred=True)
        assert pay(engine, key, 1.0, slot=1) == "kept"
        assert pay(engine, key, 1.0, slot=0) == "duplicate"  # one click ends a cascade
    assert engine.activate("s", "shown") is True
    assert engine.activate("s", "shown") is False
    clock.now += 11 * SECOND
    engine.tick()
    assert steps(engine) == 2
    assert engine.space("s").state.stats.counts["never_shown"] == 1


def test_an_item_must_be_named_for_a_list_and_only_for_one(engine: Engine) -> None:
    engine.create("s", config())
    answer = ask(engine, "x")
    for more, said in (
        ({}, "got neither"),
        ({"slot": 0, "arm": shown(answer)[0]}, "got both"),
        ({"slot": 3}, r"\$\.slot must be one of the list's, got 3"),
        ({"slot": "0"}, r"got '0'"),
        ({"arm": "f"}, r"\$\.arm must be one of the list's, got 'f'"),
    ):
        with pytest.raises(InvalidInputError, match=said):
            pay(engine, "x", 1.0, **more)
    with pytest.raises(NotFoundError):
        pay(engine, "y", 1.0, slot=0)
    body = wire.DecisionBody(context=[1.0, 0.5], candidates=ARMS, decision_id="one")
    engine.decide("s", body, b"")
    with pytest.raises(InvalidInputError, match=r"\$\.slot must be left out"):
        pay(engine, "one", 1.0, slot=0)


def test_an_arm_that_was_retired_meanwhile_is_left_out(engine: Engine) -> None:
    engine.create("s", config())
    first, second, _ = shown(ask(engine, "x"))
    engine.retire_arms("s", [first])
    assert pay(engine, "x", 1.0, arm=second) == "learnt"
    assert steps(engine) == 1


# -- the log ------------------------------------------------------------------------------------


def busy(engine: Engine, clock: Clock, space: str = "s", n: int = 40) -> None:
    """Lists and decisions with all that may become of them."""
    rng = np.random.default_rng(4)
    for i in range(n):
        clock.now += SECOND
        context = rng.normal(size=2).round(3).tolist()
        if i % 3 == 0:
            body = wire.DecisionBody(context=context, candidates=ARMS, decision_id=f"{i}")
            engine.decide(space, body, b"")
            pay(engine, f"{i}", 1.0, space)
        else:
            slots = [{"id": f"p{j}", "features": [0.1 * j], "exclude": ARMS[j : j + 1]}
                     for j in range(3)]  # fmt: skip
            more = {"context": context[:1], "slots": slots} if i % 3 == 1 else {"context": context}
            answer = ask(engine, f"{i}", space, deferred=i % 7 == 2, **more)
            if i % 7 == 2 and i % 2:
                engine.activate(space, f"{i}")
            for item in answer["items"]:
                if rng.random() < 0.3:
                    pay(engine, f"{i}", float(rng.integers(2)), space, slot=item["slot"])
        engine.tick()


@pytest.mark.parametrize("rules", FEEDBACK, ids=lambda rules: rules["feedback"])
def test_the_state_is_the_fold_of_the_log(
    engine: Engine, clock: Clock, data: Path, rules: dict[str, Any]
) -> None:
    params = {"policy": "pslinucb-disjoint", "params": {"window": 8}, "explore": 0.3}
    engine.create("s", config(**params, list=rules, holdback=0.1))
    busy(engine, clock)
    engine.store.flush()
    space = engine.space("s")
    one_by_one = SpaceState(space.state.config)
    for row in engine.store.rows(0, None, space.number):
        one_by_one.apply(row)
    assert one_by_one.digest() == space.state.digest()
    head, policy = space.state.to_bytes()
    again = SpaceState.from_bytes(head, policy)
    assert again.digest() == space.state.digest()
    assert again.pending.keys() >= again.ledger.lists.keys()
    assert again.ledger.lists
    digest = space.state.digest()
    engine.close()
    (data / "snapshots.db").unlink()  # replayed, many at a time
    with contextlib.closing(Engine(data, clock=clock)) as replayed:
        assert replayed.space("s").state.digest() == digest


def test_a_rebuild_learns_from_lists_by_its_own_feedback(engine: Engine, clock: Clock) -> None:
    engine.create("s", config())
    ask(engine, "x")
    pay(engine, "x", 1.0, slot=0)
    assert steps(engine) == 1
    engine.change("s", config(list={"feedback": "semi"}))
    engine.store.flush()
    number, wanted = engine.wanted("s")
    state, _ = rebuild(engine.store, number, wanted)
    engine.swap("s", Rebuilt(number, state, []))
    assert steps(engine) == 3
    ask(engine, "y")
    assert pay(engine, "y", 1.0, slot=0) == "kept"  # and so are its rules from now on


def test_a_list_that_does_not_fit_new_features_is_left_out_and_its_rewards_are_facts(
    engine: Engine, clock: Clock
) -> None:
    engine.create("s", config())
    ask(engine, "x")
    ask(engine, "y")
    assert pay(engine, "x", 1.0, slot=1) == "learnt"
    engine.change("s", config(context={"size": 5}))
    engine.store.flush()
    number, wanted = engine.wanted("s")
    state, _ = rebuild(engine.store, number, wanted)
    engine.swap("s", Rebuilt(number, state, []))
    assert (steps(engine), engine.space("s").state.skipped) == (0, 2)
    assert pay(engine, "y", 1.0, slot=1) == "learnt"
    assert steps(engine) == 0


def test_retention_keeps_lists_that_wait(engine: Engine, clock: Clock, data: Path) -> None:
    engine.create("s", config(rewards={"wait_seconds": 3600}))
    ask(engine, "waits")
    clock.now += 60 * SECOND
    ask(engine, "closed")
    pay(engine, "closed", 1.0, slot=2)
    clock.now += 60 * SECOND
    ask(engine, "late")
    engine.store.flush()
    digest = engine.space("s").state.digest()
    trim(data / "log.db", engine.now() - 1, pause=lambda seconds: None)
    engine.close()
    with contextlib.closing(Engine(data, clock=clock)) as again:
        assert again.space("s").state.digest() == digest
        assert pay(again, "waits", 1.0, slot=0) == "learnt"


def test_the_parquet_export_has_a_row_with_the_items(
    engine: Engine, clock: Clock, data: Path, tmp_path: Path
) -> None:
    import polars as pl

    engine.create("s", config(explore=0.2))
    answer = ask(engine, "x")
    pay(engine, "x", 1.0, slot=1)
    engine.decide("s", wire.DecisionBody(context=[1.0, 0.5], candidates=ARMS), b"")
    engine.store.flush()
    export(data, "s", tmp_path / "s.parquet", format="parquet")
    first, second = pl.read_parquet(tmp_path / "s.parquet").to_dicts()
    assert first["items"] == shown(answer)
    assert first["item_rewards"] == [0.0, 1.0, None]
    assert (first["reward"], first["slots"]) == (1.0, ["0", "1", "2"])
    assert first["prefix_probabilities"] == [i["prefix_probability"] for i in answer["items"]]
    assert first["item_probabilities"] == [i["probability"] for i in answer["items"]]
    assert second["items"] is None


def test_the_dsjson_export_has_lists_as_ccb(engine: Engine, data: Path, tmp_path: Path) -> None:
    engine.create("s", config(explore=0.2))
    answer = ask(engine, "x", slots=[{"id": "top", "exclude": ["a"]}, {"id": "side"}])
    pay(engine, "x", 1.0, slot="top")
    engine.store.flush()
    export(data, "s", tmp_path / "s.dsjson", format="dsjson")
    (line,) = [json.loads(text) for text in (tmp_path / "s.dsjson").read_text().splitlines()]
    assert [slot["_id"] for slot in line["c"]["_slots"]] == ["top", "side"]
    assert line["c"]["_slots"][0]["_inc"] == [1, 2, 3, 4, 5]
    top, side = line["_outcomes"]
    assert top["_label_cost"] == -1.0
    assert "_label_cost" not in side  # it was not seen
    assert [ARMS[one["_a"][0]] for one in (top, side)] == shown(answer)
    product = top["_p"][0] * side["_p"][0]
    assert product == pytest.approx(answer["items"][1]["prefix_probability"])


@pytest.mark.parametrize("base", ["first", "random"])
def test_the_log_that_replay_reads_has_lists(
    engine: Engine, clock: Clock, data: Path, tmp_path: Path, base: str
) -> None:
    engine.create("s", config(explore=0.3, holdback=0.1, baseline=base))
    busy(engine, clock, n=30)
    answer = ask(engine, "x")
    pay(engine, "x", 1.0, slot=1)
    clock.now += 60 * SECOND
    engine.tick()
    engine.store.flush()
    told = export(data, "s", tmp_path / "s.whim", format="log")
    assert told["left_out"] == {
        "is a list whose slots have features or exclusions, which the log's columns do not hold": 9,
        "never shown": 2,
    }  # fmt: skip
    log = whim.logs.open(tmp_path / "s.whim")
    assert log.has_lists
    assert len(log.reward) == told["rows"] == 31 - 11
    last = log.shown_list(len(log.reward) - 1)
    assert last.shown == shown(answer)
    assert list(last.rewards) == [0.0, 1.0, 0.0]
    prefixes = [item["prefix_probability"] for item in answer["items"]]
    assert list(last.prefix_probabilities) == pytest.approx(prefixes)
    one = log.shown_list(0)  # a decision about one arm is a list of one
    assert (len(one.shown), one.rewards[0]) == (1, 1.0)
    assert (last.wanted is not None) == (base == "random")


def test_a_whatif_of_the_same_configuration_gives_what_was_logged(
    engine: Engine, clock: Clock, data: Path
) -> None:
    engine.create("s", config(explore=0.3, holdback=0.1))
    busy(engine, clock, n=60)
    clock.now += 60 * SECOND
    engine.tick()
    engine.store.flush()
    lists = sum(
        DECODERS[row.kind].decode(row.body).items is not None
        for row in engine.store.rows()
        if row.kind == Kind.DECISION
    )
    same = whatif.run(data, "s", config(explore=0.3), lambda share: None)
    assert same["unknown"] is None
    assert lists > 30
    never = engine.space("s").state.stats.counts["never_shown"]
    assert same["events"] == 60 - never
    assert same["logged"]["rate"] == pytest.approx(same["whatif"]["rate"], abs=0.15)
    drawn = whatif.run(data, "s", config(policy="lints", explore=0.3), lambda share: None)
    assert "how likely a policy that draws is to show a list" in drawn["unknown"]


def test_the_mean_of_whatif_weights_is_one(engine: Engine, clock: Clock, data: Path) -> None:
    """Another list than the logged one, over logs that show every list: IPS weights average 1."""
    engine.create("s", config(explore=1.0, policy="ucb", context={}))
    for i in range(400):
        ask(engine, f"{i}", context=[], candidates=ARMS[:3], k=2)
        pay(engine, f"{i}", 1.0, slot=0)
    engine.store.flush()
    result = whatif.run(data, "s", config(policy="ucb", context={}), lambda share: None)
    assert result["events"] == 400
    assert result["matched"] == pytest.approx(400 / 6, abs=4 * math.sqrt(400 / 6))
    assert result["whatif"]["rate"] == pytest.approx(1.0)


def test_lists_of_several_requests_are_as_if_they_came_alone(engine: Engine) -> None:
    for name in ("together", "alone"):
        engine.create(name, config(explore=0.5))
    bodies = [
        msgspec.convert(
            {
                "context": [1.0, i / 7],
                "candidates": ARMS[: 3 + i % 3],
                "k": 2,
                "decision_id": f"{i}",
            },
            wire.ListBody,
        )
        for i in range(10)
    ]
    requests = [DecisionRequest.of(body) for body in bodies]
    engine.decide_many("together", requests)
    alone = [json.loads(engine.decide("alone", body, DecisionRequest.of(body).raw))
             for body in bodies]  # fmt: skip
    together = [json.loads(one.answer) for one in requests]
    assert [one["items"] for one in together] == [one["items"] for one in alone]
    with pytest.raises(WhimError):
        ask(engine, "bad", "alone", k=99)
