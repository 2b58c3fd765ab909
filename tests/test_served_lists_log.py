"""Lists in the service: what is learnt from them, and the log that says so."""

from __future__ import annotations

import contextlib
import json
import math
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

import whim
from tests.clocks import Clock
from tests.served_lists import (
    ARMS,
    SECOND,
    ask,
    clock,
    config,
    data,
    engine,
    pay,
    shown,
    steps,
)
from whim.errors import InvalidInputError, WhimError
from whim.logs.dsjson import EXPECTED
from whim.serve import wire
from whim.serve.jobs import whatif
from whim.serve.jobs.export import export
from whim.serve.jobs.export_lists import LIST
from whim.serve.jobs.trim import trim
from whim.serve.log.rows import DECODERS, Kind
from whim.serve.state.choosing import DecisionRequest, NotFoundError
from whim.serve.state.engine import Engine
from whim.serve.state.recovery import Rebuilt, rebuild
from whim.serve.state.space_state import SpaceState

__all__ = ["clock", "data", "engine"]  # fixtures


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


def test_positions_count_lists_that_wait(engine: Engine, clock: Clock) -> None:
    """A click closes a cascade at once: of the closed ones alone nearly all would have one."""
    engine.create("s", config())
    for i in range(10):
        ask(engine, f"{i}")
    ask(engine, "short", k=2)
    ask(engine, "later", deferred=True)
    assert pay(engine, "3", 1.0, slot=0) == "learnt"
    assert pay(engine, "4", 0.0, slot=1) == "kept"
    assert pay(engine, "later", 2.0, slot=2) == "kept"

    def rows(state: SpaceState) -> list[Any]:
        return [tuple(one.values()) for one in state.stats.summary()["positions"]]

    space = engine.space("s")
    assert rows(space.state) == [(11, 1, 1.0), (11, 0, 0.0), (10, 0, 0.0)]
    assert rows(SpaceState.from_bytes(*space.state.to_bytes())) == rows(space.state)
    engine.activate("s", "later")
    assert rows(space.state) == [(12, 1, 1.0), (12, 0, 0.0), (11, 1, 2.0)]
    assert rows(SpaceState.from_bytes(*space.state.to_bytes())) == rows(space.state)
    clock.now += 11 * SECOND
    engine.tick()
    assert not space.state.pending
    assert rows(space.state) == [(12, 1, 1.0), (12, 0, 0.0), (11, 1, 2.0)]
    # and what is stored is of the closed ones
    assert [one.shown for one in space.state.stats.positions] == [12, 12, 11]


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
    assert again.stats.summary() == space.state.stats.summary() == one_by_one.stats.summary()
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


BY_NAME: dict[str, Any] = {
    "context": {"fields": [{"name": "age", "kind": "number"}], "constant": True},
    "items": {"fields": [{"name": "price", "kind": "number"}]},
    "policy": "linucb-hybrid", "list": {"feedback": "semi"},
}  # fmt: skip


SLOTS: dict[int, list[dict[str, Any]]] = {  # by number of the decision modulo 5
    2: [{"id": "only", "features": {"age": -1}}],  # its context is whole
    3: [{"id": "top"}, {"id": "side"}],
    4: [{"id": "top", "exclude": ["a"]}, {"id": "side"}],
}


def by_name(engine: Engine, clock: Clock) -> None:
    """Lists and decisions whose contexts and candidates have named features."""
    rng = np.random.default_rng(6)
    for i in range(40):
        clock.now += SECOND
        candidates = [
            {"id": arm, "features": {"price": int(rng.integers(9))}} for arm in [*ARMS, 7]
        ]
        more: dict[str, Any] = {"context": {"age": i}, "candidates": candidates}
        if i % 5 == 1:
            body = msgspec.convert(more | {"decision_id": f"{i}"}, wire.DecisionBody)
            engine.decide("s", body, b"")
        else:
            slots = {"slots": SLOTS[i % 5]} if i % 5 else {}
            first = ask(engine, f"{i}", **more, **slots)["items"][0]
            if rng.random() < 0.5:
                pay(engine, f"{i}", float(rng.normal()), slot=first["slot"])
        engine.tick()


@pytest.mark.parametrize("named", [False, True])
def test_dsjson_and_back_is_the_log_that_replay_reads(
    engine: Engine, clock: Clock, data: Path, tmp_path: Path, named: bool
) -> None:
    engine.create("s", config(explore=0.3, holdback=0.1, **(BY_NAME if named else {})))
    by_name(engine, clock) if named else busy(engine, clock)
    clock.now += 60 * SECOND
    engine.tick()
    engine.store.flush()
    told = export(data, "s", tmp_path / "s.whim", format="log")
    straight = whim.logs.open(tmp_path / "s.whim")
    export(data, "s", tmp_path / "s.dsjson", format="dsjson")
    back = whim.logs.convert(tmp_path / "s.dsjson", tmp_path / "back.whim")
    assert back.arms == straight.arms
    assert len(np.unique(np.diff(back.list_offsets))) > 1
    for name in (
        "time", "context", "pool", "reward", "pool_offsets", "pool_items", "item_arm",
        "item_features", "list_offsets", "list_place", "list_reward", "list_probability",
        "list_prefix_probability",
    ):  # fmt: skip
        assert np.array_equal(getattr(back, name), getattr(straight, name)), name
    unfit = EXPECTED["slot_candidates" if named else "slot_features"]
    assert back.meta["dropped"] == {unfit: told["left_out"][LIST]}


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


def test_a_list_too_long_for_its_probability_breaks_nothing(
    engine: Engine, data: Path, tmp_path: Path
) -> None:
    """A hundred of two thousand, drawn: less likely than the smallest number."""
    engine.create("s", config(policy="ucb", context={}, explore=1.0))
    many = [f"arm{i}" for i in range(2000)]
    items = ask(engine, "long", context=[], candidates=many, k=100)["items"]
    assert [items[i]["prefix_probability"] is None for i in (0, 80, 99)] == [False, False, True]
    assert {item["probability"] for item in items} == {1 / 2000}
    for i in range(12):
        ask(engine, f"{i}", context=[], candidates=many[:2], k=1)
    for key in ("long", *map(str, range(12))):
        pay(engine, key, 1.0, slot=0)
    engine.store.flush()
    for format_, left in (("dsjson", 1), ("log", 1), ("parquet", 0)):
        out = tmp_path / f"out.{format_}"
        told = export(data, "s", out, format=format_)
        assert told["rows"] == 13 - left
        assert sum(told["left_out"].values()) == left
    result = whatif.run(data, "s", config(policy="ucb", context={}), lambda share: None)
    assert result["events"] == 12
    assert any("1 lists were so long" in warning for warning in result["warnings"])


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
