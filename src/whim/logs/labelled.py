"""Streams in which every arm's reward is known: contexts with the right class, or with rewards.

A classification problem is one: arms are the classes, the right one has reward 1, all others 0.
"""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from whim.checks import LARGEST
from whim.errors import LogFileError
from whim.types import F64, ArmId


class Labelled(NamedTuple):
    """Contexts in order of time, the reward of every arm at each of them, and the arms' ids."""

    X: F64
    rewards: F64
    arms: list[ArmId]


def read_npz(file: Path) -> Labelled:
    """A NumPy archive with ``X`` and either ``y``, the right class, or ``R``, a column per arm.

    Examples
    --------
    >>> import tempfile
    >>> file = Path(tempfile.mkdtemp()) / "tiny.npz"
    >>> np.savez(file, X=[[1.0, 0.5], [1.0, -0.5]], y=["rain", "dry"])
    >>> stream = read_npz(file)
    >>> stream.arms, stream.rewards.tolist()
    (['dry', 'rain'], [[0.0, 1.0], [1.0, 0.0]])
    """
    arrays = _arrays(file)
    if "X" not in arrays or ("y" in arrays) == ("R" in arrays):
        there = ", ".join(sorted(arrays)) or "nothing"
        raise LogFileError(f"{file} must hold X and either y or R, got {there}.")
    X = _matrix(file, "X", arrays["X"])
    if "y" in arrays:
        y = arrays["y"]
        if y.ndim != 1 or len(y) != len(X) or y.dtype.kind not in "biufU":
            raise LogFileError(
                f"{file}: y must be {len(X)} classes, one per row of X, "
                f"got shape {y.shape} of {y.dtype}."
            )
        if y.dtype.kind == "f" and not np.isfinite(y).all():
            raise LogFileError(f"{file}: y must hold classes, got numbers that are not finite.")
        return Labelled(X, *one_hot(y))
    R = _matrix(file, "R", arrays["R"])
    if len(R) != len(X):
        raise LogFileError(f"{file}: R must have {len(X)} rows as X has, got {len(R)}.")
    return Labelled(X, R, list(range(R.shape[1])))


def one_hot(y: npt.NDArray[Any]) -> tuple[F64, list[ArmId]]:
    """Reward 1 for the right class and 0 for the others; classes in their order, as ids."""
    classes, places = np.unique(y, return_inverse=True)
    rewards = np.zeros((len(y), len(classes)))
    rewards[np.arange(len(y)), places.reshape(-1)] = 1.0
    whole = classes.dtype.kind in "biu" or (
        classes.dtype.kind == "f" and bool((classes == np.floor(classes)).all())
    )
    return rewards, [int(c) if whole else str(c) for c in classes.tolist()]


def _arrays(file: Path) -> dict[str, npt.NDArray[Any]]:
    try:
        loaded = np.load(file, allow_pickle=False)
        if not isinstance(loaded, np.lib.npyio.NpzFile):
            raise LogFileError(
                f"{file} must be an archive with named arrays (.npz), got one array."
            )
        with loaded:
            return {name: loaded[name] for name in loaded.files if name in ("X", "y", "R")}
    except FileNotFoundError:
        raise LogFileError(f"{file}: there is no such file.") from None
    except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
        raise LogFileError(f"{file} cannot be read: {str(error).rstrip('.')}.") from None


def _matrix(file: Path, name: str, values: npt.NDArray[Any]) -> F64:
    if values.ndim != 2 or 0 in values.shape or values.dtype.kind not in "biuf":
        raise LogFileError(
            f"{file}: {name} must be a matrix of numbers with a row per step, "
            f"got shape {values.shape} of {values.dtype}."
        )
    numbers = values.astype(np.float64)
    bad = ~(np.abs(numbers) <= LARGEST).all(axis=1)
    if bad.any():
        raise LogFileError(
            f"{file}: {name} must be finite and at most {LARGEST:g} in size, "
            f"got row {int(np.argmax(bad))}, which is not."
        )
    return numbers
