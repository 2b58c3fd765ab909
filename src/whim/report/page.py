"""One self-contained HTML page from the results of experiments: no script, no outside request.

It begins with its conclusion; of each result the first figure and table are shown and the rest is
folded away. The same results give the same bytes. Everything that a result says is escaped.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from whim.errors import InvalidInputError
from whim.experiments.result import ExperimentResult, Figure, Table
from whim.extras import require
from whim.files import write_atomic
from whim.report.conclusion import SENTENCES, brief, conclude, is_quick, many, sentences
from whim.report.figures import describe, has_markers, svg
from whim.report.style import DARK, LIGHT, slots, swatch
from whim.version import __version__

_TITLE = "Whim: the paper's experiments, and beyond"
_NAME = 24  # characters of a cell that is not broken
# a number, perhaps with a sign, an interval or a unit after it; or a word for none
_NUMBER = re.compile(r"[~≈<>≤≥±+−–-]? ?[.,]?\d.*|[-–—−]?|nan|n/a|[+−-]?(?:inf|∞)", re.I | re.S)


def write_report(
    findings: Iterable[ExperimentResult], path: Path, *, title: str = "", date: str = ""
) -> Path:
    """Write the page, whole or not at all; ``date`` is shown as given, nothing when empty."""
    path = Path(path)
    page = report_page(findings, title=title, date=date).encode("utf-8", "replace")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(path, page)
    except OSError as error:
        raise InvalidInputError(
            f"path must be a file that can be written, got {path}: {error.strerror}."
        ) from error
    return path


def report_page(findings: Iterable[ExperimentResult], *, title: str = "", date: str = "") -> str:
    """The page as text; without a title, that of a result alone or the usual one."""
    results = list(findings)
    labels = slots(figure for one in results for figure in one.figures)
    sections = [
        _section(one, anchor, labels)
        for one, anchor in zip(results, _anchors(results), strict=True)
    ]
    said, lead = conclude(results)
    alone = len(results) == 1
    page: str = _template().render(
        title=title or (results[0].title if alone else _TITLE), alone=alone, date=date,
        quick=bool(results) and all(map(is_quick, results)), said=said, sections=sections,
        lead=None if lead is None else sections[lead],
        version=__version__, light=LIGHT.items(), dark=DARK.items(),
    )  # fmt: skip
    return page


@functools.cache
def _template() -> Any:
    jinja2 = require("jinja2", "report", "Reports need")
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("whim.report"), autoescape=True, trim_blocks=True,
        keep_trailing_newline=True, undefined=jinja2.StrictUndefined,
        finalize=_with_hard_spaces,
    )  # fmt: skip
    environment.filters["intervals"] = _intervals
    return environment.get_template("page.html")


def _with_hard_spaces(value: Any) -> Any:
    """A percent sign stays on the line of its number."""
    return value.replace(" %", "\u00a0%") if type(value) is str else value


def _intervals(text: str) -> list[tuple[str, bool]]:
    """A cell in parts, and which of them are intervals: it is broken before one, not inside."""
    parts = re.split(r"(\[[^][]{1,30}\])", text)
    return [(part, bool(i % 2)) for i, part in enumerate(parts) if part]


def _anchors(findings: list[ExperimentResult]) -> list[str]:
    """An id for each section, made of letters, digits and hyphens; no two alike."""
    anchors: list[str] = []
    for one in findings:
        stem = "x-" + (re.sub(r"[^a-z0-9]+", "-", one.id.lower()).strip("-") or "experiment")
        name, count = stem, 1
        while name in anchors:
            count += 1
            name = f"{stem}--{count}"
        anchors.append(name)
    return anchors


def _section(one: ExperimentResult, anchor: str, labels: Mapping[str, int]) -> dict[str, Any]:
    tables = [_table(t, f"{anchor}-table-{n}") for n, t in enumerate(one.tables, 1)]
    figures = [_figure(f, f"{anchor}-figure-{n}", labels) for n, f in enumerate(one.figures, 1)]
    summary = sentences(one.summary)  # those of older results may be longer
    section = {
        "id": one.id, "title": one.title, "anchor": anchor, "headline": one.headline,
        "summary": " ".join(summary[:SENTENCES]), "rest": " ".join(summary[SENTENCES:]),
        "targets": one.targets, "missed": [what for what, met in one.targets if not met],
        "warning": one.warning, "brief": brief(one.warning), "differences": one.differences,
        "command": one.command, "took": _duration(one.seconds), "settings": _flat(one.settings),
        "figure": figures[0] if figures else None, "figures": figures[1:],
        "table": tables[0] if tables else None, "tables": tables[1:],
    }  # fmt: skip
    return section | {"folded": _folded(section)}


def _folded(section: Mapping[str, Any]) -> str:
    """What a section folds away, and how many of each."""
    counts = [
        (len(section["tables"]), "table", ""), (len(section["figures"]), "figure", ""),
        (len(section["targets"]), "target", ""),
        (len(section["differences"]), "difference", " from the paper"),
    ]  # fmt: skip
    parts = [f"{many(n, noun)}{more}" for n, noun, more in counts if n]
    parts += ["the command"] if section["command"] else []
    parts += [many(len(section["settings"]), "setting")] if section["settings"] else []
    parts += ["the time it took"] if section["took"] and not section["command"] else []
    if section["rest"]:
        parts.insert(0, "the rest of the summary")
    return " and ".join([", ".join(parts[:-1]), parts[-1]] if len(parts) > 1 else parts)


def _table(table: Table, anchor: str) -> dict[str, Any]:
    """Rows of the same length; columns of numbers are right-aligned, those of words may break."""
    width = max(map(len, [table.columns, *table.rows]))
    columns, *rows = [row + [""] * (width - len(row)) for row in (table.columns, *table.rows)]
    kinds = [_kind([row[n].strip() for row in rows]) for n in range(width)]
    return {
        "title": table.title, "anchor": anchor, "caption": table.caption,
        "columns": list(zip(columns, kinds, strict=True)),
        "rows": [
            (n in table.highlight, list(zip(row, kinds, strict=True)))
            for n, row in enumerate(rows)
        ],
    }  # fmt: skip


def _kind(cells: list[str]) -> str:
    if cells and all(map(_NUMBER.fullmatch, cells)):
        return "number"
    return "words" if max(map(len, cells), default=0) > _NAME else ""


def _figure(figure: Figure, anchor: str, labels: Mapping[str, int]) -> dict[str, Any]:
    return {
        "title": figure.title, "anchor": anchor, "caption": figure.caption,
        "x_label": figure.x_label, "y_label": figure.y_label,
        "described": describe(figure),
        "svg": svg(figure, prefix=anchor, labels=labels).removeprefix("<svg"),
        "legend": [
            (swatch(curve, labels[curve.label], marked=has_markers(curve)), curve.label)
            for curve in figure.curves
        ],
    }  # fmt: skip


def _flat(settings: Mapping[str, Any], above: str = "") -> list[tuple[str, str]]:
    """Settings inside settings get names such as ``LinUCB.alpha``."""
    rows = []
    for name, value in settings.items():
        if isinstance(value, Mapping) and value:
            rows += _flat(value, f"{above}{name}.")
        elif isinstance(value, str):
            rows.append((f"{above}{name}", value))
        else:
            rows.append((f"{above}{name}", json.dumps(value, ensure_ascii=False, default=str)))
    return rows


def _duration(seconds: float) -> str:
    if seconds <= 0:
        return ""
    if seconds < 90:
        return f"{seconds:.1f} seconds"
    if seconds < 5400:
        return f"{seconds / 60:.0f} minutes"
    return f"{seconds / 3600:.1f} hours"
