"""For the tests of ``spread``: small real runs that any worker can import, and what counts them."""

from __future__ import annotations

import json
import os
import signal
import time
import uuid
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import whim
from whim.errors import InvalidInputError
from whim.evaluate.simulate import simulate
from whim.evaluate.spread import spread
from whim.worlds import PiecewiseLinear


def regret(settings: dict[str, Any]) -> dict[str, Any]:
    """A small PSLinUCB run, and a sum that BLAS would do in other orders on more threads."""
    if "marks" in settings:
        mark(settings)
    world = PiecewiseLinear(n_arms=3, n_features=3, period=100)
    policy = whim.PSLinUCBDisjoint(
        n_features=3, window=settings.get("window", 20), threshold=settings.get("threshold", 0.2)
    )
    result = simulate(world, {"ps": policy}, horizon=250, seed=settings["seed"], runs=1, points=50)
    curve = result.regret["ps"][0]
    long = np.random.default_rng(settings["seed"]).normal(size=200_000)
    return {
        "curve": curve,
        "final": curve[-1],
        "found": int(result.detections["ps"][0].found),
        "steps": result.steps.tolist(),
        "long": float(long @ long[::-1].copy()),
    }


def mark(settings: dict[str, Any]) -> None:
    """Leave a file for this call, so that the runs of each seed can be counted."""
    Path(settings["marks"], f"{settings['seed']}-{uuid.uuid4().hex}").touch()


def die_once(settings: dict[str, Any]) -> dict[str, Any]:
    """As ``regret``; the first worker that meets the seed ``dies`` is killed in the middle."""
    result = regret(settings)
    if settings["seed"] == settings["dies"]:
        try:
            Path(settings["marks"], "died").touch(exist_ok=False)
        except FileExistsError:
            return result
        os.kill(os.getpid(), signal.SIGKILL)
    return result


def die_always(settings: dict[str, Any]) -> dict[str, Any]:
    if settings["seed"] == settings["dies"]:
        os.kill(os.getpid(), signal.SIGKILL)
    return {"seed was": settings["seed"]}


def fail(settings: dict[str, Any]) -> dict[str, Any]:
    if settings["seed"] == 2:
        if settings["kind"] == "whim":
            raise InvalidInputError("window must be an integer >= 2, got 0.")
        raise ZeroDivisionError("no steps")
    return {}


def sleep(settings: dict[str, Any]) -> dict[str, Any]:
    """Not over before the test is."""
    mark(settings)
    time.sleep(600)
    return {}


def wait(settings: dict[str, Any]) -> dict[str, Any]:
    """Seed 0 is over at once, the others when there is a file ``go``."""
    mark(settings)
    if settings["seed"]:
        until(Path(settings["marks"], "go").exists, "the test lets go")
    return {}


def threads(_: int) -> dict[str, Any]:
    from threadpoolctl import threadpool_info

    names = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS")
    counts = [library["num_threads"] for library in threadpool_info()]
    return {"names": [os.environ.get(name) for name in names], "threads": counts}


def odd(settings: dict[str, Any]) -> Any:
    """Results of every kind that can be stored, and of kinds that cannot."""
    kinds: dict[str, Any] = {
        "fine": {
            "file": np.array([[1.5, np.nan], [-0.0, np.inf]]),
            "words": np.array(["a", "ω"]),
            "empty": np.zeros((0, 3), np.float32),
            "one": np.float32(0.1),
            "nan": float("nan"),
            "large": 2**70,
            "list": (1, [None, True, "ω"]),
        },
        "objects": {"array": np.array([{}])},
        "bytes": {"raw": b"policy"},
        "no dict": 3,
    }
    return kinds[settings["kind"]]


# -- in the test's own process -------------------------------------------------


def bits(results: list[Any]) -> list[Any]:
    """Results in a form that is equal only when every bit is."""
    assert results
    return [
        {
            key: (value.dtype.str, value.shape, value.tobytes())
            if isinstance(value, np.ndarray)
            else json.dumps(value)
            for key, value in result.items()
        }
        for result in results
    ]


def tasks(folder: Path | None = None, n: int = 6, **more: Any) -> list[dict[str, Any]]:
    if folder is not None:
        folder.mkdir(exist_ok=True)
        more["marks"] = str(folder)
    return [{"seed": seed, **more} for seed in range(n)]


def calls(folder: Path) -> Counter[int]:
    """How often each seed was run."""
    return Counter(int(path.name.split("-")[0]) for path in folder.glob("*-*"))


def until(holds: Callable[[], Any], what: str, seconds: float = 30.0) -> None:
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, f"waited {seconds:g} s in vain: {what}"
        time.sleep(0.02)


def check_errors(how: dict[str, Any]) -> None:
    with pytest.raises(InvalidInputError, match=r"^window must be an integer >= 2, got 0\.$"):
        spread(fail, tasks(n=4, kind="whim"), **how)
    with pytest.raises(ZeroDivisionError) as caught:
        spread(fail, tasks(n=4, kind="other"), **how)
    assert str(caught.value) == "no steps"
    assert caught.value.__notes__ == ["in task 2: {'seed': 2, 'kind': 'other'}"]


def environment() -> dict[str, str]:
    """For another process: it can import whim and these tests."""
    folders = [str(Path(whim.__file__).parent.parent), str(Path(__file__).parent.parent)]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(folders)}
