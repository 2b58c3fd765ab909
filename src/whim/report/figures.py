"""Figures of findings: drawn by matplotlib, for a file or as SVG inside a page.

A page's SVG takes its colours from CSS variables, so one drawing serves light, dark and paper.
matplotlib is imported when something is drawn (the extra ``plot``).
"""

from __future__ import annotations

import io
import re
import textwrap
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from whim.checks import choice
from whim.errors import InvalidInputError
from whim.experiments.result import Curve, Figure
from whim.extras import require
from whim.report.style import LIGHT, colour_name, dashes, marker, slots
from whim.report.ticks import number, ticks
from whim.types import F64

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Drawing

_STYLES = ("line", "points", "reference")
_WIDTH, _HEIGHT = 640, 350  # of a page's SVG, in its own units
_TEXT = 13  # tick labels; page.css enlarges them to _LARGE in a narrow box
_LARGE = 18
_RIGHT = 30  # margin
_ROW = 44  # height of a row of a figure that has rows
_FEW = 15  # curves of so few points show them
_SHOWN = 800  # points of a curve that are drawn: more would not be seen
_FORMATS = (".pdf", ".png", ".svg")


def draw(figure: Figure, *, labels: Mapping[str, int] | None = None, bare: bool = False) -> Drawing:
    """Draw a figure with title, axis labels and a legend below, or ``bare`` (a page adds them).

    ``labels`` gives each curve's label its slot (``style.slots``), for the same colours in several
    figures. No pyplot is involved: nothing is to be closed.

    Examples
    --------
    >>> lines = [Curve("LinUCB", [0.0, 1.0, 2.0], [0.0, 4.0, 9.0])]
    >>> drawing = draw(Figure("Regret", "step", "regret", lines))
    >>> drawing.axes[0].get_ylabel()
    'regret'
    """
    with _style():
        from matplotlib.figure import Figure as Drawing

        labels = slots([figure]) if labels is None else labels
        height = max(_HEIGHT, 46 + _ROW * len(figure.rows))
        size = (_WIDTH / 72, height / 72 if bare else 6.2 + (height - _HEIGHT) / 72)
        drawing = Drawing(figsize=size, layout=None if bare else "constrained")
        axes = drawing.add_subplot()
        curves = [_Arrays(curve, figure) for curve in figure.curves]
        log = [
            wanted and any((getattr(c, name) > 0).any() for c in curves)
            for wanted, name in ((figure.x_log, "x"), (figure.y_log, "y"))
        ]
        for curve in curves:
            curve.drop(x=log[0], y=log[1])
        axes.set_xscale("log" if log[0] else "linear")
        axes.set_yscale("log" if log[1] else "linear")
        limits = _limits(curves, x_log=log[0], y_log=log[1], rows=len(figure.rows))
        for curve in curves:
            curve.plot(axes, labels[curve.label], floor=limits[1][0])
        longest = _axes(axes, curves, limits, log, figure.rows)
        if not curves or not any(np.isfinite(curve.y).any() for curve in curves):
            none = axes.text(0.5, 0.5, "no values", transform=axes.transAxes, ha="center")
            none.set_color(LIGHT["tick"])
        if bare:
            drawing.subplots_adjust(
                left=_left(longest) / _WIDTH, right=1 - _RIGHT / _WIDTH,
                bottom=34 / height, top=1 - 12 / height,
            )  # fmt: skip
        else:
            _words(drawing, axes, figure)
        return drawing


def svg(figure: Figure, *, prefix: str, labels: Mapping[str, int] | None = None) -> str:
    """The bare figure as an ``<svg>`` element for an HTML page.

    Its colours are ``var(--curve-1)`` and so on (``style.LIGHT``, ``style.DARK``), its ids start
    with ``prefix``; the same figure gives the same text.
    """
    drawing = draw(figure, labels=labels, bare=True)
    buffer = io.StringIO()
    with _style():
        drawing.savefig(
            buffer,
            format="svg",
            transparent=True,
            metadata={"Date": None, "Creator": None, "Format": None, "Type": None},
        )
    return _for_page(buffer.getvalue(), prefix)


