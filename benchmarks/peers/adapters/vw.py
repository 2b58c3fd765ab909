"""Vowpal Wabbit through ``Workspace``, its documented Python class.

It has no LinUCB; of what it has we ask for the cheapest that learns: an example parsed once for
the decision and labelled for the update, which is faster than text twice. Text is made from floats
in each step, as users must; with many features pushing hashes is faster. The direct method was
level with the doubly robust one at ten arms and cheaper at 100 and 1,000, but loses more reward.
F's options were picked by their regret on F itself. ``vw_binding`` does the same past the class.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
from vowpalwabbit import Example, Workspace

from benchmarks.peers.task import Task

_GREEDY = "greedy: no confidence bounds, no exploration"
NOTES = {
    "A": f"--cb, direct method, {_GREEDY}",
    "B": "--cb_explore_adf, candidates as lines of text, epsilon 0.1, direct method",
    "C": "as A, best arm only, one context after the other",
    "D": f"--cb, direct method, {_GREEDY}; hashes instead of text",
    "E": "--cb_adf, arm's name × context and item × context interacting, greedy",
    "F": f"--cb, doubly robust, constant rate (--power_t 0), {_GREEDY}",
}
_PUSH = 20  # features from which hashes are faster than text


def _text(d: int) -> str:
    return " ".join(f"x{i}:%.7g" for i in range(d))


class Calls:
    """The four calls, as documented."""

    def __init__(self, options: str) -> None:
        self.vw = Workspace(options)
        self.names: list[int] = []

    def hash(self, d: int) -> None:
        """Features' names as numbers, for ``push``."""
        space = self.vw.hash_space("u")
        self.names = [self.vw.hash_feature(f"x{i}", space) for i in range(d)]

    def parse(self, text: str) -> Any:
        """One example, or a list of them for several lines."""
        return self.vw.parse(text)

    def push(self, x: np.ndarray) -> Any:
        """An example from numbers, without text."""
        made = Example(self.vw, labelType=self.vw.get_label_type())
        made.push_features("u", list(zip(self.names, x.tolist(), strict=True)))
        made.setup_example()
        return made

    def label(self, made: Any, text: str) -> None:
        """Give an example its label."""
        made.set_label_string(text)

    def predict(self, made: Any) -> Any:
        """The class, or the score of each line."""
        return self.vw.predict(made)

    def learn(self, made: Any) -> None:
        """From an example that has its label by now."""
        self.vw.learn(made)

    def finish(self, made: Any) -> None:
        """Give it back to the engine."""
        self.vw.finish_example(made)


class _Fixed:
    """Arms known from the start, each with its own coefficients."""

    def __init__(self, calls: type[Calls], n_arms: int, d: int, options: str) -> None:
        bits = max(18, (4 * n_arms * d).bit_length())  # room, so that arms do not share weights
        self.calls = calls(f"--cb {n_arms} --noconstant -b {bits} --quiet {options}")
        self.vw = self.calls.vw
        self.text = "| " + _text(d)
        self.calls.hash(d)
        self.example = self.calls.push if d >= _PUSH else self._parsed

    def _parsed(self, x: np.ndarray) -> Any:
        return self.calls.parse(self.text % tuple(x.tolist()))

    def select(self, x: np.ndarray, arms: list[int] | None) -> int:
        self.now = self.example(x)
        chosen: int = self.calls.predict(self.now) - 1
        return chosen

    def update(self, arm: int, x: np.ndarray, reward: float) -> None:
        self.calls.label(self.now, f"{arm + 1}:{-reward:.7g}:1")
        self.now.set_test_only(False)  # it was made without a label
        self.calls.learn(self.now)
        self.calls.finish(self.now)


class _Lines:
    """Candidates as lines: what it calls action-dependent features."""

    def __init__(self, calls: type[Calls], task: Task, options: str, explores: bool) -> None:
        self.calls = calls(f"{options} --noconstant --quiet")
        self.vw = self.calls.vw
        self.text = "shared |u " + _text(task.d)
        self.lines = [f"|a i{k}" for k in range(task.n_arms)]
        if task.m:
            items = [" ".join(f"f{j}:{v:.7g}" for j, v in enumerate(f)) for f in task.features]
            self.lines = [f"{a} |f {b}" for a, b in zip(self.lines, items, strict=True)]
        self.all = list(range(task.n_arms))
        self.explores = explores
        self.uniform = random.Random(0).random

    def select(self, x: np.ndarray, arms: list[int] | None) -> int:
        arms = arms or self.all
        lines = [self.text % tuple(x.tolist()), *[self.lines[a] for a in arms]]
        self.now = self.calls.parse("\n".join(lines))
        scores = self.calls.predict(self.now)
        self.place, self.chance = self._sampled(scores) if self.explores else _least(scores)
        return arms[self.place]

    def _sampled(self, chances: list[float]) -> tuple[int, float]:
        left = self.uniform()
        for place, chance in enumerate(chances):
            left -= chance
            if left < 0:
                return place, chance
        return len(chances) - 1, chances[-1]

    def update(self, arm: int, x: np.ndarray, reward: float) -> None:
        label = f"0:{-reward:.7g}:{self.chance:.5g}"
        self.calls.label(self.now[self.place + 1], label)
        for example in self.now:
            example.set_test_only(False)
        self.calls.learn(self.now)
        self.calls.finish(self.now)


def _least(costs: list[float]) -> tuple[int, float]:
    return costs.index(min(costs)), 1.0


def learner(task: Task, calls: type[Calls] = Calls) -> _Fixed | _Lines:
    """Fixed arms where all are candidates, lines where they are not or have features."""
    if task.name == "B":
        options = "--cb_explore_adf --epsilon 0.1 --cb_type dm -q ua --ignore_linear u"
        return _Lines(calls, task, options, explores=True)
    if task.name == "E":
        alone = "--ignore_linear u --ignore_linear a --ignore_linear f"
        return _Lines(calls, task, f"--cb_adf -q ua -q uf {alone}", explores=False)
    options = "--cb_type dr --power_t 0" if task.name == "F" else "--cb_type dm"
    return _Fixed(calls, task.n_arms, task.d, options)


def batch(
    X: np.ndarray,
    n_arms: int,
    history: tuple[np.ndarray, np.ndarray, np.ndarray],
    calls: type[Calls] = Calls,
) -> Callable[[], list[int]]:
    """There is no batch: one prediction per context."""
    made = _Fixed(calls, n_arms, X.shape[1], "--cb_type dm")
    for x, arm, reward in zip(*history, strict=True):
        made.now = made.example(x)
        made.update(int(arm), x, float(reward))

    def best() -> list[int]:
        chosen = []
        for x in X:
            chosen.append(made.select(x, None))
            made.calls.finish(made.now)
        return chosen

    return best


def start() -> None:
    """First decision, for the time to start."""
    _Fixed(Calls, 20, 6, "--cb_type dm").select(np.ones(6), None)
