"""A folder of results: those of experiments, and what ``--save`` of simulate and replay wrote."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from whim.errors import InvalidInputError
from whim.evaluate import Interval, band
from whim.evaluate.intervals import gain
from whim.experiments import EXPERIMENTS
from whim.experiments import formatting as fmt
from whim.experiments.result import Curve, ExperimentResult, Figure, Table
from whim.extras import require
from whim.report.race import Row, race
from whim.types import F64

_ORDER = list(EXPERIMENTS)
_FAMILIES = ("synthetic", "lastfm", "yahoo", "beyond")
Settings = dict[str, Any]
Rows = list[dict[str, Any]]


def read_folder(folder: Path) -> list[ExperimentResult]:
    """Every ``*.json`` of ``folder``: the paper's experiments first, then those beyond it."""
    folder = Path(folder)
    if not folder.is_dir():
        what = "a file" if folder.exists() else "nothing there"
        raise InvalidInputError(f"folder must be a folder of results, got {folder}: {what}.")
    if (folder / "pool_offsets.bin").exists():
        raise InvalidInputError(
            f"folder must be a folder of results, got the log {folder}: 'whim replay {folder} "
            "--save DIR' makes results of it, and 'whim log' describes it."
        )
    files = sorted(folder.glob("*.json"))
    if not files:
        raise InvalidInputError(
            f"folder must hold results (*.json, as 'whim paper', 'whim simulate --save' and "
            f"'whim replay --save' write), got {folder}: none there."
        )
    return sorted(map(_read, files), key=_place)


def _read(file: Path) -> ExperimentResult:
    return read_saved_run(file) if is_saved_run(file) else ExperimentResult.load(file)


def _place(findings: ExperimentResult) -> tuple[int, int, str]:
    """By family, then as they are run, then by id."""
    family = findings.id.partition("/")[0]
    group = _FAMILIES.index(family) if family in _FAMILIES else len(_FAMILIES)
    turn = _ORDER.index(findings.id) if findings.id in _ORDER else len(_ORDER)
    return group, turn, findings.id


def is_saved_run(path: Path) -> bool:
    """Whether a file is the ``result.json`` of a simulation or a replay."""
    try:
        data = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError):
        return False
    return isinstance(data, dict) and data.keys() == {"settings", "policies"}


def read_saved_run(path: Path) -> ExperimentResult:
    """The table, and the figure over time from the Parquet file beside it."""
    data = json.loads(path.read_text("utf-8"))
    try:
        make = _replay if "log" in data["settings"] else _simulation
        return make(path.parent, data["settings"], data["policies"])
    except (KeyError, TypeError, AttributeError, IndexError) as error:
        raise InvalidInputError(
            f"{path} must be what 'whim simulate --save' or 'whim replay --save' wrote, got one "
            f"that is altered: {error!r}."
        ) from error


def _simulation(folder: Path, settings: Settings, rows: Rows) -> ExperimentResult:
    labels, frame = list(settings["policies"]), _frame(folder / "curves.parquet")
    curves, final = [], {}
    for label in labels:
        own = frame.filter(frame["policy"] == label)
        steps = own["step"].unique().sort().to_list()
        regret = own.sort("run", "step")["regret"].to_numpy().reshape(-1, len(steps))
        curves.append(fmt.curve(label, steps, band(regret)))
        final[label] = regret[:, -1]
    base, said = rows[0]["policy"], _least_regret(settings, rows, final)
    return ExperimentResult(
        id=f"simulate/{settings['world'].get('kind', 'world')}",
        title="Regret in a simulated world",
        summary=f"{said} {settings['world'].get('what', '')}".strip(),
        settings=settings,
        tables=[
            Table(
                "Regret and changes detected",
                ["policy", "regret", f"saved against {base}", "reward per step", "changes detected",
                 "false alarms", "median delay, steps"],
                [_simulation_row(row, base) for row in rows],
                "Means over runs with 95 % intervals; saved is the share of the regret, over "
                "paired runs.",
            )
        ],
        figures=[
            Figure("Regret over time", "step", "regret: expected reward lost", curves,
                   caption="Mean over runs with 95 % bands.")
        ],
    )  # fmt: skip


def _least_regret(settings: Settings, rows: Rows, final: Mapping[str, F64]) -> str:
    """Who lost least, and what that saves; an oracle knows the changes, so it does not compete."""
    oracles = [row for row in rows if _is_oracle(settings, row["policy"])]
    rivals = [row for row in rows if row not in oracles] or rows
    base, runs = rows[0], settings["runs"]

    def ahead(ours: Row, other: Row) -> bool:
        if ours is base:
            return _interval(other, "saved").high < 0
        return gain(final[ours["policy"]], final[other["policy"]]).low > 0

    result = race(rivals, lambda row: float(row["regret"]), ahead)
    over = f"over {runs} {'run' if runs == 1 else 'runs'} of {settings['horizon']:,} steps"
    said = [result.told(f"lowest regret {over}", lambda row: fmt.whole(_interval(row, "regret")))]
    if base in result.behind:
        said += [f"It {fmt.saving(_interval(result.first, 'saved'), base['policy'])}."]
    elif base is result.first and result.behind:
        other = result.behind[0]
        more = fmt.saving(_interval(other, "saved"), base["policy"])
        said += [f"Beside it, {other['policy']} {more}."]
    if len(rivals) < len(rows):
        known = [f"{row['policy']} has {fmt.whole(_interval(row, 'regret'))}" for row in oracles]
        said = [*said[:-1], f"{said[-1][:-1]}; knowing the changes, {' and '.join(known)}."]
    if runs == 1:
        said += ["One run does not say how much of that is chance."]
    return " ".join(said)