def save_figure(figure: Figure, path: Path, *, labels: Mapping[str, int] | None = None) -> None:
    """Write one figure as PNG, SVG or PDF, by the ending of ``path``; the same bytes each time."""
    path = Path(path)
    if path.suffix.lower() not in _FORMATS:
        raise InvalidInputError(f"path must end in {', '.join(_FORMATS)}, got {path.name!r}.")
    drawing = draw(figure, labels=labels)
    kind = path.suffix.lower()[1:]
    nothing: dict[str, Any] = {
        "png": {"Software": None},
        "svg": {"Date": None, "Creator": None},
        "pdf": {"CreationDate": None, "Creator": None, "Producer": None},
    }
    with _style("path"):  # a file cannot know its reader's fonts
        drawing.savefig(path, format=kind, dpi=160, metadata=nothing[kind])


def describe(figure: Figure) -> str:
    """The figure in words, for those who cannot see it.

    >>> describe(Figure("Regret", "step", "regret", [Curve("LinUCB", [0.0, 2.0], [0.0, 9.5])]))
    'Regret: regret against step. LinUCB ends at 9.5.'
    """
    if figure.rows:
        return f"{figure.title}: {figure.x_label} in each of {len(figure.rows)} rows: " + "; ".join(
            f"{curve.label} {number(float(f'{min(curve.x):.4g}'))} to "
            f"{number(float(f'{max(curve.x):.4g}'))}"
            for curve in figure.curves
        ) + "."  # fmt: skip
    words = [f"{figure.title}: {figure.y_label} against {figure.x_label}."]
    for curve in figure.curves:
        ends = [y for y in curve.y if np.isfinite(y)]
        words.append(
            f"{curve.label} ends at {number(float(f'{ends[-1]:.4g}'))}."
            if ends
            else f"{curve.label} has no values."
        )
    return " ".join(words)


def has_markers(curve: Curve) -> bool:
    """Whether the curve's points are marked: few points, or markers only."""
    few = 1 if curve.style == "reference" else _FEW
    return curve.style == "points" or len(curve.x) <= few


def _for_page(text: str, prefix: str) -> str:
    """Matplotlib's SVG file as an element of a page: smaller, with ids and colours of its own."""
    text = text[text.index("<svg") :]
    gone = r"<metadata>.*?</metadata>|<style.*?</style>|<!--.*?-->| transform=\"rotate\(-0 [^\"]*\""
    text = re.sub(gone, "", text, flags=re.DOTALL)  # a style element would reach the whole page
    box = re.search(r'viewBox="[^"]*"', text)
    assert box is not None
    text = f'<svg class="plot" role="img" {box[0]}' + text[text.index(">") :]
    text = text.replace("xlink:href", "href")
    text = re.sub(r"font-size: [^;]*; font-family: [^;]*; ", "", text)
    text = re.sub(r'="[^"<>]*"', _rounded, text)  # attributes only, never a tick's label
    used = {match[1] for match in re.finditer(r'(?:url\(|href=")#([^")]+)', text)}
    text = re.sub(
        r' id="([^"]*)"',
        lambda match: f' id="{prefix}-{match[1]}"' if match[1] in used else "",
        text,
    )
    text = re.sub(r'(url\(|href=")#', rf"\1#{prefix}-", text)
    for name, colour in LIGHT.items():
        text = text.replace(colour, f"var(--{name})")
    text = re.sub(r"(?:\s*<g/>)*\s*\n\s*(?:<defs/>|<defs>\s*</defs>)?", "\n", text)
    return re.sub(r'\n(?=[LCMzQ"])', " ", text).strip()


def _rounded(attribute: re.Match[str]) -> str:
    return re.sub(r"\d+\.\d{3,}", lambda match: f"{float(match[0]):.2f}", attribute[0])


