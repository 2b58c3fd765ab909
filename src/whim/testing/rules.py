"""The rules of the contract for single decisions, each a function of a factory."""

from __future__ import annotations

import math
import struct
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from whim.errors import InvalidInputError, StateFileError, UnknownArmError
from whim.testing.driving import (
    ARMS,
    Factory,
    contexts,
    cross_rows,
    features,
    made,
    plain,
    play,
    refused,
    width,
)


def arms_come_and_go(factory: Factory, steps: int) -> None:
    policy = factory()
    Y = features(3, policy.n_item_features)
    assert policy.add_arms(["a", "b", "c"], features=Y) == ["a", "b", "c"], "new ids are returned"
    assert policy.add_arms(["b", "a"], features=None if Y is None else Y[:2]) == [], "idempotent"
    assert policy.arms == ["a", "b", "c"], "arms keep the order in which they were added"
    policy.retire_arms(["b"])
    assert policy.arms == ["a", "c"], "a retired arm is gone"
    for call in (
        lambda: policy.retire_arms(["b"]),
        lambda: policy.update("b", np.zeros(width(policy)), 1.0),
        lambda: policy.select(np.zeros(width(policy)), ["a", "b"]),
    ):
        refused(policy, call, UnknownArmError, "a retired arm")
    policy.add_arms(["b"], features=None if Y is None else Y[1:2])
    assert policy.arms == ["a", "c", "b"], "an arm that comes back is the newest"
    assert policy.plays("b") == 0, "an arm that comes back starts afresh"


def ids_keep_their_type(factory: Factory, steps: int) -> None:
    policy = made(factory)
    copy = type(policy).from_bytes(policy.to_bytes())
    assert copy.arms == ARMS, f"ids must survive saving, got {copy.arms}"
    assert [type(a) for a in copy.arms] == [type(a) for a in ARMS], "with their types"


def select_takes_the_best_score(factory: Factory, steps: int) -> None:
    policy = made(factory)
    rng = np.random.default_rng(3)
    for x in contexts(policy, 60, 1):
        arms = policy.arms
        candidates = [arms[i] for i in rng.permutation(len(arms))[: int(rng.integers(1, 6))]]
        Z = cross_rows(policy, len(candidates), rng)
        scores = policy.scores(x, candidates, cross=Z)
        ranking = policy.rank(x, candidates, cross=Z)
        decision = policy.select(x, candidates, cross=Z)
        assert scores.shape == (len(candidates),), "one score per candidate"
        assert not np.isnan(scores).any(), "scores are never nan"
        equal = [candidates[i] for i in np.flatnonzero(scores == scores.max())]
        first = min(equal, key=policy.plays) if policy.evens_out else equal[0]
        assert decision.arm == first, "ties go to the first candidate, or the one played least"
        assert ranking[0] == decision, "the ranking starts with the decision"
        order = [d.score for d in ranking]
        assert order == sorted(order, reverse=True), "the ranking is best first"
        assert len(policy.rank(x, candidates, k=1, cross=Z)) == 1, "k cuts the ranking"
        place = candidates.index(decision.arm)
        policy.update(decision.arm, x, 0.5, cross=None if Z is None else Z[place])


def candidate_order_does_not_matter(factory: Factory, steps: int) -> None:
    policy = made(factory)
    if policy.randomised:
        return
    play(policy, steps)
    rng = np.random.default_rng(5)
    for x in contexts(policy, 20, 2):
        order = rng.permutation(len(ARMS))
        Z = cross_rows(policy, len(ARMS), rng)
        straight = policy.scores(x, ARMS, cross=Z)
        mixed = policy.scores(x, [ARMS[i] for i in order], cross=None if Z is None else Z[order])
        assert np.array_equal(straight[order], mixed), "a score depends on its arm alone"


def looking_changes_nothing(factory: Factory, steps: int) -> None:
    policy = made(factory)
    play(policy, 40)
    before = policy.to_bytes()
    rng = np.random.default_rng(5)
    x, Z = contexts(policy, 1, 3)[0], cross_rows(policy, len(ARMS), rng)
    policy.scores(x, cross=Z)
    policy.rank(x, cross=Z)
    if Z is None:
        policy.scores_many(x[None])
    if not policy.randomised:
        policy.select(x, cross=Z)
    assert policy.to_bytes() == before, "scores, rank and scores_many must leave every bit"


