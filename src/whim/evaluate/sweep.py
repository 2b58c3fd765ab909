"""``sweep``: one function over a grid of settings and seeds, a tidy row for each run."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from whim import checks
from whim.errors import InvalidInputError
from whim.evaluate.spread import spread
from whim.evaluate.store import TaskStore


def grid(axes: Mapping[str, Sequence[Any]]) -> list[dict[str, Any]]:
    """Every combination of the axes' values; the last axis changes fastest.

    >>> for settings in grid({"window": [50, 100], "alpha": [0.5, 1.0]}):
    ...     print(settings)
    {'window': 50, 'alpha': 0.5}
    {'window': 50, 'alpha': 1.0}
    {'window': 100, 'alpha': 0.5}
    {'window': 100, 'alpha': 1.0}
    """
    columns = [_values(name, values) for name, values in axes.items()]
    return [dict(zip(axes, row, strict=True)) for row in itertools.product(*columns)]


def _values(name: str, values: Any) -> list[Any]:
    if isinstance(values, (str, bytes, Mapping)) or not isinstance(values, Iterable):
        raise InvalidInputError(f"axis {name!r} must be a list of values, got {values!r}.")
    listed = list(values)
    if not listed or any(value in listed[:i] for i, value in enumerate(listed)):
        raise InvalidInputError(f"axis {name!r} must have values, each once, got {listed!r}.")
    return listed


def sweep(
    function: Callable[[dict[str, Any]], Mapping[str, Any]],
    base: Mapping[str, Any],
    axes: Mapping[str, Sequence[Any]],
    *,
    seeds: Iterable[int] = (0,),
    jobs: int = 1,
    engine: str = "local",
    address: str | None = None,
    store: TaskStore | str | os.PathLike[str] | None = None,
    progress: Callable[[int], None] | None = None,
) -> list[dict[str, Any]]:
    """Run ``function`` for every combination of the axes and every seed.

    Parameters
    ----------
    function
        Takes the settings of one run, ``base`` with the axes' values and ``seed``, and returns
        its results by name.
    base
        Settings that all runs share; an axis of the same name replaces one.
    axes
        The values of each setting that changes.
    seeds
        The same for every combination, so that they meet the same worlds.
    jobs, engine, address, store, progress
        As for ``spread``; there are (combinations × seeds) tasks.

    Returns
    -------
    list of dict
        A row for each run: its axes' values, its seed, its results. Combinations in the order of
        ``grid``, seeds fastest.

    Examples
    --------
    >>> def area(settings):
    ...     return {"area": settings["width"] * settings["height"]}
    >>> sweep(area, {"height": 2}, {"width": [1, 3]})
    [{'width': 1, 'seed': 0, 'area': 2}, {'width': 3, 'seed': 0, 'area': 6}]
    """
    if "seed" in axes or "seed" in base:
        raise InvalidInputError("seed must be given by seeds, got it among base or axes.")
    numbers = [checks.integer("seeds", seed, 0) for seed in _values("seeds", seeds)]
    heads = [{**row, "seed": seed} for row in grid(axes) for seed in numbers]
    results = spread(
        function, [{**base, **head} for head in heads], jobs=jobs, engine=engine, address=address,
        store=store, progress=progress,
    )  # fmt: skip
    return [_row(head, result) for head, result in zip(heads, results, strict=True)]


def _row(head: dict[str, Any], result: Mapping[str, Any]) -> dict[str, Any]:
    both = head.keys() & result.keys()
    if both:
        raise InvalidInputError(f"results must not be called as settings are, got {sorted(both)}.")
    return {**head, **result}
