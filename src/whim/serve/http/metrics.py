"""``Metrics``: what Prometheus reads. Requests are counted as they come, the rest on a scrape."""

from __future__ import annotations

import threading
import time
from bisect import bisect_left
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from whim.serve.state.clock import ClockView
from whim.serve.state.views import ShardView
from whim.serve.wire import RewardState

if TYPE_CHECKING:
    from whim.serve.http.connections import Connections
    from whim.serve.state.engine import Engine

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_BOUNDS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
_NAMES = [*(str(bound) for bound in _BOUNDS), "+Inf"]
_METHODS = frozenset(("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"))
_MODES = ("policy", "explore", "holdback", "shadow")
_MOST = 2000  # series of requests: callers must not be able to make more


class Metrics(Collector):
    """Counts of a service, in a registry of its own.

    Spaces and log of ``engine``, which may be set later, are read when ``render`` is called.
    """

    def __init__(
        self, engine: Engine | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.engine = engine
        self.check: Callable[[], float] = lambda: 1.0
        self.connections: Connections | None = None
        self._clock = clock
        self._snapshot_at = clock()
        self._requests: dict[tuple[str, str, int], list[float]] = {}
        self._lock = threading.Lock()  # any thread may count or read
        self._changes: dict[str, int] = {}
        self._totals: list[Metric] | None = None
        self._webhooks: dict[str, int] = {"delivered": 0, "failed": 0, "gone": 0}
        self._registry = CollectorRegistry()
        self._registry.register(self)
        ProcessCollector(registry=self._registry)

    def add(self, collector: Collector) -> None:
        """Have what another one collects rendered as well."""
        self._registry.register(collector)

    # -- what happens -------------------------------------------------------------------------

    def request(self, route: str, method: str, status: int, seconds: float) -> None:
        """A request was answered; on the event loop's thread. ``route`` is the path's pattern."""
        series = self._requests.get((route, method, status))
        if series is None:
            series = self._series(route, method, status)
        series[bisect_left(_BOUNDS, seconds)] += 1
        series[-1] += seconds

    def _series(self, route: str, method: str, status: int) -> list[float]:
        """Counts by bound, then the sum."""
        if method not in _METHODS:
            method = "other"
        if len(self._requests) >= _MOST:
            route, method = "other", "other"
        return self._requests.setdefault((route, method, status), [0] * len(_NAMES) + [0.0])

    def change(self, space: str) -> None:
        """A change of interest was detected; from any thread."""
        with self._lock:
            self._changes[space] = self._changes.get(space, 0) + 1

    def webhook(self, outcome: str) -> None:
        """An attempt to deliver ended: delivered, failed or gone."""
        with self._lock:
            self._webhooks[outcome] = self._webhooks.get(outcome, 0) + 1

    def snapshot(self, space: str) -> None:
        """A snapshot of a space was written."""
        self._snapshot_at = self._clock()

    # -- what is read -------------------------------------------------------------------------

    def render(self, totals: list[Metric] | None = None) -> bytes:
        """Everything, as ``CONTENT_TYPE``; ``totals`` as they were read before, if given."""
        self._totals = totals
        try:
            return generate_latest(self._registry)
        finally:
            self._totals = None

    def describe(self) -> list[Metric]:
        """Nothing: names are known at a scrape."""
        return []

    def collect(self) -> Iterator[Metric]:
        """The metrics of a scrape."""
        if self.engine is not None:
            yield from self.totals() if self._totals is None else self._totals
            yield from self._of_spaces(self.engine)
            yield from self._of_the_log(self.engine)
        if self.connections is not None:
            yield from _of_connections(self.connections)
        yield self._of_requests()
        webhooks = CounterMetricFamily(
            "whim_webhooks_total", "Attempts to deliver a change.", labels=["outcome"]
        )
        with self._lock:
            outcomes = dict(self._webhooks)
        for outcome, count in outcomes.items():
            webhooks.add_metric([outcome], count)
        yield webhooks

    def totals(self) -> list[Metric]:
        """Counts of spaces, which are never lower than before.

        Some of them may not be committed yet, and would be lost by a crash.
        """
        by_space = ["space"]
        decisions = CounterMetricFamily(
            "whim_decisions_total", "Decisions made.", labels=["space", "mode"]
        )
        rewards = CounterMetricFamily(
            "whim_rewards_total", "Rewards that came.", labels=["space", "state"]
        )
        steps = CounterMetricFamily("whim_steps_total", "Rewards learnt from.", labels=by_space)
        spaces = {} if self.engine is None else self.engine.totals
        for name, counts in spaces.items():
            label = _label(name)
            for mode in _MODES:
                decisions.add_metric([label, mode], counts.get(f"decisions_{mode}", 0))
            for reward_state in RewardState:
                rewards.add_metric([label, reward_state], counts.get(f"rewards_{reward_state}", 0))
            steps.add_metric([label], counts["steps"])
        return [decisions, rewards, steps]

    def _of_spaces(self, engine: Engine) -> list[Metric]:
        by_space = ["space"]
        limited = CounterMetricFamily(
            "whim_rewards_limited_total",
            "Rewards refused or clipped by the range, or not logged, since the start.",
            labels=["space", "outcome"],
        )
        changes = CounterMetricFamily(
            "whim_changes_total", "Changes of interest detected since the start.", labels=by_space
        )
        waiting = GaugeMetricFamily(
            "whim_waiting", "Decisions whose reward may still come.", labels=by_space
        )
        arms = GaugeMetricFamily("whim_arms", "Arms that may be chosen.", labels=by_space)
        for name, space in list(engine.spaces.items()):
            state, label = space.state, _label(name)
            for outcome, count in space.guard.counts.items():
                limited.add_metric([label, outcome], count)
            changes.add_metric([label], self._changes.get(name, 0))
            waiting.add_metric([label], len(state.pending))
            arms.add_metric([label], len(state.policy.arms))
        return [limited, changes, waiting, arms]

    def _of_the_log(self, engine: Engine) -> list[Metric]:
        stores = [part.store for part in engine.parts]
        committed = sum(store.committed for store in stores)
        rows = CounterMetricFamily("whim_log_rows_total", "Rows of the log.", value=committed)
        failed = GaugeMetricFamily(
            "whim_store_failed",
            "1 if the log cannot be written and nothing more is accepted.",
            value=float(engine.trouble is not None),
        )
        age = GaugeMetricFamily(
            "whim_snapshot_age_seconds",
            "Since a snapshot was last written, or since the start.",
            value=self._clock() - self._snapshot_at,
        )
        queued = GaugeMetricFamily(
            "whim_queue_bytes", "Rows that wait to be written.",
            value=sum(part.queued_bytes for part in engine.parts),
        )  # fmt: skip
        checked = GaugeMetricFamily(
            "whim_log_check_progress",
            "Share of the log whose rows were checked since the start; 1 when all were.",
            value=self.check(),
        )
        clock, replica = _of_the_clock(engine.clock.view), _of_the_replica(engine)
        return [rows, failed, age, queued, checked, *clock, *replica]

    def _of_requests(self) -> Metric:
        family = HistogramMetricFamily(
            "whim_request_seconds", "Time to answer.", labels=["route", "method", "status"]
        )
        for (route, method, status), series in list(self._requests.items()):
            buckets, total = [], 0.0
            for bound, count in zip(_NAMES, series, strict=False):  # the sum is left
                total += count
                buckets.append((bound, total))
            family.add_metric([_label(route), method, str(status)], buckets, series[-1])
        return family


def _of_the_clock(clock: ClockView) -> list[Metric]:
    held = GaugeMetricFamily(
        "whim_clock_held", "1 while the clock does not follow the system's.", value=clock.held
    )
    ahead = GaugeMetricFamily(
        "whim_clock_ahead_seconds",
        "The clock's seconds ahead of the system's; behind if negative.",
        value=clock.ahead,
    )
    jumps = CounterMetricFamily(
        "whim_clock_jumps_total", "Jumps of the system's clock that were held.", value=clock.jumps
    )
    return [held, ahead, jumps]


def _of_the_replica(engine: Engine) -> list[Metric]:
    if engine.lag is None:
        return []
    rows, seconds = engine.lag
    leads = GaugeMetricFamily(
        "whim_replica_leads", "1 if it does what only one should.", value=engine.leads
    )
    behind = GaugeMetricFamily(
        "whim_replica_lag_rows", "Rows of the shared log that were not taken yet.", value=rows
    )
    stale = GaugeMetricFamily(
        "whim_replica_lag_seconds", "Since the end of the shared log was seen.", value=seconds
    )
    return [leads, behind, stale, *_of_shards(engine.shards)]


def _of_shards(shards: list[ShardView]) -> list[Metric]:
    """The same for each shard, where there are several."""
    words = {
        "leads": "1 if it does what only one should for the shard.",
        "lag_rows": "Rows of the shard that were not taken yet.",
        "lag_seconds": "Since the end of the shard was seen.",
        "spaces": "Spaces on the shard.",
        "refuses": "1 while what is written to spaces of the shard is refused.",
    }
    families: list[Metric] = []
    for name, about in words.items() if shards else ():
        family = GaugeMetricFamily(f"whim_shard_{name}", about, labels=["shard"])
        for one in shards:
            value = one.reason is not None if name == "refuses" else getattr(one, name)
            family.add_metric([one.shard], float(value))
        families.append(family)
    return families


def _of_connections(connections: Connections) -> list[Metric]:
    ended = CounterMetricFamily(
        "whim_connections_ended_total", "Connections closed by a limit.", labels=["reason"]
    )
    ended.add_metric(["too_many"], connections.refused)
    ended.add_metric(["too_slow"], connections.timed_out)
    now = GaugeMetricFamily("whim_connections", "Open now.", value=len(connections.open))
    return [now, ended]


def _label(text: str) -> str:
    """Text that can be written; the format's own escapes are prometheus_client's."""
    return text.encode("utf-8", "replace").decode()
