"""The state as a file keeps it: one model after another, EVER last, and nothing that only pads.

Files hold what they did when models did not lie side by side yet, so that old ones can be read.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from whim.kernels.models.adaptive.state import COUNT, DRIFTS, JUMPS, REAL, WORLDS, arm_rows
from whim.types import F64

Arrays = dict[str, npt.NDArray[Any]]
_JUMPS = [world for world in REAL if world < JUMPS]
_BY_MODEL = ("weights", "mixed", "gains", "born")


def _triangle(p: int) -> tuple[Any, Any]:
    """Rows and columns of an upper triangle, column by column."""
    columns, rows = np.tril_indices(p)
    return rows, columns


def _unused(models: F64, clock: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
    """Which columns of each slot hold no model."""
    return np.arange(models.shape[2]) > clock[:, [COUNT]]


def to_file(arrays: Arrays, p: int, beginnings: int) -> Arrays:
    """The arrays of a policy as they are saved."""
    order = [*range(1, beginnings + 2), 0]
    made = {name: arrays[name][:, order] for name in _BY_MODEL}
    made["weights"] = made["weights"][:, :, _JUMPS]
    models = arrays["models"].swapaxes(1, 2).copy()
    models[_unused(arrays["models"], arrays["clock"])] = 0.0
    made["models"] = models[:, order]
    drifts: F64 = arrays["drifts"].swapaxes(1, 2)[:, :DRIFTS]
    size = p * (p + 1) // 2
    full = np.zeros((*drifts.shape[:2], p, p))
    rows, columns = _triangle(p)
    full[..., rows, columns] = full[..., columns, rows] = drifts[..., :size]
    flat = full.reshape(*full.shape[:2], p * p)
    made["drifts"] = np.concatenate([flat, drifts[..., size:]], axis=2)
    return arrays | made | {"worlds": arrays["worlds"][:, REAL]}


def from_file(arrays: Arrays, p: int, beginnings: int) -> Arrays:
    """The arrays that ``to_file`` made, side by side again."""
    fresh, slots = arm_rows(p, beginnings), len(arrays["clock"])
    made = {name: np.zeros((slots, *row.shape), row.dtype) for name, row in fresh.items()}
    order = [*range(1, beginnings + 2), 0]
    for name in _BY_MODEL:
        if name != "weights":
            made[name][:, order] = arrays[name]
    made["weights"][np.ix_(range(slots), order, _JUMPS)] = arrays["weights"]
    made["models"][:, :, order] = arrays["models"].swapaxes(1, 2)
    full = arrays["drifts"][..., : p * p].reshape(slots, DRIFTS, p, p)
    rows, columns = _triangle(p)
    own = np.concatenate([full[..., rows, columns], arrays["drifts"][..., p * p :]], axis=2)
    made["drifts"][:, :, :DRIFTS] = own.swapaxes(1, 2)
    unused = _unused(made["models"], arrays["clock"])  # in old files they may hold anything
    made["models"].swapaxes(1, 2)[unused] = 0.0
    made["weights"][unused] = 0.0
    made["mixed"][unused] = 0.0
    worlds = np.zeros((2, WORLDS))
    worlds[:, REAL] = arrays["worlds"]
    changed = ("models", "drifts", *_BY_MODEL)
    return arrays | {name: made[name] for name in changed} | {"worlds": worlds}
