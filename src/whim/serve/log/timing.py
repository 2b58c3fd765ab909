"""``Durations``: how long something took, counted by bounds as Prometheus's histograms are."""

from __future__ import annotations

from bisect import bisect_left

BOUNDS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)


class Durations:
    """Counts of durations up to each bound and beyond the last, and their sum in seconds."""

    def __init__(self) -> None:
        self._counts = [0] * (len(BOUNDS) + 1)
        self.total = 0.0

    def add(self, seconds: float) -> None:
        """Count one."""
        self._counts[bisect_left(BOUNDS, seconds)] += 1
        self.total += seconds

    def buckets(self) -> list[tuple[str, float]]:
        """Each bound, and how many took at most so long.

        >>> durations = Durations()
        >>> durations.add(0.3)
        >>> durations.add(60.0)
        >>> durations.buckets()[-7:-3], durations.buckets()[-2:]
        ([('0.2', 0.0), ('0.5', 1.0), ('1.0', 1.0), ('2.0', 1.0)], [('10.0', 1.0), ('+Inf', 2.0)])
        """
        buckets, count = [], 0.0
        for bound, n in zip([*map(str, BOUNDS), "+Inf"], self._counts, strict=True):
            count += n
            buckets.append((bound, count))
        return buckets
