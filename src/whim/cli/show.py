"""What the verbs share in showing results: numbers, tables, JSON, figures and folders."""

from __future__ import annotations

import json
import math
import shutil
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from whim.errors import InvalidInputError
from whim.extras import require
from whim.files import unwritable

if TYPE_CHECKING:
    from whim.evaluate import ReplayResult, SimulationResult

_LABEL = 32  # characters of a label up to which it is not folded
_WIDEST = 10_000  # of a table


def _decimals(value: float, significant: int) -> int:
    if not math.isfinite(value) or value == 0:
        return 2
    return max(0, significant - 1 - math.floor(math.log10(abs(value))))


def estimate(row: Mapping[str, Any], name: str, *, significant: int = 3, apart: str = " ") -> str:
    """A column of ``rows()`` with its interval.

    >>> estimate({"ctr": 0.03541, "ctr_low": 0.035, "ctr_high": 0.0358}, "ctr")
    '0.0354 [0.0350, 0.0358]'
    """
    value, low, high = (row[f"{name}{end}"] for end in ("", "_low", "_high"))
    if not math.isfinite(value):
        return "–"
    d = _decimals(value, significant)
    if not (math.isfinite(low) and math.isfinite(high)):  # one run
        return f"{value:,.{d}f}"
    return f"{value:,.{d}f}{apart}[{low:,.{d}f}, {high:,.{d}f}]"


def percent(row: Mapping[str, Any], name: str) -> str:
    """A share with its interval, in per cent.

    >>> percent({"saved": 0.412, "saved_low": 0.395, "saved_high": 0.428}, "saved")
    '41 % [40, 43]'
    """
    value, low, high = (100 * row[f"{name}{end}"] for end in ("", "_low", "_high"))
    if not math.isfinite(value):
        return "–"
    if not (math.isfinite(low) and math.isfinite(high)):
        return f"{value:.0f} %"
    d = 0 if max(abs(low), abs(high)) >= 10 else 1
    return f"{value:.{d}f} % [{low:.{d}f}, {high:.{d}f}]"


def count(value: float | None) -> str:
    """A mean count, or a dash.

    >>> count(12.0), count(0.25), count(None)
    ('12', '0.2', '–')
    """
    if value is None:
        return "–"
    return f"{value:,.0f}" if value == round(value) or abs(value) >= 1000 else f"{value:.1f}"


def compact(value: float) -> str:
    """A large count in few characters.

    >>> compact(4000), compact(229_123), compact(4_581_000)
    ('4,000', '229k', '4.58M')
    """
    if value < 10_000:
        return f"{value:,.0f}"
    size, unit = (1e3, "k") if value < 999_500 else (1e6, "M")
    return f"{value / size:.{max(0, 2 - int(math.log10(value / size)))}f}{unit}"


def print_table(headings: Sequence[str], rows: Sequence[Sequence[str]], *, left: int = 1) -> None:
    """A table on stdout; the first ``left`` columns are text, the others numbers.

    The first one has the rows' labels, which are kept in one line unless they are very long.
    """
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE, padding=(0, 1, 0, 0), show_edge=False, pad_edge=False)
    for i, heading in enumerate(headings):
        if i < left:
            labels = [len(row[i]) for row in rows] if i == 0 else []
            least = max(len(heading), min(max(labels, default=0), _LABEL))
            table.add_column(heading, overflow="fold", min_width=least)
        else:
            table.add_column(heading, justify="right", no_wrap=True)
    for row in rows:
        table.add_row(*map(Text, row))  # Text: square brackets are not markup here
    console = Console()
    # long words are folded to fit; labels and numbers are never cut, so it may be wider
    wide = console.options.update(width=_WIDEST)
    console.width = max(console.width, console.measure(table, options=wide).minimum)
    console.print(table)


def say(text: str) -> None:
    """A note below a table, in lines that fit the terminal."""
    width = min(shutil.get_terminal_size().columns, 100)
    typer.echo()
    for line in text.splitlines():
        typer.echo(textwrap.fill(line, width, break_on_hyphens=False))


def print_json(value: Any) -> None:
    """JSON on stdout; numbers that are not finite become null."""
    from whim.evaluate.simulation_result import finite

    typer.echo(json.dumps(finite(value), indent=2, default=str, allow_nan=False))


def check_targets(*, save: Path | None = None, plot: Path | None = None) -> None:
    """Refuse, before the work, a folder or figure that could not be written after it."""
    if save is not None:
        check_folder("save", save)
    if plot is None:
        return
    backend = require("matplotlib.backend_bases", "plot", "Figures need")
    kinds = sorted(backend.FigureCanvasBase.filetypes)
    if plot.suffix.lower().removeprefix(".") not in kinds:
        raise InvalidInputError(f"plot must end in one of .{', .'.join(kinds)}, got {plot.name!r}.")
    if not plot.parent.is_dir():
        raise InvalidInputError(f"plot must be in a folder that exists, got {str(plot)!r}.")
    check_writable("plot", plot, plot.parent)
    if plot.is_dir():
        raise InvalidInputError(f"plot must be a file, got the folder {str(plot)!r}.")


def check_folder(option: str, folder: Path) -> None:
    """Refuse a folder to write into that is a file, or can be neither made nor written."""
    if folder.exists() and not folder.is_dir():
        raise InvalidInputError(f"{option} must be a folder, got the file {str(folder)!r}.")
    check_writable(option, folder, folder)


def check_writable(option: str, path: Path, folder: Path) -> None:
    """Refuse what is to be written into a folder that cannot be written."""
    why = unwritable(folder)
    if why is not None:
        raise InvalidInputError(
            f"{option} must be where files can be written, got {str(path)!r}: {why}."
        )


def keep(result: SimulationResult | ReplayResult, *, save: Path | None, plot: Path | None) -> None:
    """Write the requested files, and say on stderr where they are."""
    option, path = "save", save
    try:
        if save is not None:
            typer.echo(f"saved: {result.save(save)}", err=True)
        option, path = "plot", plot
        if plot is not None:
            result.plot().savefig(plot, dpi=150)
            typer.echo(f"figure: {plot}", err=True)
    except OSError as error:
        raise InvalidInputError(
            f"{option} must be where files can be written, got {str(path)!r}: "
            f"{error.strerror or error}."
        ) from error
