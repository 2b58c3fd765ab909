"""What the fast policies keep, as plain matrices: the one test file that knows their layout."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.linalg import solve_triangular

import whim
from whim.kernels.detection import mean_residual, windows
from whim.kernels.linalg import udu

__all__ = [
    "Model",
    "Shared",
    "Window",
    "chunks",
    "cum",
    "pre",
    "ridge_model",
    "seeded",
    "shared",
    "sums",
    "theta_pre",
    "window",
]

F64 = npt.NDArray[np.float64]


class Model(NamedTuple):
    """One arm's model: ``A``, its inverse, ``t = A⁻¹b``, ``C = A⁻¹B``, ``b`` and ``B``.

    Without cross features C and B have no columns.
    """

    A: F64
    A_inv: F64
    t: F64
    C: F64
    b: F64
    B: F64


class Shared(NamedTuple):
    """``A0``, its inverse, ``b0`` and ``beta`` of G_cum or G_pre."""

    A0: F64
    A0_inv: F64
    b0: F64
    beta: F64


class Window(NamedTuple):
    """An arm's window, oldest first: a row an observation."""

    X: F64
    Z: F64
    r: F64


def _both(F: F64, row: int, d: int) -> tuple[F64, F64]:
    """A and its inverse: A = U⁻ᵀ D⁻¹ U⁻¹ for the kept A⁻¹ = U D Uᵀ."""
    A_inv = np.empty((d, d))
    udu.dense(F[row], A_inv)
    U = np.eye(d)
    for j in range(1, d):
        at = d + j * (j - 1) // 2
        U[:j, j] = F[row, at : at + j]
    N = solve_triangular(U, np.eye(d), unit_diagonal=True)
    return (N.T / F[row, :d]) @ N, A_inv


def _model(F: F64, row: int, d: int, k: int) -> Model:
    A, A_inv = _both(F, row, d)
    at = udu.packed_size(d)
    t = F[row, at : at + d].copy()
    C = F[row, at + d : at + d + d * k].reshape(d, k).copy()
    return Model(A, A_inv, t, C, A @ t, A @ C)


def _sizes(policy: Any) -> tuple[int, int]:
    return policy.n_features, policy.n_cross_features


def _slot(policy: Any, arm: object) -> int:
    return int(policy._table.slot(arm))


def cum(policy: Any, arm: object) -> Model:
    """M_cum of an arm, of a policy with disjoint or hybrid payoffs."""
    return _whole(policy, policy._cum, arm)


def pre(policy: Any, arm: object) -> Model:
    """M_pre of an arm."""
    return _whole(policy, policy._pre, arm)


def _whole(policy: Any, table: F64, arm: object) -> Model:
    """With what C has of y, which is not kept: (I - λA⁻¹) kron(yᵀ, I)."""
    slot = _slot(policy, arm)
    model = _model(table, slot, *_sizes(policy))
    if not policy.n_item_features:
        return model
    eye = np.eye(policy.n_features)
    C = model.C + np.kron(policy._features[slot], eye - policy.params["ridge"] * model.A_inv)
    return model._replace(C=C, B=model.A @ C)


def ridge_model(policy: Any, arm: object = None) -> Model:
    """The model of an arm, or the one of all arms, of LinUCBUniform, LinTS or SWLinUCB."""
    row = 0 if isinstance(policy, whim.LinUCBUniform) else policy._row_of(arm)
    return _model(policy._cum, row, policy._p, 0)


def shared(policy: Any, which: str = "cum") -> Shared:
    """G_cum or (``which="pre"``) G_pre."""
    row = ("cum", "pre").index(which)
    k = policy.n_cross_features
    A0, A0_inv = _both(policy._shared_rows, row, k)
    beta = policy._shared_rows[row, -k:].copy()
    return Shared(A0, A0_inv, A0 @ beta, beta)


def theta_pre(policy: Any, arm: object) -> F64:
    """What the window of an arm is tested against: t_pre, less C_pre β_pre for a hybrid."""
    model = pre(policy, arm)
    if not policy.n_cross_features:
        return model.t
    return np.asarray(model.t - model.C @ shared(policy, "pre").beta)


def window(policy: Any, arm: object) -> Window:
    """The records of an arm's window, by following its queue of chunks."""
    d, k = _sizes(policy)
    ends = policy._table_rows[_slot(policy, arm)]
    pool, links = policy._pool, policy._links
    chunk, place = int(ends[windows.HEAD]), int(ends[windows.HEAD_AT])
    rows = np.empty((int(ends[windows.COUNT]), d + k + 1))
    for row in rows:
        row[:] = pool[chunk, place]
        place += 1
        if place == pool.shape[1]:
            chunk, place = int(links[chunk]), 0
    return Window(rows[:, :d], rows[:, d : d + k], rows[:, d + k])


def sums(policy: Any, arm: object) -> F64:
    """The running sums of a window that the policy keeps: of x, of z, of r."""
    d, k = _sizes(policy)
    return np.asarray(policy._pre[_slot(policy, arm), -(d + k + 1) :].copy())


def seeded(policy: Any, arm: object) -> bool:
    """Whether the arm's window has been full once."""
    return bool(policy._table_rows[_slot(policy, arm), mean_residual.SEEDED])


def _chain(links: Any, at: int) -> list[int]:
    found = []
    while at:
        found.append(at)
        at = int(links[at])
    return found


def chunks(policy: Any) -> tuple[list[int], list[int], list[int]]:
    """The chunks of the pool that are free, those that windows hold, and all but the unused 0."""
    held = []
    for slot in policy._live:
        held += _chain(policy._links, int(policy._table_rows[slot, windows.HEAD]))
    free = _chain(policy._links, int(policy._links[0]))
    return free, held, list(range(1, len(policy._links)))