class _Arrays:
    """A curve's numbers, checked; infinite ones are left out as NaN is."""

    def __init__(self, curve: Curve, figure: Figure) -> None:
        where = f"curve {curve.label!r} of figure {figure.title!r}"
        choice(f"style of {where}", curve.style, _STYLES)
        self.label, self.style, self.marked = curve.label, curve.style, has_markers(curve)
        self.across = bool(figure.rows)  # intervals along x
        self.x, self.y = np.array(curve.x, np.float64), np.array(curve.y, np.float64)
        self.banded = bool(len(curve.low) or len(curve.high))
        missing = np.full(len(self.x), np.nan)
        self.low = np.array(curve.low, np.float64) if self.banded else missing
        self.high = np.array(curve.high, np.float64) if self.banded else missing
        for name in ("y", "low", "high"):
            if getattr(self, name).shape != self.x.shape:
                raise InvalidInputError(
                    f"{name} of {where} must have {len(self.x)} values as x has, "
                    f"got {len(getattr(self, name))}."
                )
        self._thin(log=figure.x_log)
        for values in (self.x, self.y, self.low, self.high):
            values[~np.isfinite(values)] = np.nan

    def drop(self, *, x: bool, y: bool) -> None:
        """Leave out the points for which a log axis has no place."""
        if x:
            self.x[self.x <= 0] = np.nan
        if y:
            self.y[self.y <= 0] = np.nan

    def _thin(self, *, log: bool) -> None:
        x = self.x
        if len(x) <= _SHOWN or not (np.diff(x) > 0).all() or (log and x[0] <= 0):
            return
        along = np.log(x) if log else x
        bins = np.floor((along - along[0]) / (along[-1] - along[0]) * _SHOWN)
        keep = np.unique(bins, return_index=True)[1]
        for name in ("x", "y", "low", "high"):
            setattr(self, name, getattr(self, name)[keep])

    def plot(self, axes: Axes, slot: int, *, floor: float) -> None:
        colour = LIGHT[colour_name(slot)]
        x, y = self.x, self.y
        if self.across:
            axes.hlines(y, self.low, self.high, color=colour, linewidth=1.5, alpha=0.75)
            axes.plot(x, y, marker(slot), color=colour, label=self.label)
            return
        low = np.maximum(self.low, floor)  # a log axis has no place for zero
        if self.style == "points":
            if self.banded:
                axes.vlines(x, low, self.high, color=colour, linewidth=1.5, alpha=0.75)
            axes.plot(x, y, marker(slot), color=colour, label=self.label)
            return
        there = np.isfinite(x) & np.isfinite(y)
        beside = np.concatenate([[False], there, [False]])
        alone = there & ~beside[:-2] & ~beside[2:]
        if self.banded:
            axes.fill_between(x, low, self.high, color=colour, alpha=0.16, linewidth=0)
            axes.vlines(x[alone], low[alone], self.high[alone], color=colour, linewidth=1.5)
        shown = np.flatnonzero(there if self.marked else alone)
        axes.plot(
            x, y, color=colour, label=self.label,
            linewidth=1.4 if self.style == "reference" else 2.0,
            linestyle="none" if len(x) == 1 else (0, dashes(slot) or None),
            marker=marker(slot) if len(shown) else None,
            markevery=shown.tolist() if len(shown) else None,
        )  # fmt: skip


def _limits(
    curves: list[_Arrays], *, x_log: bool, y_log: bool, rows: int
) -> tuple[tuple[float, float], tuple[float, float]]:
    nothing: F64 = np.zeros(0)
    if rows:  # the first on top
        x = np.concatenate([nothing, *(v for c in curves for v in (c.x, c.low, c.high))])
        return _span(x, log=x_log, floor=False), (rows - 0.5, -0.5)
    x = np.concatenate([nothing, *(curve.x for curve in curves)])
    y = np.concatenate([nothing, *(v for c in curves for v in (c.y, c.low, c.high))])
    return _span(x, log=x_log, floor=False), _span(y, log=y_log, floor=True)


def _span(values: F64, *, log: bool, floor: bool) -> tuple[float, float]:
    values = values[np.isfinite(values)]
    if log:
        inside = np.log10(values[values > 0])
        low, high = float(inside.min()), float(inside.max())
        pad = 0.04 * (high - low) or 0.3
        return 10 ** (low - pad), 10 ** (high + pad)
    if not len(values):
        return 0.0, 1.0
    low, high = float(values.min()), float(values.max())
    pad = (0.05 if floor else 0.02) * (high - low) or 0.1 * abs(high) or 1.0
    # an axis that nearly reaches zero starts there
    start = 0.0 if 0 <= low < 0.3 * high and (floor or low == 0) else low - pad
    return start, high + pad


