"""The policies of ``beyond/streams``: as they come, and tuned in hindsight.

In hindsight: every setting of a grid is run over the stream itself and the best is shown, which
nobody could have known beforehand. It is what a policy that is not tuned is measured against.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

import whim.policies as whim
from whim.experiments.logistic import DiscountedLogistic
from whim.experiments.stream_sources import Stream, arranged
from whim.kernels.loops import EACH, EventBatch
from whim.policies.run_events import run_events
from whim.types import F64

ADAPTIVE, SCORE_TEST, LINUCB = "AdaptiveLinUCB", "PSLinUCB", "LinUCB"
LOGISTIC, VOWPAL = "Discounted logistic", "Vowpal Wabbit"
HINDSIGHT = ", tuned in hindsight"
_MEMORY = 1000  # steps, where a policy that forgets must be given some
_ALPHAS = (0.03, 0.1, 0.3, 1.0)
_MEMORIES = (100, 300, 1000, 3000)
_QUICK_ALPHAS, _QUICK_MEMORIES = (0.1, 1.0), (100, 300)


class Rival(NamedTuple):
    """A policy: how it is made, its setting as it comes, and those tried in hindsight."""

    make: Callable[..., Any]
    usual: dict[str, Any]
    grid: list[dict[str, Any]]
    clicks_only: bool = False  # rewards must lie in [0, 1]


class Task(NamedTuple):
    """One policy with one setting over a stream, in time or shuffled, in one order of arms."""

    stream: Stream
    shuffled: bool
    order: int
    seed: int
    label: str
    settings: dict[str, Any]


def _gamma(memory: int) -> float:
    return 1.0 - 1.0 / memory


def rivals(*, quick: bool) -> dict[str, Rival]:
    """Every policy by label; those without a grid run as they come only."""
    alphas, memories = (
        (_QUICK_ALPHAS, _QUICK_MEMORIES) if quick else (_ALPHAS, _MEMORIES)
    )  # fmt: skip
    windows = [{"alpha": a, "window": w} for a in alphas for w in memories]
    fading = [{"alpha": a, "gamma": _gamma(w)} for a in alphas for w in memories]
    still = [{"alpha": a, "gamma": 1.0} for a in alphas]
    made = {
        ADAPTIVE: Rival(whim.AdaptiveLinUCB, {}, []),
        SCORE_TEST: Rival(whim.PSLinUCBDisjoint, {}, []),
        LINUCB: Rival(whim.LinUCBDisjoint, {"alpha": 1.0}, [{"alpha": a} for a in alphas]),
        "SWLinUCB": Rival(whim.SWLinUCB, {"alpha": 1.0, "window": _MEMORY}, windows),
        "DLinUCB": Rival(whim.DLinUCB, {"alpha": 1.0, "gamma": _gamma(_MEMORY)}, fading),
        LOGISTIC: Rival(
            DiscountedLogistic, {"alpha": 1.0, "gamma": _gamma(_MEMORY)}, [*fading, *still], True
        ),
    }
    if has_vowpal():
        rates = [{"learning_rate": r, "power_t": p} for r in (0.1, 0.5) for p in (0.0, 0.5)]
        explore = [{"explore": e} for e in ("--epsilon 0.05", "--squarecb")]
        usual = {"explore": "--epsilon 0.05", "learning_rate": 0.5, "power_t": 0.5}
        made[VOWPAL] = Rival(_Vowpal, usual, [e | r for e in explore for r in rates], True)
    return made


def has_vowpal() -> bool:
    """Whether Vowpal Wabbit's Python package is installed; Whim does not ask for it."""
    return importlib.util.find_spec("vowpalwabbit") is not None


def earned(task: Task) -> F64:
    """The reward at every step."""
    X, R = arranged(task.stream, shuffled=task.shuffled, order=task.order, seed=task.seed)
    rival = rivals(quick=False)[task.label]
    policy = rival.make(n_features=X.shape[1], **task.settings)
    if isinstance(policy, _Vowpal):
        return policy.run(X, R)
    n, arms = R.shape
    policy.add_arms(range(arms))
    batch = EventBatch(
        EACH, X, np.zeros(n, np.int64), np.array([0, arms]), np.arange(arms), np.full(n, -1), R
    )
    chosen = run_events(policy, batch).chosen
    return R[np.arange(n), chosen]


class _Vowpal:
    """Vowpal Wabbit's contextual bandit: one regressor per arm, learnt online.

    It knows the probability of each of its choices; draws come from a fixed seed.
    """

    def __init__(self, *, n_features: int, explore: str, learning_rate: float, power_t: float):
        self._words = f"{explore} --learning_rate {learning_rate:g} --power_t {power_t:g}"

    def run(self, X: F64, R: F64) -> F64:
        """The reward at every step of a stream."""
        from vowpalwabbit import Workspace  # type: ignore[import-not-found, unused-ignore]

        made = Workspace(f"--cb_explore {R.shape[1]} {self._words} --quiet")
        draws = np.random.default_rng(0).random(len(X))
        rewards = np.empty(len(X))
        for i, (x, row) in enumerate(zip(X.tolist(), R, strict=True)):
            # names begin with a letter: with bare numbers for names it hardly learns (measured)
            text = "| " + " ".join(f"f{j}:{value:.6f}" for j, value in enumerate(x))
            chances = np.cumsum(made.predict(text))
            arm = min(int(np.searchsorted(chances, draws[i] * chances[-1])), R.shape[1] - 1)
            chance = chances[arm] - (chances[arm - 1] if arm else 0.0)
            rewards[i] = row[arm]
            made.learn(f"{arm + 1}:{-row[arm]:g}:{chance:.6g} {text}")
        made.finish()
        return rewards
