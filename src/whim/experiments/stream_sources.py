"""The streams of ``beyond/streams``: the user's own archives, or one made up per kind of drift.

Each also comes shuffled, which leaves the same contexts and rewards and nothing that changes.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np

from whim.experiments.options import Options
from whim.logs.labelled import Labelled, one_hot, read_npz
from whim.types import F64, I64

STEPS, QUICK_STEPS = 20_000, 1_200
MANY_ARMS = 20  # from so many on, the order of the arms matters: several are run
_SHUFFLE, _ORDER = 104, 105  # random streams, apart from those of worlds and policies


class Stream(NamedTuple):
    """Where a stream comes from: an archive, or the kind, steps and seed of a made-up one."""

    name: str
    path: str = ""
    kind: str = ""
    steps: int = 0
    seed: int = 0

    def load(self) -> Labelled:
        """Its contexts and rewards."""
        if self.path:
            return _read(self.path)
        return _made(self.kind, self.steps, self.seed)


def sources(options: Options) -> list[Stream]:
    """The archives in DIR/drift and DIR, by name; without any, one stream per kind of drift."""
    if options.data is not None:
        files = [*sorted(options.data.glob("drift/*.npz")), *sorted(options.data.glob("*.npz"))]
        if files:
            return [Stream(file.stem, path=str(file)) for file in files]
    steps = QUICK_STEPS if options.quick else STEPS
    return [Stream(kind, kind=kind, steps=steps, seed=options.seed) for kind in KINDS]


def arranged(stream: Stream, *, shuffled: bool, order: int, seed: int) -> tuple[F64, F64]:
    """Contexts and rewards, in time or shuffled, with the arms in one of several orders.

    Order 0 is the file's own.
    """
    X, R, _ = stream.load()
    if shuffled:
        rows = np.random.default_rng([seed, _SHUFFLE]).permutation(len(X))
        X, R = X[rows], R[rows]
    if order:
        R = R[:, np.random.default_rng([seed, order, _ORDER]).permutation(R.shape[1])]
    return np.ascontiguousarray(X), np.ascontiguousarray(R)


@functools.lru_cache(maxsize=2)
def _read(path: str) -> Labelled:
    return read_npz(Path(path))


@functools.lru_cache(maxsize=2)
def _made(kind: str, steps: int, seed: int) -> Labelled:
    rng = np.random.default_rng([seed, list(KINDS).index(kind), 106])
    X, y = KINDS[kind](rng, steps)
    X = np.column_stack([np.ones(len(X)), (X - X.mean(0)) / X.std(0)])
    return Labelled(X, *one_hot(y))


def _sides(X: F64, W: F64, rng: np.random.Generator) -> I64:
    """The class with the largest of w_kᵀx, one in twenty drawn at random instead."""
    y: I64 = np.argmax(np.einsum("nd,nkd->nk", X, np.broadcast_to(W, (len(X), *W.shape[-2:]))), 1)
    return np.where(rng.random(len(y)) < 0.05, rng.integers(W.shape[-2], size=len(y)), y)


def _directions(rng: np.random.Generator, *shape: int) -> F64:
    W = rng.normal(size=shape)
    unit: F64 = W / np.linalg.norm(W, axis=-1, keepdims=True)
    return unit


def _swap(rng: np.random.Generator, n: int) -> tuple[F64, I64]:
    """Four classes around their centres; eight times two of them swap places."""
    centres = 2.0 * _directions(rng, 4, 5)
    X, y = np.empty((n, 5)), rng.integers(4, size=n)
    for part in np.array_split(np.arange(n), 9):
        X[part] = centres[y[part]] + rng.normal(size=(len(part), 5))
        a, b = rng.choice(4, 2, replace=False)
        centres[[a, b]] = centres[[b, a]]
    return X, y


def _turning(degrees: float) -> Callable[[np.random.Generator, int], tuple[F64, I64]]:
    """Three classes by the largest of w_kᵀx, all w_k turning evenly, so far in all."""

    def made(rng: np.random.Generator, n: int) -> tuple[F64, I64]:
        X, W = rng.normal(size=(n, 6)), _directions(rng, 3, 6)
        away = _directions(rng, 3, 6)
        away -= (away * W).sum(1, keepdims=True) * W
        away /= np.linalg.norm(away, axis=1, keepdims=True)
        angle = np.linspace(0.0, np.radians(degrees), n)[:, None, None]
        return X, _sides(X, np.cos(angle) * W + np.sin(angle) * away, rng)

    return made


def _recurring(rng: np.random.Generator, n: int) -> tuple[F64, I64]:
    """Three rules in turn, each coming back four times."""
    X, rules = rng.normal(size=(n, 5)), _directions(rng, 3, 3, 5)
    y = np.empty(n, np.int64)
    for i, part in enumerate(np.array_split(np.arange(n), 12)):
        y[part] = _sides(X[part], rules[i % 3], rng)
    return X, y


def _objects(rng: np.random.Generator, n: int) -> tuple[F64, I64]:
    """Forty objects filmed one after the other in ten rounds, in a light that drifts."""
    n = n // 4
    looks, light = rng.normal(size=(40, 12)), 0.8 * rng.normal(size=(10, 12))
    rounds = [rng.permutation(40) for _ in range(10)]
    place = np.arange(n) * 400 // n
    y = np.concatenate(rounds)[place]
    return looks[y] + light[place // 40] + 0.5 * rng.normal(size=(n, 12)), y


KINDS: dict[str, Callable[[np.random.Generator, int], tuple[F64, I64]]] = {
    "classes swap": _swap,
    "gradual turn": _turning(720.0),
    "recurring interests": _recurring,
    "mild drift": _turning(30.0),
    "nothing changes": _turning(0.0),
    "objects in turn": _objects,
}
