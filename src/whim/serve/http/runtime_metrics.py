"""``RuntimeMetrics``: how the service itself is doing, for Prometheus; read on a scrape."""

from __future__ import annotations

import contextlib
import platform
import sqlite3
from collections.abc import Iterator
from typing import TYPE_CHECKING

from prometheus_client.core import GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from whim.serve.log.origin import logs_of
from whim.serve.log.timing import Durations
from whim.version import __version__

if TYPE_CHECKING:
    from whim.serve.http.service import Service

_DATABASES = ("log.db", "snapshots.db", "webhooks.db")


class RuntimeMetrics(Collector):
    """Commits, the event loop, rebuilds, webhooks, files and the build of a service."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self.loop_lag = Durations()

    def describe(self) -> list[Metric]:
        """Nothing: names are known at a scrape."""
        return []

    def collect(self) -> Iterator[Metric]:
        """The metrics of a scrape."""
        yield _build()
        yield _histogram(
            "whim_loop_lag_seconds", "How much later than asked the event loop ran.", self.loop_lag
        )
        yield self._of_files()
        if self._service.ready:
            yield from self._of_commits()
            yield from self._of_rebuilds()
            yield self._of_webhooks()

    def _of_commits(self) -> list[Metric]:
        stores = [part.store for part in self._service.engine.parts]
        queue = GaugeMetricFamily(
            "whim_commit_queue_rows", "Rows that wait to be committed.",
            value=sum(store.waiting for store in stores),
        )  # fmt: skip
        seconds = _histogram(
            "whim_commit_seconds", "From sending rows to the log's writer to its reply.",
            *(store.commits for store in stores),
        )  # fmt: skip
        return [queue, seconds]

    def _of_rebuilds(self) -> list[Metric]:
        engine = self._service.engine
        running = GaugeMetricFamily(
            "whim_rebuilding", "1 while a space is rebuilt with new parameters.", labels=["space"]
        )
        failed = GaugeMetricFamily(
            "whim_rebuild_failed", "1 if the parameters wanted last cannot be built.",
            labels=["space"],
        )  # fmt: skip
        for name in engine.names:
            info = engine.info(name)
            running.add_metric([name], float(info.rebuilding))
            failed.add_metric([name], float(info.failed is not None))
        return [running, failed]

    def _of_webhooks(self) -> Metric:
        lag = GaugeMetricFamily(
            "whim_webhook_lag_seconds", "Age of the oldest change that is not delivered yet.",
            labels=["host"],
        )  # fmt: skip
        for host, seconds in self._service.deliveries.lags().items():
            lag.add_metric([host], seconds)
        return lag

    def _of_files(self) -> Metric:
        size = GaugeMetricFamily("whim_database_bytes", "Sizes of files.", labels=["file"])
        data = self._service.data
        for folder in logs_of(data):
            for name in _DATABASES:
                for file in (folder / name, folder / f"{name}-wal"):
                    with contextlib.suppress(OSError):
                        size.add_metric([file.relative_to(data).as_posix()], file.stat().st_size)
        return size


def _build() -> Metric:
    labels = {
        "version": __version__, "python": platform.python_version(),
        "sqlite": sqlite3.sqlite_version,
    }  # fmt: skip
    build = GaugeMetricFamily("whim_build_info", "1, with what runs.", labels=list(labels))
    build.add_metric(list(labels.values()), 1.0)
    return build


def _histogram(name: str, about: str, *durations: Durations) -> Metric:
    """Of one, or of several together."""
    family = HistogramMetricFamily(name, about)
    counts = zip(*(one.buckets() for one in durations), strict=True)
    buckets = [(same[0][0], sum(count for _, count in same)) for same in counts]
    family.add_metric([], buckets, sum(one.total for one in durations))
    return family
