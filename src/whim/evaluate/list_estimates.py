"""What a log of lists says of the value of another policy's lists, and on how much that rests.

The value is the reward that a whole list earns on average. Each estimate is right under an
assumption about users; all weigh rewards by inverse probabilities of what was shown:

========== ================================================= ====================================
``slots``  an item's reward depends on itself and its position  1{item agrees} / its probability
``rips``   ... and on the items above it (cascade)              1{prefix agrees} / its probability
``cdr``    as ``rips``, with a model of rewards: doubly robust
``pi``     a list's reward is a sum over its positions          pseudo-inverse of the lists' Γ
``ips``    nothing                                              1{list agrees} / its probability
========== ================================================= ====================================

``slots``, ``rips`` and ``cdr`` need the rewards of items; ``pi`` and ``ips`` that of the list.
Equations: ``slots`` is IIPS of Li et al. (2018), ``rips`` McInerney et al. (2020), ``cdr`` Kiyohara
et al. (2022), ``pi`` Swaminathan et al. (2017).
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from whim.evaluate.estimates import CERTAIN, Support, support
from whim.evaluate.intervals import Interval, normal_interval
from whim.kernels.linalg import udu
from whim.kernels.models import cascade
from whim.types import F64, I64

NAMES = ("slots", "rips", "cdr", "pi", "ips")
_PER_POSITION = ("slots", "rips")
_UNIFORM, _MIXED, _PRODUCT = "uniform", "mixed", "product"  # how lists were drawn, for ``pi``


class ListBlock(NamedTuple):
    """Some lists of a log beside those that another policy chooses, as long as they.

    ``chosen``, ``shown`` and ``wanted`` hold places in the pool, -1 after a list's end; the other
    columns of items are filled with ones (probabilities) and zeros (rewards) there.
    """

    sizes: I64  # of the pools
    chosen: I64
    shown: I64
    rewards: F64  # nan: of items unknown
    reward: F64
    probabilities: F64  # nan: not known
    prefixes: F64
    wanted: I64 | None
    explore: F64 | None

    @property
    def valid(self) -> npt.NDArray[np.bool_]:
        return self.shown >= 0


class ListEstimate(NamedTuple):
    """An estimate with its 95 % interval and what it rests on.

    Attributes
    ----------
    interval
        The value of a list; nan if it is unknown.
    support
        Effective sample size and support, at the position where they are least; ``problem`` says
        why the estimate is unknown.
    positions
        Of ``slots`` and ``rips``: the reward at each position, from the top, with its interval.
    """

    interval: Interval
    support: Support
    positions: list[Interval]


def uniform_weight(chosen: I64, shown: I64, sizes: I64) -> F64:
    """``1_cᵀ Γ⁺ 1_s`` for lists drawn item by item at random from ``sizes`` candidates.

    Γ = E[1_s 1_sᵀ] has the eigenvalues k/n, (n-k)/(n(n-1)), 1/(n-1) and 0 on the products of the
    means and differences over positions and over items, so the form needs only how many items the
    two lists share, and how many of them at the same position.
    """
    valid = shown >= 0
    k = valid.sum(1).astype(np.float64)
    n = sizes.astype(np.float64)
    same = ((chosen == shown) & valid).sum(1)
    both = valid[:, :, None] & valid[:, None, :]
    common = ((chosen[:, :, None] == shown[:, None, :]) & both).sum((1, 2)) / k
    left = np.where(n > k, n - k, 1.0)
    between = np.where(n > k, n * (n - 1) / left * (common - k / n), 0.0)
    weight: F64 = 1 + between + (n - 1) * (same - common)
    return weight


def mixed_weight(block: ListBlock) -> F64:
    """The same where with probability 1 - ε the logging policy's own list was shown.

    Γ = εU + (1-ε) g gᵀ; g lies in the range of U, so its pseudo-inverse is a rank-one step away.
    """
    assert block.wanted is not None
    assert block.explore is not None
    c, s, g, n = block.chosen, block.shown, block.wanted, block.sizes
    ratio = (1 - block.explore) / block.explore
    step = uniform_weight(c, g, n) * uniform_weight(g, s, n)
    weight: F64 = uniform_weight(c, s, n) - ratio * step / (1 + ratio * uniform_weight(g, g, n))
    return weight / block.explore


class ListSums:
    """The sums over lists that the estimates are made of.

    ``scheme`` is how lists were drawn as a whole, for ``pi``: ``"uniform"``, ``"mixed"``
    (``explore`` and ``wanted`` are known), ``"product"`` (each position by itself) or None.
    """

    def __init__(self, longest: int, n_arms: int, d: int, scheme: str | None) -> None:
        self._scheme = scheme
        self.lists = 0
        self._count = np.zeros(longest)  # lists that have the position
        self._terms = {name: np.zeros(2) for name in NAMES}  # Σy, Σy²
        self._items = {name: np.zeros((longest, 2)) for name in _PER_POSITION}
        self._weights = {name: np.zeros((longest, 2)) for name in ("slots", "rips", "pi", "ips")}
        self._backed = {name: np.zeros((longest, 2)) for name in ("slots", "rips", "pi", "ips")}
        self._items_unknown = self._positions_unknown = 0
        self._model = np.tile(udu.prior(d, 1.0), (n_arms, 1))
        self._factors = np.zeros((longest, 2))

    def add(self, block: ListBlock, X: F64, chosen_arms: I64, shown_arms: I64) -> None:
        """Count lists in; arms are those at the places, -1 after a list's end."""
        self.lists += len(X)
        valid = block.valid
        self._count += valid.sum(0)
        agree = (block.chosen == block.shown) & valid
        prefix = np.logical_and.accumulate(agree, axis=1)
        known = ~np.isnan(block.probabilities)
        self._positions_unknown += int((~known).any(1).sum())
        slots = np.where(known, agree / block.probabilities, 0.0)
        rips = prefix / block.prefixes
        last = np.arange(len(X)), valid.sum(1) - 1
        unknown = np.isnan(block.rewards).any(1)
        self._items_unknown += int(unknown.sum())
        rewards = np.where(valid, np.nan_to_num(block.rewards), 0.0)
        for name, weights in (("slots", slots), ("rips", rips)):
            parts = weights * rewards
            self._items[name] += np.stack([parts.sum(0), (parts**2).sum(0)], 1)
            self._term(name, parts.sum(1))
            self._weights[name] += np.stack([weights.sum(0), (weights**2).sum(0)], 1)
        self._term("ips", rips[last] * block.reward)
        self._weigh_whole("ips", rips[last])
        out = np.empty(len(X))
        cascade.terms(
            X, chosen_arms, shown_arms, rewards, block.prefixes, self._model, self._factors, out
        )
        self._term("cdr", out)
        self._back("slots", agree | (block.probabilities < CERTAIN), valid)
        possible = _possible(prefix, block.prefixes) | ~valid
        self._back("rips", np.logical_and.accumulate(possible, axis=1), valid)
        self._back("ips", _all(possible)[:, None], np.ones((len(X), 1), bool))
        self._pseudo_inverse(block, agree)

    def _pseudo_inverse(self, block: ListBlock, agree: npt.NDArray[np.bool_]) -> None:
        if self._scheme is None:
            return
        backed = np.ones(len(agree), bool)
        if self._scheme == _UNIFORM:
            w = uniform_weight(block.chosen, block.shown, block.sizes)
        elif self._scheme == _PRODUCT:
            w = (agree / block.probabilities - 1).sum(1, where=block.valid) + 1
            backed = _all(agree | (block.probabilities < CERTAIN) | ~block.valid)
        else:
            assert block.wanted is not None
            assert block.explore is not None
            never = block.explore < 1 - CERTAIN  # then only the list wanted says anything
            w = mixed_weight(block._replace(explore=np.where(never, 1.0, block.explore)))
            as_wanted = (block.chosen == block.wanted).all(1)
            w = np.where(never, as_wanted & (block.chosen == block.shown).all(1), w)
            backed = ~never | as_wanted
        self._term("pi", w * block.reward)
        self._weigh_whole("pi", w)
        self._back("pi", backed[:, None], np.ones((len(w), 1), bool))

    def _term(self, name: str, y: F64) -> None:
        self._terms[name] += [y.sum(), (y**2).sum()]

    def _weigh_whole(self, name: str, w: F64) -> None:
        self._weights[name][0] += [w.sum(), (w**2).sum()]

    def _back(self, name: str, supported: npt.NDArray[Any], valid: npt.NDArray[Any]) -> None:
        counts = np.stack([valid.sum(0), (supported & valid).sum(0)], 1)
        self._backed[name][: len(counts)] += counts

    def estimates(self) -> dict[str, ListEstimate]:
        """Every estimate that the log allows or refuses, by name."""
        return {name: self._estimate(name) for name in NAMES}

    def _estimate(self, name: str) -> ListEstimate:
        kind = "rips" if name == "cdr" else name
        found = self._support(kind)
        if name in ("slots", "rips", "cdr") and self._items_unknown:
            found = found._replace(problem="the log has rewards of whole lists alone")
        if name == "slots" and self._positions_unknown:
            problem = "the log does not have all probabilities of items at their positions"
            found = found._replace(problem=problem)
        if name == "pi" and self._scheme is None:
            found = Support(0.0, 0.0, "the log does not say how whole lists were drawn")
        if found.problem is not None:
            unknown = Interval(math.nan, math.nan, math.nan)
            return ListEstimate(unknown, found, [])
        positions = []
        if name in _PER_POSITION:
            sums = zip(self._items[name].tolist(), self._count.tolist(), strict=True)
            positions = [_mean(total, squares, int(n)) for (total, squares), n in sums]
        total, squares = self._terms[name].tolist()
        return ListEstimate(_mean(total, squares, self.lists), found, positions)

    def _support(self, kind: str) -> Support:
        """That of the position where there is least of it."""
        whole = kind in ("pi", "ips")
        counts = [float(self.lists)] if whole else self._count.tolist()
        each = [
            support(int(n), self._weights[kind][j].tolist(), self._backed[kind][j].tolist())
            for j, n in enumerate(counts)
            if n or whole
        ]
        problems = [one.problem for one in each if one.problem is not None]
        effective = min((one.effective for one in each), default=0.0)
        share = min((one.share for one in each), default=0.0)
        return Support(effective, share, problems[0] if problems else None)


def _all(rows: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    return np.asarray(rows.all(1), bool)


def _possible(prefix: npt.NDArray[np.bool_], prefixes: F64) -> npt.NDArray[np.bool_]:
    """False where the lists part and nothing but what was shown could have stood there."""
    n = len(prefix)
    so_far = np.concatenate([np.ones((n, 1), bool), prefix[:, :-1]], axis=1)
    above = np.concatenate([np.ones((n, 1)), prefixes[:, :-1]], axis=1)
    return np.asarray(~(so_far & ~prefix & (prefixes / above >= CERTAIN)), bool)


def _mean(total: float, squares: float, n: int) -> Interval:
    """A mean of terms; equal terms say nothing of the next one, so the ends are then unknown."""
    if not n:
        return Interval(math.nan, math.nan, math.nan)
    mean = float(total) / n
    variance = float(squares) / n - mean**2
    if variance <= 1e-12 * max(float(squares) / n, 1e-300):
        return Interval(mean, math.nan, math.nan)
    return normal_interval(mean, variance, n)
