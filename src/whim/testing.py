"""``check_policy``: the contract as a suite that every policy passes, and yours can.

Each check is a function of a factory; a broken rule raises ``AssertionError`` that names it.
"""

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
from whim.policies import Policy
from whim.types import F64, ArmId

__all__ = ["check_policy"]

Factory = Callable[[], Policy]

_ARMS: list[ArmId] = ["a", "b", 3, ("d", 4), "e"]


def check_policy(factory: Factory, *, steps: int = 300) -> list[str]:
    """Hold a policy to the contract.

    Parameters
    ----------
    factory
        Makes a fresh policy with no arms, the same one each time.
    steps
        Plays in the checks that learn; a policy with windows should fill them in fewer.

    Returns
    -------
    list
        The names of the rules that were checked, all of which held.

    Examples
    --------
    >>> import whim
    >>> from whim.testing import check_policy
    >>> passed = check_policy(lambda: whim.LinUCBDisjoint(n_features=3))
    >>> "saving_continues_bit_for_bit" in passed
    True
    """
    policy = factory()
    assert isinstance(policy, Policy), f"factory must make a Policy, got {policy!r}"
    assert not policy.arms, "factory must make a policy with no arms"
    for check in _CHECKS:
        try:
            check(factory, steps)
        except AssertionError as error:
            raise AssertionError(f"{check.__name__}: {error}") from error
    return [check.__name__ for check in _CHECKS]


# -- driving a policy ---------------------------------------------------------------------------


def _features(n: int, m: int, seed: int = 0) -> F64 | None:
    return np.random.default_rng([7, seed]).normal(size=(n, m)) / math.sqrt(m) if m else None


def _cross(policy: Policy, rows: int, rng: np.random.Generator) -> F64 | None:
    """Rows of cross features, for a policy that cannot make its own."""
    k = policy.n_cross_features
    return rng.normal(size=(rows, k)) / math.sqrt(k) if k and not policy.n_item_features else None


def _made(factory: Factory, arms: list[ArmId] = _ARMS) -> Policy:
    policy = factory()
    policy.add_arms(arms, features=_features(len(arms), policy.n_item_features))
    return policy


def _width(policy: Policy) -> int:
    return policy.n_features or 2


def _contexts(policy: Policy, n: int, seed: int) -> F64:
    d = _width(policy)
    return np.random.default_rng([11, seed]).normal(size=(n, d)) / math.sqrt(d)


