"""Lists in the service: what is shown, and how likely it was."""

from __future__ import annotations

import contextlib
import json
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

import whim
from tests.clocks import Clock
from tests.list_draws import can_be_filled, enumerated
from tests.served_lists import (
    ARMS,
    RANDOM,
    SETTINGS,
    ask,
    clock,
    compare,
    config,
    data,
    engine,
    pay,
    shown,
)
from whim.errors import InvalidInputError
from whim.serve import wire
from whim.serve.state.choosing import ConflictError, DecisionRequest
from whim.serve.state.engine import Engine
from whim.serve.state.limits import LimitError, Limits
from whim.serve.state.lists import uniforms
from whim.serve.state.slots import Slots

__all__ = ["clock", "data", "engine"]  # fixtures


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


def test_a_feature_that_is_wrong_is_that_of_its_slot(engine: Engine) -> None:
    fields = [{"name": name, "kind": "number"} for name in ("hour", "size")]
    engine.create("s", config(context={"fields": fields}))
    for i in range(2):
        slots: list[dict[str, Any]] = [{}, {}]
        slots[i] = {"features": {"size": "big"}}
        with pytest.raises(InvalidInputError, match=rf"^\$\.slots\[{i}\]\.features\.size must be"):
            ask(engine, "x", context={"hour": 3}, slots=slots)
        with pytest.raises(InvalidInputError, match=r"^\$\.context\.hour must be"):
            ask(engine, "x", context={"hour": "x"}, slots=[{"features": {"size": 1}}, {}])


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


def test_many_exclusions_are_refused(data: Path) -> None:
    engine = Engine(data, limits=Limits(max_values=24))
    engine.create("s", config())
    with pytest.raises(LimitError, match=r"\$\.slots must exclude at most 24 .* got 25"):
        ask(engine, "x", slots=[{"exclude": ["a"] * 25}])
    engine.close()


def test_a_list_that_is_wrong_is_refused_alone_beside_others(engine: Engine) -> None:
    engine.create("s", config())
    bodies = [
        msgspec.convert({"context": [1.0, 0.5], "candidates": ARMS, **more}, wire.ListBody)
        for more in ({"k": 2}, {"slots": [{"features": {"size": 1}}]}, {"k": 7}, {"k": 1})
    ]
    requests = [DecisionRequest.of(body) for body in bodies]
    engine.decide_many("s", requests)
    assert [one.error is None for one in requests] == [True, False, False, True]
    assert "$.slots[0].features must be a list" in str(requests[1].error)
    assert [len(json.loads(requests[i].answer)["items"]) for i in (0, 3)] == [2, 1]


def test_a_list_that_takes_long_to_fill_is_known_beforehand(engine: Engine) -> None:
    """So it has a slice of its own, and small requests do not wait for a turn full of such."""
    engine.create("s", config())
    work, arms = engine.space("s").work, [f"a{i}" for i in range(100)]

    def body(**more: Any) -> wire.ListBody:
        return msgspec.convert({"candidates": arms, **more}, wire.ListBody)

    excluding = [{"exclude": [arm]} for arm in arms]
    assert work(body(k=100)) < 1_000 < 50_000 < work(body(slots=excluding))
    assert work(body(slots=[{"baseline": arm} for arm in arms])) > 50_000
    assert work(body(slots=excluding[:3])) < 1_000


# -- how likely it was --------------------------------------------------------------------------


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


def test_each_slot_excluding_another_of_just_enough_candidates(engine: Engine) -> None:
    """Every candidate is a group of its own, and every slot could be left without any."""
    n = 60
    slots = Slots(n, n, [[j] for j in range(n)])
    order = list(range(n))
    assert slots.fill([order]) == [*(j ^ 1 for j in range(n))]
    places = slots.draw(uniforms(0, "x", n))
    assert sorted(places) == order
    assert all(place != j for j, place in enumerate(places))
    chances = slots.chances(places)
    assert chances[0] == slots.prefixes(places)[0] == 1 / (n - 1)
    assert chances[-1] is None


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


def test_a_random_policy_draws_its_lists_as_exploring_does(engine: Engine) -> None:
    engine.create("s", config(**RANDOM))
    assert compare(engine, {"k": 3}, 3_000) > 1e-4
    engine.create("t", config(policy="random"))
    items = ask(engine, "x", "t")["items"]
    assert [item["probability"] for item in items] == [pytest.approx(1 / 6)] * 3
    assert [item["prefix_probability"] for item in items] == pytest.approx([1 / 6, 1 / 30, 1 / 120])
    kept = ask(engine, "y", "t", slots=[{"exclude": ["a"]}, {}])["items"]
    assert kept[1]["probability"] is None


@pytest.mark.parametrize("policy", ["random", "lints"])
def test_what_slots_below_need_changes_how_likely_the_top_is(engine: Engine, policy: str) -> None:
    """The policy's draw may be passed over for them; what is told of the top is true all the same.

    The arms have no plays, so that each of them is drawn as often.
    """
    engine.create("s", config(policy=policy))
    for slots, certain in (
        ([{}, {"exclude": ["b"]}], True),  # b must be on top
        ([{}, {"exclude": ["a", "b"]}], False),  # c must not
        ([{}, {"exclude": ["a"]}, {}], None),
    ):
        n = 3 if certain is None else 2
        candidates, tops, said = ARMS[: 2 if certain else 3], Counter[str](), set()
        for i in range(600):
            top, *_ = ask(engine, f"{n}{certain}{i}", candidates=candidates, slots=slots)["items"]
            tops[top["arm"]] += 1
            said.add(top["probability"])
        if None in said:
            assert said == {None}
        for p in said - {None}:
            assert all(abs(count / 600 - p) < 0.08 for count in tops.values()), (slots, tops, p)
        assert len(tops) == {True: 1, False: 2, None: 3}[certain], tops


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
