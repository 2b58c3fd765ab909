"""Checks of what is given to ``Writer``: what ``open`` would refuse later is refused at once."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from whim.checks import LARGEST, integer
from whim.errors import InvalidInputError, LogFileError
from whim.logs.numbering import plain_id
from whim.types import F64, ArmId


def check_target(path: str | os.PathLike[str], overwrite: bool) -> None:
    """Whether a log can be made there, before any work is done for it."""
    folder = Path(path)
    if not folder.name or folder.name == "..":
        raise InvalidInputError(f"path must name a folder to make, got {str(folder)!r}.")
    if not folder.exists():
        return
    if not overwrite:
        raise LogFileError(
            f"{folder} is there already; overwrite=True (--overwrite) would replace it."
        )
    if not (folder / "meta.json").is_file() or not (folder / "arms.json").is_file():
        raise LogFileError(f"{folder} is no log, so it is not replaced.")


def int64(time: object) -> int:
    """A time as a column holds it."""
    seconds = integer("time", time, -(2**63))
    if seconds >= 2**63:
        raise InvalidInputError(f"time must be below 2^63, got {time!r}.")
    return seconds


def different(arms: Sequence[ArmId]) -> dict[ArmId, int]:
    """The place of each candidate of an event, in their order."""
    places = {plain_id(arm): place for place, arm in enumerate(arms)}
    if not places or len(places) != len(arms):
        raise InvalidInputError(f"arms must be different ids, at least one, got {list(arms)!r}.")
    return places


def names_of(name: str, names: Sequence[str] | None, length: int) -> list[str] | None:
    """Names of features, one for each."""
    if names is None:
        return None
    if len(names) != length:
        raise InvalidInputError(f"{name} must be {length} names, got {len(names)}.")
    return [str(each) for each in names]


def check_block(
    n: int, x: npt.NDArray[Any], pool: npt.NDArray[Any], logged: npt.NDArray[Any],
    reward: npt.NDArray[Any], offsets: npt.NDArray[Any], members: npt.NDArray[Any],
    item_arm: Sequence[ArmId], Y: F64, m: int,
) -> None:  # fmt: skip
    """What ``open`` would refuse later is refused here."""
    if not all(len(column) == n for column in (x, pool, logged, reward)):
        raise InvalidInputError(f"the columns of a block must all have {n} entries.")
    if Y.shape != (len(item_arm), m):
        raise InvalidInputError(f"item_features must be {(len(item_arm), m)}, got {Y.shape}.")
    sizes = np.diff(offsets)
    if offsets[0] != 0 or offsets[-1] != len(members) or (sizes < 1).any():
        raise InvalidInputError(f"pool_offsets must rise from 0 to {len(members)}.")
    if len(members) and not 0 <= np.min(members) <= np.max(members) < len(item_arm):
        raise InvalidInputError(f"pool_items must lie in 0..{len(item_arm) - 1}.")
    if n and not 0 <= np.min(pool) <= np.max(pool) < len(sizes):
        raise InvalidInputError(f"pool must lie in 0..{len(sizes) - 1}.")
    if ((logged < 0) | (logged >= sizes[pool])).any():
        raise InvalidInputError("logged must be a place within the event's pool.")
    if not (np.abs(reward) <= LARGEST).all() or not (np.abs(Y) <= LARGEST).all():
        raise InvalidInputError(
            f"rewards and features must be finite, at most {LARGEST:g} in size."
        )
