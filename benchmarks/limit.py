"""How near Whim's compiled loop comes to C that does the same steps.

``python -m benchmarks.limit``. All sides get the works' arrays (``benchmarks.peers.works``) and
must choose the same arms at every step; seconds are the thread's own, so that other processes
count little. Two kinds of C, neither of which checks anything or keeps more than the inverse:

- plain.c, as one would first write it, sizes known at run time as in any library: the bars;
- tuned.c, compiled for the very sizes of A, B and E, each work in the fastest layout found
  (candidates side by side; 4 x 4 tiles for D): what the processor can do at most, beside it.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import time
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

import whim
from benchmarks.measure import Row, compare, emit, interleave, progress
from benchmarks.peers.task import Task
from benchmarks.peers.works import make
from whim.kernels.loops import EACH, MATCH, EventBatch
from whim.policies.run_events import run_events

__all__ = ["FLAGS", "library", "main", "rows"]

F64 = npt.NDArray[np.float64]
I64 = npt.NDArray[np.int64]

# a square root need not set errno, or it is not done four at a time; numbers stay as they are
FLAGS = ("-O3", "-march=native", "-fno-math-errno", "-Wno-psabi", "-shared", "-fPIC")
_SOURCES = [Path(__file__).with_name(name) for name in ("plain.c", "tuned.c")]
_FOLDER = _SOURCES[0].parent.parent / ".bench"


@cache
def library() -> ctypes.CDLL | None:
    """Both sources, compiled now; None, and a line that says so, without a compiler."""
    compiler = shutil.which("cc")
    if compiler is None:
        progress("limit: there is no C compiler (cc) here, so no C loop to compare with")
        return None
    _FOLDER.mkdir(exist_ok=True)
    made, fresh = _FOLDER / "limit.so", _FOLDER / f"limit-{os.getpid()}.so"
    subprocess.run([compiler, *FLAGS, "-o", str(fresh), *map(str, _SOURCES), "-lm"], check=True)
    fresh.replace(made)
    found = ctypes.CDLL(str(made))
    found.total.restype = ctypes.c_double
    return found


def _call(name: str, *arguments: int | float | npt.NDArray[Any] | None) -> float:
    """Seconds of one call; arrays must be contiguous."""
    made: list[Any] = []
    for value in arguments:
        if isinstance(value, np.ndarray):
            assert value.flags.carray
            made.append(ctypes.c_void_p(value.ctypes.data))
        elif isinstance(value, float):
            made.append(ctypes.c_double(value))
        else:
            made.append(ctypes.c_void_p(None) if value is None else ctypes.c_int64(value))
    function = getattr(library(), name)
    start = time.thread_time()
    function(*made)
    return time.thread_time() - start


# -- models that have learnt nothing, as tuned.c wants them -------------------------------------


def _aligned(values: F64) -> F64:
    """A copy that starts a cache line."""
    room = np.empty(values.size + 8)
    at = -(room.ctypes.data // 8) % 8
    copy = room[at : at + values.size].reshape(values.shape)
    copy[...] = values
    return copy


def _triangle(d: int) -> F64:
    """The upper triangle of I row by row, then theta."""
    return np.concatenate([np.eye(d)[np.triu_indices(d)], np.zeros(d)])


def _tiles(d: int) -> F64:
    """The 4 x 4 tiles of the upper triangle of I, then theta."""
    tiles = np.eye(d).reshape(d // 4, 4, d // 4, 4).swapaxes(1, 2)
    return np.concatenate([tiles[np.triu_indices(d // 4)].ravel(), np.zeros(d)])


# -- one work -----------------------------------------------------------------------------------


class _Work(NamedTuple):
    """A work as events by pool: what Whim runs over, and the pools as rows."""

    task: Task
    stretch: EventBatch
    pools: I64


def _work(name: str, mode: int = EACH) -> _Work:
    task = make(name)
    n = len(task.X)
    if task.pools.size:
        new = np.r_[True, (task.pools[1:] != task.pools[:-1]).any(axis=1)]
        pools, pool_of = task.pools[new], np.cumsum(new) - 1
    else:
        pools, pool_of = np.arange(task.n_arms)[None], np.zeros(n, np.int64)
    width = pools.shape[1]
    rewards = np.take_along_axis(task.R, pools[pool_of], axis=1)
    logged = np.random.default_rng(2).integers(width, size=n)
    if mode == MATCH:
        rewards = np.take_along_axis(rewards, logged[:, None], axis=1)
    offsets = np.arange(len(pools) + 1) * width
    X, rewards = np.ascontiguousarray(task.X), np.ascontiguousarray(rewards)
    stretch = EventBatch(mode, X, pool_of, offsets, pools.ravel(), logged, rewards)
    return _Work(task, stretch, pools)


def _policy(task: Task) -> whim.Policy:
    if not task.m:
        disjoint = whim.LinUCBDisjoint(n_features=task.d, alpha=task.alpha)
        disjoint.add_arms(range(task.n_arms))
        return disjoint
    hybrid = whim.LinUCBHybrid(n_features=task.d, n_item_features=task.m, alpha=task.alpha)
    hybrid.add_arms(range(task.n_arms), features=task.features)
    return hybrid


def _walked(work: _Work, chosen: I64) -> float:
    """Seconds per step of Whim's loop."""
    policy = _policy(work.task)
    start = time.thread_time()
    found = run_events(policy, work.stretch)
    seconds = time.thread_time() - start
    chosen[:] = found.chosen
    return seconds / len(chosen)


