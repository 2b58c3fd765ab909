"""The headline table for a terminal: what the paper has, what Whim has."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from whim.experiments.result import ExperimentResult

if TYPE_CHECKING:
    from rich.console import RenderableType


def headline_table(findings: Iterable[ExperimentResult]) -> RenderableType:
    """Label, paper and ours of every finding, for ``rich``'s ``Console.print``.

    Long text is wrapped; rows of findings with a warning are marked ``(!)`` and the warning is
    said below.

    Examples
    --------
    >>> from rich.console import Console
    >>> rows = [("Regret saved", "41 %", "39 %")]
    >>> found = ExperimentResult("a/b", "A", "", "", {}, headline=rows)
    >>> Console(width=40).print(headline_table([found]))  # doctest: +NORMALIZE_WHITESPACE
     what          paper   ours
    ─────────────────────────────
     Regret saved   41 %   39 %
    """
    from rich import box
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, show_edge=False, padding=(0, 1))
    table.add_column("what", overflow="fold")
    table.add_column("paper", justify="right", overflow="fold")
    table.add_column("ours", justify="right", overflow="fold", style="bold")
    notes = []
    for one in findings:
        mark = "(!) " if one.warning else ""
        for label, paper, ours in one.headline:
            # Text: a cell may hold square brackets, which are not markup
            table.add_row(Text(mark + label), Text(paper), Text(ours))
        if one.warning and one.headline:
            notes.append(Text(f"\n(!) {one.title}: {one.warning}"))
    return Group(table, *notes)
