"""What the references of all policies share: work A, item features, and one interface."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

import whim
from benchmarks.peers.task import Task
from benchmarks.peers.works import make

F64 = npt.NDArray[np.float64]
Params = dict[str, Any]
ITEM = 3  # item features


@cache
def work() -> Task:
    return make("A")


@cache
def item_features() -> F64:
    return np.random.default_rng(0).normal(size=(work().n_arms, ITEM))


def true_changes() -> dict[int, list[int]]:
    """The true changes of work A, by arm."""
    task = work()
    made = whim.worlds.PiecewiseLinear().episode(horizon=len(task.X), seed=0)
    assert np.array_equal(made.expected, task.expected)
    return made.changes


class Reference:
    """A literal form: scores of all arms for a context, and whether a reward revealed a change."""

    def __init__(self, scores: Callable[[F64], Any], learn: Callable[[int, F64, float], Any]):
        self.scores, self._learn = scores, learn
        # sums that were kept or made quicker than the oracle makes them, and the oracle's own
        self.same: Callable[[], list[tuple[Any, Any]]] = list

    def choose(self, x: F64) -> int:
        """The best arm, of equal ones the first."""
        return int(np.argmax(self.scores(x)))

    def learn(self, arm: int, x: F64, r: float) -> bool:
        """Take one reward."""
        found = self._learn(arm, x, r)
        return found is not None and found is not False


def all_arms() -> range:
    return range(work().n_arms)


def crossed(x: F64) -> F64:
    """The cross features kron(y, x) of each arm."""
    return np.array([np.kron(y, x) for y in item_features()])


def oracle_of(cls: Callable[..., Any], params: Params, **more: Any) -> Any:
    """An oracle with the policy's own parameters, as far as it has them, and all arms."""
    names = inspect.signature(cls).parameters
    made = cls(**{name: value for name, value in params.items() if name in names} | more)
    for arm in all_arms():
        made.add(arm)
    return made


def by_context(oracle: Any) -> Reference:
    return Reference(lambda x: oracle.scores(x, all_arms()), oracle.update)


def rows_of(params: Params) -> Callable[[F64], F64]:
    """φ of every arm for a context, of a model that all arms share."""
    return crossed if params["payoff"] == "cross" else lambda x: item_features()


def by_rows(oracle: Any, params: Params) -> Reference:
    phi = rows_of(params)
    return Reference(
        lambda x: oracle.scores(phi(x), all_arms()),
        lambda arm, x, r: oracle.update(arm, phi(x)[arm], r),
    )


def length_of(params: Params) -> int:
    return ITEM * params["n_features"] if params["payoff"] == "cross" else ITEM


def stream_of(params: Params) -> np.random.Generator:
    return np.random.Generator(np.random.PCG64(params["seed"]))


def renew(oracle: Any, arm: int) -> None:
    """An arm's own sums as if it had never been played."""
    for kept in (oracle.A, oracle.b, getattr(oracle, "B", {})):
        kept.pop(arm, None)
    oracle.add(arm)