def _in_plain_c(work: _Work, chosen: I64) -> float:
    """Seconds per step of plain.c."""
    (task, (mode, X, pool_of, _, _, logged, rewards), pools), n = work, len(chosen)
    state = _plain_state(task)
    if task.m:
        sizes = n, task.d, task.m, task.n_arms, task.alpha
        return _call("plain_hybrid", *sizes, X, task.features, rewards, *state, chosen) / n
    only = logged if mode == MATCH else None
    sizes = n, task.d, pools.shape[1], task.alpha
    return _call("plain_disjoint", *sizes, X, pool_of, pools, only, rewards, *state, chosen) / n


def _plain_state(task: Task) -> list[F64]:
    """A⁻¹ and theta of every arm; for hybrid payoffs C, A0⁻¹ and beta as well."""
    K, d, k = task.n_arms, task.d, task.d * task.m
    state = [np.tile(np.eye(d), (K, 1, 1)), np.zeros((K, d))]
    return [*state, np.zeros((K, d, k)), np.eye(k), np.zeros(k)] if task.m else state


def _in_tuned_c(work: _Work, chosen: I64) -> float:
    """Seconds per step of tuned.c."""
    (task, (mode, X, pool_of, _, _, logged, rewards), pools), n = work, len(chosen)
    K, d = task.n_arms, task.d
    if task.m:
        own = _aligned(np.tile(_triangle(d)[:, None], K))
        C, Y = _aligned(np.zeros((d * task.m, d, K))), _aligned(task.features.T)
        shared = _aligned(_tiles(d * task.m))
        return _call("hybrid", n, task.alpha, X, Y, rewards, own, C, shared, chosen) / n
    if d % 4 == 0:
        models = _aligned(np.tile(_tiles(d), (K, 1)))
        return _call("disjoint_long", n, d, K, task.alpha, X, rewards, models, chosen) / n
    models = _aligned(np.tile(_triangle(d), (K, 1)))
    only = logged if mode == MATCH else None
    seconds = _call(
        "disjoint", n, d, pools.shape[1], task.alpha, X, pool_of, pools, only, rewards, models,
        chosen,
    )  # fmt: skip
    return seconds / n


