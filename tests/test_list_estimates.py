"""Estimates from logs of lists against enumeration of all lists, n = 5 and k = 3."""

from __future__ import annotations

import copy
import itertools
import math
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pytest

from tests.oracles import lists as oracle
from whim.evaluate.list_estimates import ListBlock, ListSums

N, K = 5, 3
LISTS = oracle.all_lists(N, K)
F64 = npt.NDArray[np.float64]
Distribution = dict[tuple[int, ...], float]
Outcomes = Callable[[tuple[int, ...]], list[tuple[float, tuple[float, ...], float]]]


def uniform() -> Distribution:
    return dict.fromkeys(LISTS, 1 / len(LISTS))


WANTED, EXPLORE = (3, 0, 4), 0.3


def mixed() -> Distribution:
    return {some: EXPLORE / len(LISTS) + (1 - EXPLORE) * (some == WANTED) for some in LISTS}


def plackett_luce() -> Distribution:
    strength = np.array([0.5, 1.0, 2.0, 0.7, 1.6])
    chances = {}
    for some in LISTS:
        p, left = 1.0, strength.sum()
        for item in some:
            p *= strength[item] / left
            left -= strength[item]
        chances[some] = float(p)
    return chances


def by_slot() -> Distribution:
    """Items 0 and 1 at the top, 2 and 3 in the middle, 4 below: each position by itself."""
    return {(a, b, 4): pa * pb for a, pa in ((0, 0.3), (1, 0.7)) for b, pb in ((2, 0.6), (3, 0.4))}


LOGGING = {"uniform": uniform, "mixed": mixed, None: plackett_luce, "product": by_slot}
rng = np.random.default_rng(3)
RATES = rng.uniform(0.1, 0.9, size=(K, N))
SETS = {some: tuple(rng.uniform(0.1, 0.9, size=K)) for some in LISTS}


def _clicks(chances: Callable[[tuple[int, ...]], F64]) -> Outcomes:
    def outcomes(shown: tuple[int, ...]) -> list[tuple[float, tuple[float, ...], float]]:
        found = []
        for r in itertools.product((0.0, 1.0), repeat=K):
            p = float(
                np.prod([c if one else 1 - c for c, one in zip(chances(shown), r, strict=True)])
            )
            found.append((p, r, sum(r)))
        return found

    return outcomes


def cascade(shown: tuple[int, ...]) -> list[tuple[float, tuple[float, ...], float]]:
    """Looks from the top and stops at the first click."""
    found, still = [], 1.0
    for j, item in enumerate(shown):
        found.append((still * RATES[0, item], tuple(float(i == j) for i in range(K)), 1.0))
        still *= 1 - RATES[0, item]
    return [*found, (still, (0.0,) * K, 0.0)]


independent = _clicks(lambda shown: RATES[np.arange(K), list(shown)])
any_user = _clicks(lambda shown: np.array(SETS[shown]))


def whole(shown: tuple[int, ...]) -> list[tuple[float, tuple[float, ...], float]]:
    """A reward of the list that is a sum over positions, whichever items earn it."""
    total = float(RATES[np.arange(K), list(shown)].sum())
    return [(0.5, (math.nan,) * K, total - 1.0), (0.5, (math.nan,) * K, total + 1.0)]


USERS = {"independent": independent, "cascade": cascade, "any": any_user, "whole": whole}
# who each estimate is right for; the pseudo-inverse must know how whole lists are drawn
RIGHT = {
    "independent": ("slots", "rips", "cdr", "pi", "ips"),
    "cascade": ("rips", "cdr", "ips"),
    "any": ("ips",),
    "whole": ("pi", "ips"),
}


def block_of(
    logging: Distribution, scheme: str | None, shown: tuple[int, ...], chosen: tuple[int, ...],
    rewards: tuple[float, ...], reward: float,
) -> ListBlock:  # fmt: skip
    return ListBlock(
        sizes=np.array([N]), chosen=np.array([chosen]), shown=np.array([shown]),
        rewards=np.array([rewards]), reward=np.array([reward]),
        probabilities=np.array([[oracle.marginal(logging, k, a) for k, a in enumerate(shown)]]),
        prefixes=np.array([[oracle.prefix(logging, shown[: k + 1]) for k in range(K)]]),
        wanted=np.array([WANTED]) if scheme == "mixed" else None,
        explore=np.array([EXPLORE]) if scheme == "mixed" else None,
    )  # fmt: skip


X = np.array([[1.0, 0.4]])


def add(sums: ListSums, block: ListBlock) -> dict[str, float]:
    before = {name: float(each[0]) for name, each in sums._terms.items()}
    sums.add(block, X, block.chosen, block.shown)
    return {name: float(each[0]) - before[name] for name, each in sums._terms.items()}


