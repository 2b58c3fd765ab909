"""Groups of items by k-means of their features: scikit-learn's, where it is installed."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np

from whim.errors import InvalidInputError
from whim.extras import install
from whim.types import F64, I64

_BLOCK = 4096  # items at a time


def _package(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise InvalidInputError(
            "groups must be 'given' without scikit-learn, which finds them and is not installed: "
            f"{install('features')} ({error})."
        ) from None


def centres(features: F64, groups: int, seed: int) -> F64:
    """(groups, m), or fewer where there are not as many different items."""
    different = np.unique(features, axis=0)
    if len(different) <= groups:
        return different
    cluster = _package("sklearn.cluster").MiniBatchKMeans(
        groups, random_state=seed % 2**32, n_init=3, batch_size=_BLOCK
    )
    with _package("threadpoolctl").threadpool_limits(1):  # sums in one order: the same each time
        found: F64 = cluster.fit(features).cluster_centers_
    return found.astype(np.float64)


def nearest(features: F64, centres: F64) -> I64:
    """For each item the number of the nearest centre."""
    found = np.empty(len(features), np.int64)
    size = np.einsum("gm,gm->g", centres, centres)
    for at in range(0, len(features), _BLOCK):
        some = features[at : at + _BLOCK]
        found[at : at + _BLOCK] = np.argmin(size - 2 * some @ centres.T, axis=1)
    return found