def _is_oracle(settings: Settings, label: str) -> bool:
    return label == "oracle" or str(settings["policies"][label]).startswith("OracleMaker(")


def _simulation_row(row: Row, base: str) -> list[str]:
    reports = row["found"] or row["false_alarms"]
    delay = row["delay_median"]
    return [
        row["policy"],
        fmt.whole(_interval(row, "regret")),
        "" if row["policy"] == base else fmt.percent(_interval(row, "saved")),
        fmt.rate(_interval(row, "reward")),
        f"{fmt.count(row['found'])} of {fmt.count(row['changes'])}" if reports else "",
        fmt.count(row["false_alarms"]) if reports else "",
        fmt.count(delay, 0) if delay is not None else "",
    ]


def _replay(folder: Path, settings: Settings, rows: Rows) -> ExperimentResult:
    labels, frame = list(settings["policies"]), _frame(folder / "over_time.parquet")
    curves = []
    for label in labels:
        own = frame.filter(frame["policy"] == label)
        low = own["ctr_low"].fill_null(math.nan).to_list()
        high = own["ctr_high"].fill_null(math.nan).to_list()
        shares = (100 * own["share"]).to_list()
        curves.append(Curve(label, shares, own["ctr"].to_list(), low, high))
    base = rows[0]["policy"]
    summary = f"The log has {settings['events']:,} events; its logging is {settings['logging']}."
    summary = f"{_highest_reward(rows)} {summary}".strip()
    tables = [
        Table(
            "What each policy would have earned",
            ["policy", "average reward (CTR)", f"relative to {base}", "matched events",
             "changes reported"],
            [_replay_row(row, base) for row in rows],
            "With 95 % intervals. An event counts where a policy chooses what was shown.",
        )
    ]  # fmt: skip
    names = ("ips", "snips", "dr")
    if settings["logging"] == "propensity":
        cells = [
            [
                row["policy"],
                *(fmt.rate(_interval(row, n)) if n in row else "unknown" for n in names),
                *_support(row),
            ]
            for row in rows
        ]
        heads = ["policy", *map(str.upper, names), "effective sample size", "support"]
        note = "With 95 % intervals. Support is the share of events in which a policy's choice "
        note += "could have been shown; without it the value is unknown."
        for row in rows:
            if row.get("unknown"):
                note += f" {row['policy']}: {row['unknown']}."
        tables.append(Table("Estimates from all events", heads, cells, note))
    return ExperimentResult(
        id=f"replay/{settings['log']}",
        title=f"Replay of {settings['log']}",
        summary=summary,
        settings=settings,
        tables=tables,
        figures=[
            Figure("Average reward over time", "share of the log, %", "average reward so far",
                   curves, caption="Average over the matched events so far, with 95 % bands.")
        ],
    )  # fmt: skip


def _highest_reward(rows: Rows) -> str:
    """Who earned most, and by how much more than the first policy."""
    known, base = [row for row in rows if row["ctr"] is not None], rows[0]
    if not known:
        return "No policy's average reward is known."
    result = race(known, lambda row: -float(row["ctr"]), lambda a, b: _earns_more(a, b, base))
    said = result.told("highest average reward", lambda row: fmt.rate(_interval(row, "ctr")))
    if base in result.behind:
        lead = fmt.percent(_interval(result.first, "relative"), 1)
        return f"{said} It is above {base['policy']}'s by {lead}."
    if base is result.first and result.behind:
        other = result.behind[0]
        value, low, high = _interval(other, "relative")
        lag = fmt.percent(Interval(-value, -high, -low), 1)
        return f"{said} That of {other['policy']} is lower by {lag}."
    return said


def _earns_more(ours: Row, other: Row, base: Row) -> bool:
    """Whether the lead is beyond chance, by the intervals that a saved replay has.

    Those against the baseline are paired. Between two others they must not overlap: that errs on
    the side of saying that two policies cannot be told apart.
    """
    if other is base:
        return _interval(ours, "relative").low > 0
    if ours is base:
        return _interval(other, "relative").high < 0
    return any(
        _interval(ours, name).low > _interval(other, name).high for name in ("ctr", "relative")
    )


def _replay_row(row: Row, base: str) -> list[str]:
    relative = fmt.percent(_interval(row, "relative"), 1, signed=True)
    return [
        row["policy"],
        fmt.rate(_interval(row, "ctr")),
        "" if row["policy"] == base else relative,
        f"{row['matched']:,} of {row['events']:,}",
        fmt.count(row["changes"]),
    ]


def _support(row: Row) -> list[str]:
    """Effective sample size and support; saved results did not always have them."""
    if row.get("effective") is None:
        return ["", ""]
    return [fmt.count(row["effective"], 0), f"{100 * row['support']:.3g} %"]


def _interval(row: Row, name: str) -> Interval:
    """Three columns of a row; JSON has null where there was no number."""
    ends = (row[f"{name}{end}"] for end in ("", "_low", "_high"))
    return Interval(*(math.nan if end is None else end for end in ends))


def _frame(path: Path) -> Any:
    polars = require("polars", "logs", "Figures of saved results need")
    try:
        return polars.read_parquet(path)
    except (OSError, polars.exceptions.PolarsError) as error:
        reason = str(error).splitlines()[0]
        raise InvalidInputError(f"{path} must be a readable Parquet file: {reason}") from error
