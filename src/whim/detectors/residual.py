"""Detectors of a stream of residuals: CUSUM, and river's Page-Hinkley and ADWIN."""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from whim import checks
from whim.errors import InvalidInputError, WhimError
from whim.extras import install

_RIVER = {"page-hinkley": "PageHinkley", "adwin": "ADWIN"}


@dataclass(frozen=True, slots=True)
class Cusum:
    """Two cumulative sums of standardised residuals z, max(0, g ± z - drift), against a threshold.

    Attributes
    ----------
    drift
        k >= 0, in standard deviations: half the shift that is to be detected soonest.
    threshold
        h > 0, in standard deviations; infinity never fires.

    Examples
    --------
    >>> f"{Cusum().false_alarm():.1e}", round(1 / Cusum(threshold=5.0).false_alarm())
    ('1.4e-05', 469)
    """

    drift: float = 0.5
    threshold: float = 10.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "drift", checks.number("drift", self.drift, least=0))
        threshold = checks.number("threshold", self.threshold, above=0, infinite=True)
        object.__setattr__(self, "threshold", threshold)

    def false_alarm(self) -> float:
        """False alarms per play for independent normal residuals: Siegmund's approximation."""
        k, height = self.drift, self.threshold + 1.166
        if math.isinf(height) or 2 * k * height > 700:
            return 0.0
        small = k * height < 1e-6  # the limit for no drift: the formula would cancel
        one_sided = height**2 if small else (math.expm1(2 * k * height) / k - 2 * height) / 2 / k
        return 2 / one_sided


class RiverDetector:
    """One of river's drift detectors, and the values that it has been fed.

    river's objects can only be pickled, which a file must never ask for: the values are what is
    saved, and feeding them again gives the same detector.

    Parameters
    ----------
    kind
        ``"page-hinkley"`` or ``"adwin"``.
    settings
        Parameters of river's class, by its names.
    values
        Fed at once.

    Examples
    --------
    >>> detector = RiverDetector("page-hinkley", {"threshold": 5.0})
    >>> [i for i in range(100) if detector.update(0.0 if i < 50 else 1.0)]
    [55]
    """

    __slots__ = ("_made", "kind", "statistic", "values")

    def __init__(
        self, kind: str, settings: Mapping[str, Any], values: Iterable[float] = ()
    ) -> None:
        self.kind = checks.choice("detector", kind, tuple(_RIVER))
        self._made = _river(kind, settings)
        self.values = array("d")
        self.statistic = 0.0
        for value in values:
            self.update(value)

    def update(self, value: float) -> bool:
        """Whether this value reveals a change."""
        made = self._made
        self.values.append(value)
        if self.kind == "adwin":
            before = made.estimation
            made.update(value)
            self.statistic = abs(made.estimation - before) if made.drift_detected else 0.0
        else:
            made.update(value)
            if made.drift_detected:
                up = made._sum_increase - made._min_increase
                down = made._max_decrease - made._sum_decrease
                tested = {"up": up, "down": down}.get(made.mode, max(up, down))
                self.statistic = float(tested)
        return bool(made.drift_detected)

    @property
    def threshold(self) -> float:
        """What Page-Hinkley's statistic exceeded; 0 for ADWIN, whose bound river does not give."""
        return float(getattr(self._made, "threshold", 0.0))


def _checked(kind: str, settings: Mapping[str, Any]) -> None:
    """River takes what it cannot work with, and fails plays later."""
    counts = ("min_instances", "clock", "max_buckets", "min_window_length", "grace_period")
    for name, value in settings.items():
        if name in counts:
            checks.integer(f"settings[{name!r}]", value, 1)
        elif name == "mode":
            checks.choice(f"settings[{name!r}]", value, ("up", "down", "both"))
        elif name == "delta" and kind == "adwin":
            checks.number(f"settings[{name!r}]", value, above=0, below=1)
        else:
            checks.number(f"settings[{name!r}]", value, least=0)


def _river(kind: str, settings: Mapping[str, Any]) -> Any:
    try:
        from river import drift
    except ImportError as error:
        raise WhimError(
            f"detector {kind!r} needs the package river, which is not installed: "
            + install("detectors")
        ) from error
    try:
        made = getattr(drift, _RIVER[kind])(**settings)
    except (TypeError, ValueError, OverflowError) as error:
        raise InvalidInputError(
            f"settings must be parameters of river's {_RIVER[kind]}, got {dict(settings)!r}: "
            f"{error}."
        ) from None
    _checked(kind, settings)
    return made
