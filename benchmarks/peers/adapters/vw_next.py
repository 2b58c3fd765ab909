"""vowpal-wabbit-next: Vowpal Wabbit 9.9 through newer bindings, asked the same as in ``vw``.

It has no way in but text. An example is parsed for the decision and labelled for the update.
"""

from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np
from vowpal_wabbit_next import CBLabel, TextFormatParser, Workspace

from benchmarks.peers.task import Task

_GREEDY = "greedy: no confidence bounds, no exploration"
NOTES = {
    "A": f"--cb, direct method, {_GREEDY}",
    "B": "--cb_explore_adf, candidates as examples parsed once, epsilon 0.1, direct method",
    "C": "as A, best arm only, one context after the other",
    "D": f"--cb, direct method, {_GREEDY}",
    "E": "--cb_adf, arm's name × context and item × context interacting, greedy",
    "F": f"--cb, doubly robust, constant rate (--power_t 0), {_GREEDY}",
}


def _text(d: int) -> str:
    return " ".join(f"x{i}:%.7g" for i in range(d))


class _Fixed:
    """Arms known from the start, each with its own coefficients."""

    def __init__(self, n_arms: int, d: int, options: str = "--cb_type dm") -> None:
        bits = max(18, (4 * n_arms * d).bit_length())  # room, so that arms do not share weights
        asked = f"--cb {n_arms} --noconstant -b {bits} --quiet {options}"
        self.vw = Workspace(asked.split())
        self.parse = TextFormatParser(self.vw).parse_line
        self.text = "| " + _text(d)

    def select(self, x: np.ndarray, arms: list[int] | None) -> int:
        self.now = self.parse(self.text % tuple(x.tolist()))
        chosen: int = self.vw.predict_one(self.now) - 1
        return chosen

    def update(self, arm: int, x: np.ndarray, reward: float) -> None:
        self.now.set_label(CBLabel(label=(arm + 1, -reward, 1.0)))
        self.vw.learn_one(self.now)


class _Lines:
    """Candidates as lines: what it calls action-dependent features."""

    def __init__(self, task: Task, options: str, explores: bool) -> None:
        self.vw = Workspace(f"{options} --noconstant --quiet".split())
        self.parse = TextFormatParser(self.vw).parse_line
        self.text = "shared |u " + _text(task.d)
        lines = [f"|a i{k}" for k in range(task.n_arms)]
        if task.m:
            items = [" ".join(f"f{j}:{v:.7g}" for j, v in enumerate(f)) for f in task.features]
            lines = [f"{a} |f {b}" for a, b in zip(lines, items, strict=True)]
        # these bindings let an example be used again, so an arm is parsed once
        self.arms = [self.parse(line) for line in lines]
        self.explores = explores
        self.uniform = random.Random(0).random

    def select(self, x: np.ndarray, arms: list[int] | None) -> int:
        candidates = self.arms if arms is None else [self.arms[a] for a in arms]
        self.now = [self.parse(self.text % tuple(x.tolist())), *candidates]
        scores = self.vw.predict_one(self.now)  # pairs, the best first
        place, self.chance = self._sampled(scores) if self.explores else (scores[0][0], 1.0)
        self.place = place + 1
        return place if arms is None else arms[place]

    def _sampled(self, chances: list[tuple[int, float]]) -> tuple[int, float]:
        left = self.uniform()
        for place, chance in chances:
            left -= chance
            if left < 0:
                return place, chance
        return chances[-1]

    def update(self, arm: int, x: np.ndarray, reward: float) -> None:
        chosen = self.now[self.place]
        chosen.set_label(CBLabel(label=(0, -reward, self.chance)))
        self.vw.learn_one(self.now)
        chosen.set_label(CBLabel())


def learner(task: Task) -> _Fixed | _Lines:
    """Fixed arms where all are candidates, lines where they are not or have features."""
    if task.name == "B":
        options = "--cb_explore_adf --epsilon 0.1 --cb_type dm -q ua --ignore_linear u"
        return _Lines(task, options, explores=True)
    if task.name == "E":
        alone = "--ignore_linear u --ignore_linear a --ignore_linear f"
        return _Lines(task, f"--cb_adf -q ua -q uf {alone}", explores=False)
    options = "--cb_type dr --power_t 0" if task.name == "F" else "--cb_type dm"
    return _Fixed(task.n_arms, task.d, options)


def batch(
    X: np.ndarray, n_arms: int, history: tuple[np.ndarray, np.ndarray, np.ndarray]
) -> Callable[[], list[int]]:
    """There is no batch: one prediction per context."""
    made = _Fixed(n_arms, X.shape[1])
    for x, arm, reward in zip(*history, strict=True):
        made.now = made.parse(made.text % tuple(x.tolist()))
        made.update(int(arm), x, float(reward))
    return lambda: [made.select(x, None) for x in X]


def start() -> None:
    """First decision, for the time to start."""
    _Fixed(20, 6).select(np.ones(6), None)