def _axes(
    axes: Axes,
    curves: list[_Arrays],
    limits: tuple[tuple[float, float], tuple[float, float]],
    log: list[bool],
    rows: list[str],
) -> int:
    """Limits, ticks and grid; the length of the longest tick label at the side."""
    from matplotlib.ticker import NullLocator

    own = np.unique(np.concatenate([np.zeros(0), *(curve.x for curve in curves)]))
    axes.set_xlim(limits[0])
    axes.set_ylim(limits[1])
    up = (list(range(len(rows))), rows) if rows else ticks(*limits[1], log=log[1])
    longest = max((len(text) for text in up[1]), default=1)
    across = _fitting(
        limits[0], log=log[0], values=own.tolist() if len(own) < 9 else [],
        room=_WIDTH - _left(longest) - _RIGHT,
    )  # fmt: skip
    for axis, (places, texts) in ((axes.xaxis, across), (axes.yaxis, up)):
        axis.set_minor_locator(NullLocator())
        axis.set_ticks(places, labels=texts)
    axes.grid(axis="y", color=LIGHT["grid"], linewidth=1)
    axes.set_axisbelow(True)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.spines["bottom"].set_color(LIGHT["rule"])
    axes.tick_params(length=0, pad=7, labelcolor=LIGHT["tick"], labelsize=_TEXT)
    axes.tick_params(axis="x", length=4, color=LIGHT["rule"])
    return longest


def _left(longest: int) -> float:
    """The margin that labels of so many characters need, at the size of a narrow page."""
    return 16 + 0.6 * _LARGE * longest


def _fitting(
    limits: tuple[float, float], *, log: bool, values: list[float], room: float
) -> tuple[list[float], list[str]]:
    """As many ticks as leave their labels apart, at the size that a narrow page gives them."""
    for most in (6, 5, 4, 3, 2):
        places, texts = ticks(*limits, log=log, values=values, most=most)
        along = np.array([*limits, *places])
        along = np.log(along) if log else along
        gaps = np.diff((along[2:] - along[0]) / (along[1] - along[0])) * room
        widths = np.array([0.58 * _LARGE * len(text) for text in texts])
        if (gaps >= (widths[1:] + widths[:-1]) / 2 + 8).all():
            break
    return places, texts


def _words(drawing: Drawing, axes: Axes, figure: Figure) -> None:
    title = axes.set_title(textwrap.fill(figure.title, 64), loc="left", pad=12)
    texts = [title, axes.set_xlabel(textwrap.fill(figure.x_label, 80), labelpad=8)]
    texts.append(axes.set_ylabel(textwrap.fill(figure.y_label, 44), labelpad=8))
    handles, names = axes.get_legend_handles_labels()
    if handles:
        names = [textwrap.fill(name, 80) for name in names]
        across = max(1, min(len(names), 84 // (max(map(len, names)) + 8)))
        legend = drawing.legend(handles, names, loc="outside lower center", ncols=across)
        texts += legend.get_texts()
    for text in texts:
        text.set_parse_math(False)  # a $ is a $


@contextmanager
def _style(text: str = "none") -> Iterator[None]:
    """Matplotlib's defaults and ours in place of the user's settings, which come back after."""
    matplotlib = require("matplotlib", "plot", "Figures need")
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(
            {
                "svg.fonttype": text,
                "svg.hashsalt": "whim",
                "font.size": _TEXT,
                "axes.titlesize": _TEXT + 2,
                "axes.titleweight": "bold",
                "figure.constrained_layout.w_pad": 0.15,
                "figure.constrained_layout.h_pad": 0.15,
                "legend.frameon": False,
                "legend.handlelength": 2.6,
                "lines.markersize": 6,
                "lines.solid_capstyle": "round",
                "pdf.fonttype": 42,
            }
        )
        yield