def _play(policy: Policy, steps: int, seed: int = 0, scale: float = 1.0) -> list[Any]:
    """Decide and learn, with candidates that differ from step to step; what happened."""
    rng = np.random.default_rng([13, seed])
    contexts = _contexts(policy, steps, seed) * scale
    trace: list[Any] = []
    for t, x in enumerate(contexts):
        arms = policy.arms
        size = int(rng.integers(1, len(arms) + 1))
        candidates = [arms[i] for i in rng.permutation(len(arms))[:size]]
        Z = _cross(policy, size, rng)
        decision = policy.select(x, candidates, cross=Z)
        place = candidates.index(decision.arm)
        # rewards that depend on the arm and jump, so that detectors have work to do
        level = math.sin(arms.index(decision.arm) + t // 60)
        reward = level + 0.1 * float(rng.normal())
        event = policy.update(decision.arm, x, reward, cross=None if Z is None else Z[place])
        trace.append((decision, event))
    return trace


# -- the rules ----------------------------------------------------------------------------------


def arms_come_and_go(factory: Factory, steps: int) -> None:
    policy = factory()
    Y = _features(3, policy.n_item_features)
    assert policy.add_arms(["a", "b", "c"], features=Y) == ["a", "b", "c"], "new ids are returned"
    assert policy.add_arms(["b", "a"], features=None if Y is None else Y[:2]) == [], "idempotent"
    assert policy.arms == ["a", "b", "c"], "arms keep the order in which they were added"
    policy.retire_arms(["b"])
    assert policy.arms == ["a", "c"], "a retired arm is gone"
    for call in (
        lambda: policy.retire_arms(["b"]),
        lambda: policy.update("b", np.zeros(_width(policy)), 1.0),
        lambda: policy.select(np.zeros(_width(policy)), ["a", "b"]),
    ):
        _refused(policy, call, UnknownArmError, "a retired arm")
    policy.add_arms(["b"], features=None if Y is None else Y[1:2])
    assert policy.arms == ["a", "c", "b"], "an arm that comes back is the newest"
    assert policy.plays("b") == 0, "an arm that comes back starts afresh"


def ids_keep_their_type(factory: Factory, steps: int) -> None:
    policy = _made(factory)
    copy = type(policy).from_bytes(policy.to_bytes())
    assert copy.arms == _ARMS, f"ids must survive saving, got {copy.arms}"
    assert [type(a) for a in copy.arms] == [type(a) for a in _ARMS], "with their types"


def select_takes_the_best_score(factory: Factory, steps: int) -> None:
    policy = _made(factory)
    rng = np.random.default_rng(3)
    for x in _contexts(policy, 60, 1):
        arms = policy.arms
        candidates = [arms[i] for i in rng.permutation(len(arms))[: int(rng.integers(1, 6))]]
        Z = _cross(policy, len(candidates), rng)
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
    policy = _made(factory)
    if policy.randomised:
        return
    _play(policy, steps)
    rng = np.random.default_rng(5)
    for x in _contexts(policy, 20, 2):
        order = rng.permutation(len(_ARMS))
        Z = _cross(policy, len(_ARMS), rng)
        straight = policy.scores(x, _ARMS, cross=Z)
        mixed = policy.scores(x, [_ARMS[i] for i in order], cross=None if Z is None else Z[order])
        assert np.array_equal(straight[order], mixed), "a score depends on its arm alone"


def looking_changes_nothing(factory: Factory, steps: int) -> None:
    policy = _made(factory)
    _play(policy, 40)
    before = policy.to_bytes()
    rng = np.random.default_rng(5)
    x, Z = _contexts(policy, 1, 3)[0], _cross(policy, len(_ARMS), rng)
    policy.scores(x, cross=Z)
    policy.rank(x, cross=Z)
    if Z is None:
        policy.scores_many(x[None])
    if not policy.randomised:
        policy.select(x, cross=Z)
    assert policy.to_bytes() == before, "scores, rank and scores_many must leave every bit"


def scores_many_agrees_with_scores(factory: Factory, steps: int) -> None:
    policy = _made(factory)
    if policy.n_cross_features and not policy.n_item_features:
        return
    _play(policy, steps)
    X = _contexts(policy, 40, 4)
    many = policy.scores_many(X)
    assert many.shape == (40, len(_ARMS)), f"(contexts, arms), got {many.shape}"
    rows = 1 if policy.randomised else 40
    one = np.array([policy.scores(x) for x in X[:rows]])
    finite = np.isfinite(one)
    assert np.array_equal(finite, np.isfinite(many[:rows])), "infinite scores agree"
    assert np.allclose(many[:rows][finite], one[finite], rtol=1e-9, atol=1e-9), "rows agree"
    if policy.params.get("scoring") == "float32":  # a large batch is multiplied in that
        d = _width(policy)
        terms = d * (d + 1) // 2 + d  # of a squared width and a mean: a rounding each
        most = float(np.finfo(np.float32).eps) * terms * float(np.abs(one).max())
        large = policy.scores_many(np.tile(X, (8, 1)))
        assert np.abs(large - np.tile(one, (8, 1))).max() <= most, "large batches agree"


def update_many_is_the_loop(factory: Factory, steps: int) -> None:
    one, many = _made(factory), _made(factory)
    rng = np.random.default_rng(17)
    arms = [_ARMS[i] for i in rng.integers(len(_ARMS), size=steps)]
    X = _contexts(one, steps, 5)
    rewards = np.sin(np.arange(steps) // 40) + 0.1 * rng.normal(size=steps)
    Z = _cross(one, steps, rng)
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
    first, second = _made(factory), _made(factory)
    assert _play(first, steps) == _play(second, steps), "runs must be reproducible"
    assert first.to_bytes() == second.to_bytes(), "to the last bit"


def saving_continues_bit_for_bit(factory: Factory, steps: int) -> None:
    policy = _made(factory)
    _play(policy, steps)
    policy.retire_arms(["b"])
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "policy.whim"
        policy.save(path)
        copy = type(policy).load(path)
        assert [p.name for p in Path(folder).iterdir()] == [path.name], "nothing is left behind"
    assert copy.to_bytes() == policy.to_bytes(), "a loaded policy saves the same bytes"
    assert _play(copy, steps, 1) == _play(policy, steps, 1), "the next decisions are the same"
    Y = _features(1, policy.n_item_features)
    policy.add_arms(["new"], features=Y)
    copy.add_arms(["new"], features=Y)
    assert _play(copy, 50, 2) == _play(policy, 50, 2), "also with a new arm"
    assert copy.to_bytes() == policy.to_bytes(), "and the states stay equal"


def damaged_files_are_refused(factory: Factory, steps: int) -> None:
    policy = _made(factory)
    _play(policy, 30)
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
    policy = _made(factory)
    _play(policy, 40)
    d = _width(policy)
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
    Z = _cross(policy, 1, rng)
    z = None if Z is None else Z[0]
    for what, bad in bad_contexts.items():
        for call in (
            partial(policy.select, bad, ["a"], cross=Z),
            partial(policy.scores, bad, ["a"], cross=Z),
            partial(policy.rank, bad, ["a"], cross=Z),
            partial(policy.update, "a", bad, 1.0, cross=z),
            partial(policy.update_many, ["a", "a"], [x, bad], [1.0, 1.0]),
        ):
            _refused(policy, call, InvalidInputError, f"a context of {what}")
    bad_rewards: list[Any] = [math.nan, math.inf, "1", None, 1j, [1.0], 10**400, 1e200]
    for reward in bad_rewards:
        learn = partial(policy.update, "a", x, reward, cross=z)
        _refused(policy, learn, InvalidInputError, f"reward {reward!r}")
    bad_candidates: list[Any] = [[], ["a", "a"], "a", [True], [["a"]], 5]
    for arms in bad_candidates:
        choose = partial(policy.select, x, arms, cross=Z)
        _refused(policy, choose, InvalidInputError, f"candidates {arms!r}")
    for unknown in ("nobody", 99, ("a", 1)):
        for call in (
            partial(policy.update, unknown, x, 1.0, cross=z),
            partial(policy.select, x, [unknown], cross=Z),
            partial(policy.update_many, ["a", unknown], [x, x], [1.0, 1.0]),
        ):
            _refused(policy, call, UnknownArmError, f"the unknown arm {unknown!r}")
    m = policy.n_item_features
    bad_ids: list[Any] = [True, None, math.nan, ["a"]]
    for bad in bad_ids:
        add = partial(policy.add_arms, [bad], features=_features(1, m))
        _refused(policy, add, InvalidInputError, f"the id {bad!r}")
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
        _refused(policy, other, InvalidInputError, what)


def _refused(policy: Policy, call: Callable[[], object], error: type[Exception], what: str) -> None:
    before = policy.to_bytes()
    message = None
    try:
        call()
    except error as found:
        message = str(found)
    assert message is not None, f"{what} must raise {error.__name__}"
    assert message, f"the error for {what} must say something"
    assert policy.to_bytes() == before, f"{what} must leave the state untouched"


def extreme_contexts_stay_finite(factory: Factory, steps: int) -> None:
    for scale in (1e-6, 1e6):
        policy = _made(factory)
        _play(policy, steps, scale=scale)
        scores = policy.scores_many(_contexts(policy, 5, 9) * scale) if _plain(policy) else None
        assert scores is None or not np.isnan(scores).any(), f"no nan at scale {scale:g}"
    policy = _made(factory, ["only"])
    x = np.full(_width(policy), 0.3)
    rng = np.random.default_rng(2)
    for t in range(steps):
        Z = _cross(policy, 1, rng)
        decision = policy.select(x, cross=Z)
        assert decision.arm == "only", "one arm is always chosen"
        assert not math.isnan(decision.score), "a constant context gives no nan"
        policy.update("only", x, float(t % 3), cross=None if Z is None else Z[0])


def _plain(policy: Policy) -> bool:
    return not policy.n_cross_features or bool(policy.n_item_features)


_CHECKS = (
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
