"""Vowpal Wabbit past its Python class: the binding underneath, private calls included.

Undocumented, but what the engine can do from Python; shown beside ``vw`` so that nobody need
wonder how much of its time is the class.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pylibvw

from benchmarks.peers.adapters import vw
from benchmarks.peers.task import Task

NOTES = {work: f"{note}; private calls" for work, note in vw.NOTES.items()}


class _Private(vw.Calls):
    def __init__(self, options: str) -> None:
        super().__init__(options)
        self.kind = self.vw.get_label_type().value
        self.space, self.space_hash = ord("u"), self.vw.hash_space("u")

    def push(self, x: np.ndarray) -> Any:
        made = pylibvw.example(self.vw, self.kind)
        made.push_namespace(self.space)
        values = list(zip(self.names, x.tolist(), strict=True))
        made.push_feature_list(self.vw, self.space, self.space_hash, values)
        self.vw.setup_example(made)
        return made

    def label(self, made: Any, text: str) -> None:
        made.set_label_string(self.vw, text, self.kind)

    def parse(self, text: str) -> Any:
        made = self.vw._parse(text)
        return made if len(made) > 1 else made[0]

    def predict(self, made: Any) -> Any:
        if isinstance(made, list):
            pylibvw.vw.predict_multi(self.vw, made)
            return made[0].get_action_scores()
        pylibvw.vw.predict(self.vw, made)
        return made.get_multiclass_prediction()

    def learn(self, made: Any) -> None:
        if isinstance(made, list):
            pylibvw.vw.learn_multi(self.vw, made)
        else:
            pylibvw.vw.learn(self.vw, made)

    def finish(self, made: Any) -> None:
        if isinstance(made, list):
            pylibvw.vw._finish_example_multi_ex(self.vw, made)
        else:
            pylibvw.vw._finish_example(self.vw, made)


def learner(task: Task) -> Any:
    """As ``vw.learner``."""
    return vw.learner(task, _Private)


def batch(
    X: np.ndarray, n_arms: int, history: tuple[np.ndarray, np.ndarray, np.ndarray]
) -> Callable[[], list[int]]:
    """As ``vw.batch``."""
    return vw.batch(X, n_arms, history, _Private)


start = vw.start
