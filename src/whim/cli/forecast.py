"""How long work will take, said before it begins."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any

import typer

_LONG = 60.0  # seconds from which it is said
_MANY = 5_000_000  # steps below which no policy takes so long
_TRIAL = 500  # steps of a trial


def in_words(seconds: float) -> str:
    """A time as people say it.

    >>> in_words(42), in_words(200), in_words(5400)
    ('less than a minute', '3 minutes', '1.5 hours')
    """
    if seconds < 50:
        return "less than a minute"
    minutes = round(seconds / 60)
    if minutes < 90:
        return "a minute" if minutes == 1 else f"{minutes} minutes"
    return f"{seconds / 3600:.1f} hours"


def say_how_long(
    play: Callable[..., Any], *, horizon: int, runs: int, policies: int, jobs: int
) -> None:
    """Try a short run and say what all will take, where it is long; ``play`` takes horizon, runs.

    The trial also compiles what is needed, which is not part of the forecast.
    """
    if runs * horizon * policies < _MANY:
        return
    trial = min(_TRIAL, horizon)
    play(horizon=trial, runs=1)
    began = time.perf_counter()
    play(horizon=trial, runs=1)
    each = (time.perf_counter() - began) / trial
    workers = min(runs, (os.cpu_count() or 1) if jobs == -1 else max(jobs, 1))
    seconds = each * horizon * runs / workers
    if seconds >= _LONG:
        typer.echo(
            f"this will take about {in_words(seconds)} on {workers} "
            f"process{'es' * (workers > 1)}; fewer --runs or a shorter --horizon take less",
            err=True,
        )