def history(logging: Distribution) -> list[tuple[tuple[int, ...], tuple[float, ...]]]:
    rng = np.random.default_rng(1)
    return [
        (some, tuple(rng.integers(0, 2, K).astype(float).tolist())) for some in list(logging)[::3]
    ]


def warmed(logging: Distribution, scheme: str | None, chosen: tuple[int, ...]) -> ListSums:
    """Sums whose model of rewards has learnt something, and something wrong."""
    sums = ListSums(K, N, 2, scheme)
    for some, clicks in history(logging):
        add(sums, block_of(logging, scheme, some, chosen, clicks, sum(clicks)))
    return sums


def chosen_of(scheme: str | None) -> list[tuple[int, ...]]:
    return [(1, 2, 4)] if scheme == "product" else [(1, 4, 2), WANTED, (3, 0, 1), (0, 3, 4)]


@pytest.mark.parametrize("scheme", LOGGING)
@pytest.mark.parametrize("user", USERS)
def test_the_expectation_over_all_lists_is_the_truth(user: str, scheme: str | None) -> None:
    logging, outcomes = LOGGING[scheme](), USERS[user]
    for chosen in chosen_of(scheme)[:2]:
        truth = sum(p * reward for p, _, reward in outcomes(chosen))
        start = warmed(logging, scheme, chosen)
        expected = dict.fromkeys(RIGHT[user], 0.0)
        if scheme is None:
            expected.pop("pi", None)
        for shown, chance in logging.items():
            for p, rewards, reward in outcomes(shown):
                block = block_of(logging, scheme, shown, chosen, rewards, reward)
                terms = add(copy.deepcopy(start), block)
                for name in expected:
                    expected[name] += chance * p * terms[name]
        assert expected == pytest.approx(dict.fromkeys(expected, truth), abs=1e-9)


def test_an_estimate_is_wrong_for_other_users() -> None:
    """So the test above can fail: slots under cascade, rips and pi for users of any kind."""
    logging, chosen = uniform(), (1, 4, 2)
    for name, user in (("slots", "cascade"), ("rips", "any"), ("pi", "any")):
        truth = sum(p * reward for p, _, reward in USERS[user](chosen))
        expected = sum(
            chance * p * add(ListSums(K, N, 2, "uniform"), block_of(
                logging, "uniform", shown, chosen, rewards, reward))[name]
            for shown, chance in logging.items()
            for p, rewards, reward in USERS[user](shown)
        )  # fmt: skip
        assert abs(expected - truth) > 0.01


@pytest.mark.parametrize("scheme", LOGGING)
def test_every_term_is_that_of_the_papers(scheme: str | None) -> None:
    logging = LOGGING[scheme]()
    for chosen in chosen_of(scheme):
        target = {chosen: 1.0}
        start = warmed(logging, scheme, chosen)
        tail = _expected(logging, chosen)
        for i, shown in enumerate(logging):
            rewards = tuple(float(one) for one in np.random.default_rng(i).integers(0, 2, K))
            block = block_of(logging, scheme, shown, chosen, rewards, sum(rewards))
            terms = add(copy.deepcopy(start), block)
            assert terms["ips"] == pytest.approx(oracle.sips(target, logging, shown, sum(rewards)))
            assert terms["slots"] == pytest.approx(oracle.iips(target, logging, shown, rewards))
            assert terms["rips"] == pytest.approx(oracle.rips(target, logging, shown, rewards))
            literal = oracle.cascade_dr(target, logging, shown, rewards, _tail(tail))
            assert terms["cdr"] == pytest.approx(literal, abs=1e-9)
            if scheme is not None:
                literal = oracle.pseudo_inverse(target, logging, N, shown, sum(rewards))
                assert terms["pi"] == pytest.approx(literal, abs=1e-8)


def _tail(expected: list[float]) -> oracle.Q:
    return lambda k, _: expected[k]


def _expected(logging: Distribution, chosen: tuple[int, ...]) -> list[float]:
    """What the model expects of a list from each position on, by ``numpy.linalg.inv``."""
    A, b = np.tile(np.eye(2), (N, 1, 1)), np.zeros((N, 2))
    factors = np.zeros((K, 2))
    for shown, rewards in history(logging):
        theta = [np.linalg.inv(A[a]) @ b[a] for a in range(N)]
        for k, item in enumerate(shown):
            factors[k] += rewards[k], theta[item] @ X[0]
        for k, item in enumerate(shown):
            A[item] += np.outer(X[0], X[0])
            b[item] += rewards[k] * X[0]
    means = [float(np.linalg.inv(A[a]) @ b[a] @ X[0]) for a in range(N)]
    scale = [min(max(f[0] / f[1], 0.0), 4.0) if f[1] > 1 else 1.0 for f in factors]
    each = [scale[k] * means[item] for k, item in enumerate(chosen)]
    return [sum(each[k:]) for k in range(K)]