def _loop(name: str, mode: int, rounds: int) -> list[Row]:
    work = _work(name, mode)
    n = len(work.task.X)
    chosen = {side: np.empty(n, np.int64) for side in ("whim", "plain", "tuned")}
    makers = {"whim": _walked, "plain": _in_plain_c, "tuned": _in_tuned_c}
    sides = {side: partial(make, work, chosen[side]) for side, make in makers.items()}
    found = interleave(sides, rounds)
    what = f"{name}, replay" if mode == MATCH else name
    for side in ("plain", "tuned"):
        different = np.flatnonzero(chosen["whim"] != chosen[side])
        if len(different):
            raise AssertionError(
                f"{what}: {len(different)} choices of {side}.c differ, first in {different[0]}."
            )
    progress(f"limit: {what}: all {n} choices equal")
    task, width = work.task, work.pools.shape[1]
    model = f"LinUCB {'hybrid' if task.m else 'disjoint'}"
    note = f"{model}, {width} candidates of {task.n_arms}, d={task.d}, {n} steps, µs per step"
    against = partial(compare, slowness=True)
    return [
        against(f"limit: {what}", found["whim"], found["tuned"], wanted="", note=note),
        against(f"limit: {what}, plain C", found["whim"], found["plain"], wanted="<=2"),
    ]


# -- updates alone ------------------------------------------------------------------------------


def _updates(name: str, rounds: int) -> list[Row]:
    """``update_many`` with ids as an array and as a list, against plain and tuned C."""
    task = make(name)
    n, K, d = len(task.X), task.n_arms, task.d
    X, Y = np.ascontiguousarray(task.X), np.ascontiguousarray(task.features)
    slots = np.random.default_rng(3).integers(K, size=n)
    ids = slots.tolist()
    r = task.R[np.arange(n), slots]
    last: dict[str, Any] = {}

    def many(learn: Callable[[Any], object]) -> float:
        policy = last["whim"] = _policy(task)
        start = time.thread_time()
        learn(policy)
        return (time.thread_time() - start) / n

    def in_c() -> float:
        own = _tiles(d) if d % 4 == 0 else _triangle(d)
        if task.m:
            own = np.concatenate([np.zeros(d * d * task.m), own, np.zeros(5)])
        models = last["models"] = _aligned(np.tile(own, (K, 1)))
        if task.m:
            shared = last["shared"] = _aligned(_tiles(d * task.m))
            return _call("update_hybrid", n, slots, X, Y, r, models, shared) / n
        if d % 4 == 0:
            return _call("update_long", n, d, slots, X, r, models) / n
        return _call("update_short", n, slots, X, r, models) / n

    def in_plain_c() -> float:
        state = _plain_state(task)
        if task.m:
            return _call("plain_update_hybrid", n, d, task.m, slots, X, Y, r, *state) / n
        return _call("plain_update", n, d, slots, X, r, *state) / n

    sides = {
        "array": partial(many, lambda policy: policy.update_many(slots, X, r)),
        "list": partial(many, lambda policy: policy.update_many(ids, X, r)),
        "plain": in_plain_c,
        "tuned": in_c,
    }
    found = interleave(sides, rounds)
    policy = last["whim"]
    if task.m:
        ours, theirs = policy.shared_coefficients(), last["shared"][-d * task.m :]
    else:
        ours, theirs = [policy.coefficients(a) for a in range(K)], last["models"][:, -d:]
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-9)
    note = f"K={K}, d={d}, {n} plays per call, µs per play; ids as an array, checked and looked up"
    against = partial(compare, slowness=True)
    what = f"limit: update_many, {name}"
    return [
        against(what, found["array"], found["tuned"], wanted="", note=note),
        against(f"{what}, ids as a list", found["list"], found["tuned"], wanted=""),
        against(f"{what}, plain C", found["array"], found["plain"], wanted="<=2"),
    ]


def rows(rounds: int = 21) -> list[Row]:
    """Whim's loop against C on A, B, D and E, B as a replay, and updates; [] with no compiler."""
    if library() is None:
        return []
    found = []
    for name, mode in (("A", EACH), ("B", EACH), ("B", MATCH), ("D", EACH), ("E", EACH)):
        found += _loop(name, mode, rounds)
    for name in "ADE":
        found += _updates(name, rounds)
    return found


def main() -> None:
    """``python -m benchmarks.limit``."""
    emit(rows())


if __name__ == "__main__":
    main()