def scores_many_agrees_with_scores(factory: Factory, steps: int) -> None:
    policy = made(factory)
    if policy.n_cross_features and not policy.n_item_features:
        return
    play(policy, steps)
    X = contexts(policy, 40, 4)
    many = policy.scores_many(X)
    assert many.shape == (40, len(ARMS)), f"(contexts, arms), got {many.shape}"
    rows = 1 if policy.randomised else 40
    one = np.array([policy.scores(x) for x in X[:rows]])
    finite = np.isfinite(one)
    assert np.array_equal(finite, np.isfinite(many[:rows])), "infinite scores agree"
    assert np.allclose(many[:rows][finite], one[finite], rtol=1e-9, atol=1e-9), "rows agree"
    if policy.params.get("scoring") == "float32":  # a large batch is multiplied in that
        d = width(policy)
        terms = d * (d + 1) // 2 + d  # of a squared width and a mean: a rounding each
        most = float(np.finfo(np.float32).eps) * terms * float(np.abs(one).max())
        large = policy.scores_many(np.tile(X, (8, 1)))
        assert np.abs(large - np.tile(one, (8, 1))).max() <= most, "large batches agree"


def update_many_is_the_loop(factory: Factory, steps: int) -> None:
    one, many = made(factory), made(factory)
    rng = np.random.default_rng(17)
    arms = [ARMS[i] for i in rng.integers(len(ARMS), size=steps)]
    X = contexts(one, steps, 5)
    rewards = np.sin(np.arange(steps) // 40) + 0.1 * rng.normal(size=steps)
    Z = cross_rows(one, steps, rng)
    events = []
    for t in range(steps):
        row = None if Z is None else Z[t]
        event = one.update(arms[t], X[t], float(rewards[t]), cross=row)
        if event is not None:
            events.append(event)
    assert many.update_many(arms, X, rewards, cross=Z) == events, "the same events"
    assert many.to_bytes() == one.to_bytes(), "the same state, to the last bit"
    assert many.step == steps, "steps count updates"


def the_same_seed_gives_the_same_run(factory: Factory, steps: int) -> None:
    first, second = made(factory), made(factory)
    assert play(first, steps) == play(second, steps), "runs must be reproducible"
    assert first.to_bytes() == second.to_bytes(), "to the last bit"


def saving_continues_bit_for_bit(factory: Factory, steps: int) -> None:
    policy = made(factory)
    play(policy, steps)
    policy.retire_arms(["b"])
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "policy.whim"
        policy.save(path)
        copy = type(policy).load(path)
        assert [p.name for p in Path(folder).iterdir()] == [path.name], "nothing is left behind"
    assert copy.to_bytes() == policy.to_bytes(), "a loaded policy saves the same bytes"
    assert play(copy, steps, 1) == play(policy, steps, 1), "the next decisions are the same"
    Y = features(1, policy.n_item_features)
    policy.add_arms(["new"], features=Y)
    copy.add_arms(["new"], features=Y)
    assert play(copy, 50, 2) == play(policy, 50, 2), "also with a new arm"
    assert copy.to_bytes() == policy.to_bytes(), "and the states stay equal"


def damaged_files_are_refused(factory: Factory, steps: int) -> None:
    policy = made(factory)
    play(policy, 30)
    good = policy.to_bytes()
    newer = good[:8] + struct.pack("<I", 999) + good[12:]
    damaged = {"empty": b"", "another kind": b"PK" + good, "newer": newer}
    for cut in (4, 15, len(good) // 2, len(good) - 1):
        damaged[f"cut at {cut}"] = good[:cut]
    for at in np.linspace(0, len(good) - 1, 40).astype(int).tolist():
        damaged[f"altered at {at}"] = good[:at] + bytes([good[at] ^ 1]) + good[at + 1 :]
    for what, data in damaged.items():
        try:
            type(policy).from_bytes(data)
        except StateFileError:
            continue
        raise AssertionError(f"a file that is {what} must be refused")


def bad_input_is_refused_and_harmless(factory: Factory, steps: int) -> None:
    policy = made(factory)
    play(policy, 40)
    d = width(policy)
    x = np.full(d, 0.5)
    bad_contexts: dict[str, Any] = {
        "nan": np.full(d, np.nan),
        "inf": np.full(d, np.inf),
        "1e200": np.full(d, 1e200),
        "text": ["x"] * d,
        "a matrix": np.ones((2, d)),
        "complex": np.ones(d, complex),
        "objects": np.array([None] * d),
    }
    if policy.n_features is not None:
        bad_contexts |= {"too long": np.ones(d + 1), "too short": np.ones(d - 1), "None": None}
    rng = np.random.default_rng(1)
    Z = cross_rows(policy, 1, rng)
    z = None if Z is None else Z[0]
    for what, bad in bad_contexts.items():
        for call in (
            partial(policy.select, bad, ["a"], cross=Z),
            partial(policy.scores, bad, ["a"], cross=Z),
            partial(policy.rank, bad, ["a"], cross=Z),
            partial(policy.update, "a", bad, 1.0, cross=z),
            partial(policy.update_many, ["a", "a"], [x, bad], [1.0, 1.0]),
        ):
            refused(policy, call, InvalidInputError, f"a context of {what}")
    bad_rewards: list[Any] = [math.nan, math.inf, "1", None, 1j, [1.0], 10**400, 1e200]
    for reward in bad_rewards:
        learn = partial(policy.update, "a", x, reward, cross=z)
        refused(policy, learn, InvalidInputError, f"reward {reward!r}")
    bad_candidates: list[Any] = [[], ["a", "a"], "a", [True], [["a"]], 5]
    for arms in bad_candidates:
        choose = partial(policy.select, x, arms, cross=Z)
        refused(policy, choose, InvalidInputError, f"candidates {arms!r}")
    for unknown in ("nobody", 99, ("a", 1)):
        for call in (
            partial(policy.update, unknown, x, 1.0, cross=z),
            partial(policy.select, x, [unknown], cross=Z),
            partial(policy.update_many, ["a", unknown], [x, x], [1.0, 1.0]),
        ):
            refused(policy, call, UnknownArmError, f"the unknown arm {unknown!r}")
    m = policy.n_item_features
    bad_ids: list[Any] = [True, None, math.nan, ["a"]]
    for bad in bad_ids:
        add = partial(policy.add_arms, [bad], features=features(1, m))
        refused(policy, add, InvalidInputError, f"the id {bad!r}")
    wrong = np.ones((1, m + 1))
    others: dict[str, Callable[[], object]] = {
        "a bool as an id": partial(policy.update, True, x, 1.0, cross=z),
        "a list as an id": partial(policy.update, bad_ids[-1], x, 1.0, cross=z),
        "k = 0": partial(policy.rank, x, k=0),
        "fewer rewards than arms": partial(policy.update_many, ["a", "b"], [x, x], [1.0]),
        "wrong item features": partial(policy.add_arms, ["z"], features=wrong),
        "wrong cross features": partial(policy.select, x, ["a"], cross=np.ones((1, 99))),
    }
    for what, other in others.items():
        refused(policy, other, InvalidInputError, what)


def extreme_contexts_stay_finite(factory: Factory, steps: int) -> None:
    for scale in (1e-6, 1e6):
        policy = made(factory)
        play(policy, steps, scale=scale)
        scores = policy.scores_many(contexts(policy, 5, 9) * scale) if plain(policy) else None
        assert scores is None or not np.isnan(scores).any(), f"no nan at scale {scale:g}"
    policy = made(factory, ["only"])
    x = np.full(width(policy), 0.3)
    rng = np.random.default_rng(2)
    for t in range(steps):
        Z = cross_rows(policy, 1, rng)
        decision = policy.select(x, cross=Z)
        assert decision.arm == "only", "one arm is always chosen"
        assert not math.isnan(decision.score), "a constant context gives no nan"
        policy.update("only", x, float(t % 3), cross=None if Z is None else Z[0])


RULES = (
    arms_come_and_go,
    ids_keep_their_type,
    select_takes_the_best_score,
    candidate_order_does_not_matter,
    looking_changes_nothing,
    scores_many_agrees_with_scores,
    update_many_is_the_loop,
    the_same_seed_gives_the_same_run,
    saving_continues_bit_for_bit,
    damaged_files_are_refused,
    bad_input_is_refused_and_harmless,
    extreme_contexts_stay_finite,
)
