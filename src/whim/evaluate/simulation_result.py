"""``SimulationResult``: what happened, policy by policy; as a table, a figure or files."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from whim import checks
from whim.evaluate.detection import Detection
from whim.evaluate.intervals import Band, band, gain, mean_interval
from whim.extras import require
from whim.files import write_atomic
from whim.types import F64, I64

if TYPE_CHECKING:
    import polars
    from matplotlib.figure import Figure


@dataclass(frozen=True, slots=True)
class SimulationResult:
    """What happened, policy by policy.

    Attributes
    ----------
    settings
        The world and how it was run.
    steps
        The steps at which regret was noted.
    regret
        For each policy, (runs, steps): expected reward lost against the best arm so far.
    reward
        For each policy, (runs,): mean reward of a step; the click rate where rewards are clicks.
    detections
        For each policy and run, how changes were detected.
    changes
        For each run, the changes that there were.
    """

    settings: dict[str, Any]
    steps: I64
    regret: dict[str, F64]
    reward: dict[str, F64]
    detections: dict[str, list[Detection]]
    changes: I64

    def curve(self, label: str) -> Band:
        """Mean regret over runs at each of ``steps``, with its band."""
        return band(self.regret[label])

    def rows(self, baseline: str | None = None) -> list[dict[str, Any]]:
        """One row per policy: estimates with intervals; saved regret is against ``baseline``.

        The baseline is the first policy unless named.
        """
        labels = list(self.regret)
        checks.choice("baseline", baseline or labels[0], tuple(labels))
        base = self.regret[baseline or labels[0]][:, -1]
        rows = []
        for label in labels:
            final = self.regret[label][:, -1]
            seen = self.detections[label]
            delays = [delay for d in seen for delay in d.delays]
            plays = [delay for d in seen for delay in d.plays]
            steps = len(seen) * int(self.steps[-1])
            row: dict[str, Any] = {"policy": label}
            row |= columns("regret", mean_interval(final))
            row |= columns("saved", gain(final, base))
            row |= columns("reward", mean_interval(self.reward[label]))
            row |= {
                "changes": float(self.changes.mean()),
                "found": float(np.mean([d.found for d in seen])),
                "missed": float(np.mean([d.missed for d in seen])),
                "false_alarms": float(np.mean([d.false_alarms for d in seen])),
                "false_per_10000": sum(d.false_alarms for d in seen) * 1e4 / steps,
                "delay_median": float(np.median(delays)) if delays else None,
                "delay_plays_median": float(np.median(plays)) if plays else None,
            }
            rows.append(row)
        return rows

    def table(self, baseline: str | None = None) -> polars.DataFrame:
        """``rows`` as a frame."""
        return frame(self.rows(baseline))

    def curves(self) -> polars.DataFrame:
        """Tidy: a row per policy, run and step, with the regret so far."""
        runs = len(self.changes)
        return frame(
            {
                "policy": np.repeat(list(self.regret), runs * len(self.steps)).tolist(),
                "run": np.tile(np.repeat(np.arange(runs), len(self.steps)), len(self.regret)),
                "step": np.tile(self.steps, runs * len(self.regret)),
                "regret": np.concatenate([regret.ravel() for regret in self.regret.values()]),
            }
        )

    def plot(self) -> Figure:
        """Mean regret over time with 95 % bands."""
        lines = {label: (self.steps, *self.curve(label)) for label in self.regret}
        return draw(lines, "step", "regret: expected reward lost", alpha=0.2)

    def save(self, folder: str | Path) -> Path:
        """Write ``curves.parquet`` and ``result.json`` (settings and table) into a folder."""
        return write_frames(
            folder, {"settings": self.settings, "policies": self.rows()}, {"curves": self.curves()}
        )


def columns(name: str, interval: tuple[float, float, float]) -> dict[str, float]:
    """An interval as three columns of a table."""
    value, low, high = interval
    return {name: value, f"{name}_low": low, f"{name}_high": high}


def frame(data: Any, schema: Any = None) -> polars.DataFrame:
    """Rows or columns as a frame."""
    made: polars.DataFrame = require("polars", "logs", "Tables need").DataFrame(data, schema=schema)
    return made


def draw(lines: dict[str, Any], x_label: str, y_label: str, *, alpha: float) -> Figure:
    """A figure of lines by label, each with its x, y, and the low and high of its band."""
    made = require("matplotlib.figure", "plot", "Figures need")
    figure: Figure = made.Figure(figsize=(7, 4.2), layout="constrained")
    ax = figure.subplots()
    ax.spines[["top", "right"]].set_visible(False)
    for label, (x, y, low, high) in lines.items():
        [line] = ax.plot(x, y, label=label)
        ax.fill_between(x, low, high, color=line.get_color(), alpha=alpha, lw=0)
    ax.set(xlabel=x_label, ylabel=y_label)
    ax.legend(frameon=False)
    return figure


def write_frames(
    folder: str | Path, summary: dict[str, Any], frames: dict[str, polars.DataFrame]
) -> Path:
    """Write frames as Parquet and the summary as JSON, each file whole or not at all."""
    target = Path(folder)
    target.mkdir(parents=True, exist_ok=True)
    for name, frame in frames.items():
        write_atomic(target / f"{name}.parquet", frame.write_parquet)
    text = json.dumps(finite(summary), indent=1, default=str, allow_nan=False)
    write_atomic(target / "result.json", text)
    return target


def finite(value: Any) -> Any:
    """The same with null for what JSON has no word for: nan and infinities."""
    if isinstance(value, Mapping):
        return {str(name): finite(part) for name, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [finite(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
