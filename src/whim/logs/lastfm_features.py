"""Features of LastFM's artists and users: TF-IDF of tags, and soft membership of clusters."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from whim.errors import InvalidInputError
from whim.extras import require
from whim.types import F64, I64

_BREAKS = re.compile(r"[ _-]+")


def _package(name: str) -> Any:
    return require(name, "features", "LastFM's features need")


def one_thread() -> Any:
    """A context in which sums are taken in one order, so that runs agree to the bit."""
    _package("sklearn")
    return _package("threadpoolctl").threadpool_limits(1)


def tag_counts(
    artists: I64,
    tagged: I64,
    tags: I64,
    texts: dict[int, str] | None = None,
) -> tuple[Any, list[int] | list[str]]:
    """How often each artist was given each term: a sparse (artists, terms) matrix, the terms.

    ``artists`` are the rows, ids in ascending order; taggings of others are left out. A term is a
    whole tag, or, with ``texts``, a word of a tag's text in lower case, where blanks, hyphens and
    underscores part words.
    """
    mine = np.isin(tagged, artists)
    rows, ids = np.searchsorted(artists, tagged[mine]), tags[mine]
    terms: list[int] | list[str]
    if texts is None:
        different, columns = np.unique(ids, return_inverse=True)
        terms = different.tolist()
    else:
        used = np.unique(ids).tolist()
        missing = [tag for tag in used if tag not in texts]
        if missing:
            raise InvalidInputError(
                f"tags.dat must hold every tag in use; {len(missing)} are missing, the first "
                f"is {missing[0]}."
            )
        words = {tag: [w for w in _BREAKS.split(texts[tag].lower()) if w] for tag in used}
        terms = sorted({word for some in words.values() for word in some})
        place = {word: i for i, word in enumerate(terms)}
        rows = np.repeat(rows, [len(words[tag]) for tag in ids.tolist()])
        columns = np.array([place[w] for tag in ids.tolist() for w in words[tag]], np.int64)
    shape = (len(artists), len(terms))
    ones = np.ones(len(rows))
    # equal places are summed
    return _package("scipy.sparse").csr_array((ones, (rows, columns)), shape=shape), terms


def reduce_tags(counts: Any, n_components: int, *, method: str, seed: int) -> F64:
    """TF-IDF of the counts (rows of length 1), then ``n_components`` dimensions of it.

    ``method`` is ``"pca"`` (centred and dense) or ``"svd"`` (not centred, so it stays sparse).
    """
    most = min(counts.shape) - (method == "svd")
    if n_components > most:
        raise InvalidInputError(
            f"n_item_features must be at most {most} with {counts.shape[0]} artists and "
            f"{counts.shape[1]} terms, got {n_components}."
        )
    weights = _package("sklearn.feature_extraction.text").TfidfTransformer().fit_transform(counts)
    if method == "svd":
        return _svd(weights, n_components, seed)
    solver = _package("sklearn.decomposition").PCA(n_components, svd_solver="full")
    return np.ascontiguousarray(solver.fit_transform(weights.toarray()))


def factorise(rows: I64, columns: I64, n_factors: int, seed: int) -> F64:
    """Each row's factors UΣ in the best approximation of a 0/1 matrix by one of that rank."""
    shape = (int(rows.max()) + 1, int(columns.max()) + 1)
    if n_factors >= min(shape):
        raise InvalidInputError(
            f"n_factors must be less than {min(shape)} with {shape[0]} users and {shape[1]} "
            f"artists, got {n_factors}."
        )
    matrix = _package("scipy.sparse").csr_array((np.ones(len(rows)), (rows, columns)), shape=shape)
    return _svd(matrix, n_factors, seed)


def _svd(matrix: Any, n_components: int, seed: int) -> F64:
    solver = _package("sklearn.decomposition").TruncatedSVD(
        n_components, algorithm="arpack", random_state=seed
    )
    return np.ascontiguousarray(solver.fit_transform(matrix))


def soft_membership(
    vectors: F64, n_clusters: int, *, bandwidth: float | None = None, seed: int = 0
) -> tuple[F64, I64, float]:
    """Gaussian membership of each vector in each K-means cluster; labels; the bandwidth h.

    Membership in cluster j is proportional to exp(-‖v - c_j‖² / 2h²) and a row sums to 1. The
    bandwidth is the median of all distances between a vector and a centre unless given.
    """
    if len(vectors) < n_clusters:
        raise InvalidInputError(
            f"n_features must be at most the number of users, {len(vectors)}, got {n_clusters}."
        )
    # tol=0: on until no label changes, so that each centre is the mean of its own
    cluster = _package("sklearn.cluster").KMeans(
        n_clusters, n_init=10, tol=0, max_iter=1000, random_state=seed
    )
    labels = cluster.fit_predict(vectors).astype(np.int64)
    gaps = vectors[:, None, :] - cluster.cluster_centers_[None]
    squares = np.einsum("ijk,ijk->ij", gaps, gaps)
    if bandwidth is None:
        bandwidth = float(np.median(np.sqrt(squares)))
        if bandwidth == 0:
            raise InvalidInputError("bandwidth must be given: the median distance is 0.")
    logs = squares / (-2.0 * bandwidth**2)
    # log-sum-exp: the nearest cluster's term is exp(0), so no row can vanish
    parts = np.exp(logs - logs.max(axis=1, keepdims=True))
    return parts / parts.sum(axis=1, keepdims=True), labels, bandwidth
