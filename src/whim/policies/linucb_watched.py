"""``LinUCBWatched``: LinUCB whose arms' residuals go through a drift detector from elsewhere."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from whim import checks
from whim.detectors import Cusum, RiverDetector
from whim.errors import InvalidInputError
from whim.kernels.detection import cusum_residual
from whim.kernels.linalg import udu
from whim.kernels.loops import Kernels
from whim.kernels.models import watched
from whim.kernels.status import CHANGED
from whim.policies.base.detecting import Reporting
from whim.policies.base.policy import Policy
from whim.policies.base.ridge import RidgePolicy
from whim.types import F64, I64, ChangeEvent


class LinUCBWatched(Reporting, RidgePolicy):
    """LinUCB that restarts an arm from nothing when a detector finds drift in its residuals.

    The usual alternatives to PSLinUCB's tests, to compare with: a detector of one-dimensional
    streams sees r - xᵀθ, taken before θ learns from the play, and not which context it came with.

    Parameters
    ----------
    n_features
        Length d of a context.
    alpha
        α >= 0: how many widths of optimism.
    detector
        ``"cusum"``: two-sided CUSUM of residuals divided by their running standard deviation.
        ``"page-hinkley"``, ``"adwin"``: those of river (the extra ``detectors``), on
        residuals as they are.
    settings
        The detector's parameters by name: ``drift`` and ``threshold`` (``whim.detectors.Cusum``),
        or those of river's class. By default what each has.
    watch
        ``"residual"``, or ``"square"``: its square, which grows with any change that makes
        predictions worse; then CUSUM looks for an increase only.
    warmup
        Plays of an arm, from its first or its restart, that are not tested: the model is still
        finding its coefficients. CUSUM takes the second half of them for a first idea of the
        noise.
    ridge
        λ > 0.
    seed, ties
        See ``Policy``.

    Notes
    -----
    With river's detectors a saved policy holds every value that an arm's detector has been fed
    since the arm's last restart, and loading feeds them again.

    Examples
    --------
    >>> policy = LinUCBWatched(n_features=1, detector="cusum", settings={"threshold": 8.0})
    >>> policy.add_arms(["toys"])
    ['toys']
    >>> rewards = [1.0, 0.8] * 20 + [0.0, 0.2] * 5
    >>> [event] = policy.update_many(["toys"] * 50, [[1.0]] * 50, rewards)
    >>> event.arm, event.step, event.window, event.theta_after
    ('toys', 41, 0, (0.0,))
    """

    name = "linucb-watched"
    _marks: F64
    _counts: I64
    _fed: F64

    def __init__(
        self,
        *,
        n_features: int,
        alpha: float = 1.0,
        detector: str = "cusum",
        settings: Mapping[str, Any] | None = None,
        watch: str = "residual",
        warmup: int = 30,
        ridge: float = 1.0,
        seed: int = 0,
        ties: str = "first",
    ) -> None:
        super().__init__(
            n_features=n_features,
            alpha=alpha,
            ridge=ridge,
            seed=seed,
            ties=ties,
        )
        self._detector = checks.choice("detector", detector, ("cusum", "page-hinkley", "adwin"))
        self._settings = self._params["settings"] = _plain(settings)
        self._squared = checks.choice("watch", watch, ("residual", "square")) == "square"
        self._warmup = checks.integer("warmup", warmup, 2)
        self._open_report(n_features)
        self._residual = np.zeros(1)
        self._rows({"_marks": np.zeros(cusum_residual.COLUMNS)})
        self._watchers: dict[int, RiverDetector] = {}
        self._test: Cusum | None = None
        if detector == "cusum":
            self._test = _cusum(self._settings)
        else:
            RiverDetector(detector, self._settings)  # says now what is wrong
            self._rows({"_counts": np.zeros((), np.int64)})
            self._keep(_fed=np.zeros(0))

    @property
    def _kernels(self) -> Kernels:
        return watched.RESIDUAL if self._test is None else watched.CUSUM

    def _state(self) -> Any:
        if self._test is None:
            return watched.ResidualState(self._model(), self._residual)
        test = cusum_residual.CusumTest(
            self._warmup, self._squared, self._test.drift, self._test.threshold, self._marks,
            self._report,
        )  # fmt: skip
        return watched.CusumState(self._model(), test)

    def _bind(self) -> Any:
        super()._bind()  # by live calls, since river's detectors are not compiled with it
        if self._test is not None and type(self)._observe is LinUCBWatched._observe:
            self._observe_kernel = self._code.observe
            self._loops = self._choose_kernel is not None
        return self._bound

    def _observe(self, slot: int, x: F64, cross: F64 | None, reward: float) -> int:
        status = super()._observe(slot, x, cross, reward)
        if self._test is not None or status:
            return status
        self._marks[slot, cusum_residual.PLAYS] += 1.0
        if self._marks[slot, cusum_residual.PLAYS] <= self._warmup:
            return status
        watcher = self._watchers.get(slot)
        if watcher is None:
            watcher = self._watchers[slot] = RiverDetector(self._detector, self._settings)
        residual = self._residual.item()
        if not watcher.update(residual * residual if self._squared else residual):
            return status
        theta = udu.packed_size(self._p)
        self._report[0, : self._p] = self._cum[slot, theta : theta + self._p]
        self._report[2, 0] = watcher.statistic
        self._report[2, 1] = watcher.threshold
        self._forget([slot], gone=False)
        return CHANGED

    def _observe_many(
        self, start: int, slots: I64, X: F64, cross: F64 | None, rewards: F64
    ) -> tuple[int, int]:
        if self._test is None:
            return Policy._observe_many(self, start, slots, X, cross, rewards)
        return super()._observe_many(start, slots, X, cross, rewards)

    def _event(self, slot: int) -> ChangeEvent:
        threshold = self._test.threshold if self._test else float(self._report[2, 1])
        return self._change(slot, self._p, threshold)

    def _forget(self, slots: list[int], gone: bool) -> None:
        for slot in slots:
            self._watchers.pop(slot, None)
        super()._forget(slots, gone)

    def to_bytes(self) -> bytes:
        if self._test is None:
            self._counts[:] = 0
            for slot, watcher in self._watchers.items():
                self._counts[slot] = len(watcher.values)
            fed = [self._watchers[slot].values for slot in sorted(self._watchers)]
            self._fed = np.concatenate([np.zeros(0), *fed])
        return super().to_bytes()

    def _verify(self) -> None:
        super()._verify()
        if self._test is not None:
            return
        if (self._counts < 0).any() or self._counts.sum() != len(self._fed):
            raise ValueError("counts must be how many values each arm's detector was fed")
        ends = np.cumsum(self._counts)
        for slot in np.flatnonzero(self._counts).tolist():
            values = self._fed[ends[slot] - self._counts[slot] : ends[slot]].tolist()
            self._watchers[slot] = RiverDetector(self._detector, self._settings, values)


def _plain(settings: Any) -> dict[str, Any]:
    """A copy that can be saved: names and numbers, words or None."""
    given = {} if settings is None else settings
    fine = isinstance(given, Mapping) and all(
        isinstance(name, str) and (value is None or isinstance(value, (int, float, str)))
        for name, value in given.items()
    )
    if not fine:
        raise InvalidInputError(
            f"settings must be numbers or words by the names of parameters, got {settings!r}."
        )
    return {k: v.item() if isinstance(v, np.generic) else v for k, v in given.items()}


def _cusum(settings: dict[str, Any]) -> Cusum:
    unknown = settings.keys() - {"drift", "threshold"}
    if unknown:
        raise InvalidInputError(
            f"settings must be drift and threshold for detector='cusum', got {sorted(unknown)}."
        )
    return Cusum(**settings)
