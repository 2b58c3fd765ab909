"""``ExperimentResult``: what an experiment hands to the report; plain data, stored as JSON.

A report is made from stored findings alone, so it can be made again, elsewhere and later.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from whim.errors import InvalidInputError
from whim.files import write_atomic

FORMAT = 1


@dataclass(slots=True)
class Curve:
    """One line of a figure; ``low`` and ``high`` are its 95 % band, empty when it has none.

    ``style`` is ``"line"``, ``"points"`` (markers, intervals as bars) or ``"reference"`` (dashed,
    grey: a slope or a paper's number). In a figure with rows ``low`` and ``high`` are of x.
    """

    label: str
    x: list[float]
    y: list[float]
    low: list[float] = field(default_factory=list)
    high: list[float] = field(default_factory=list)
    style: str = "line"


@dataclass(slots=True)
class Figure:
    """One panel: curves over the same axes.

    With ``rows`` the y axis has these names, at 0, 1, 2 and so on from the top, and curves are
    points whose intervals lie along x.
    """

    title: str
    x_label: str
    y_label: str
    curves: list[Curve]
    x_log: bool = False
    y_log: bool = False
    caption: str = ""
    rows: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Table:
    """Rows of cells; numbers are shown right-aligned, as given in text.

    ``highlight`` lists the rows that are Whim's own policies (drawn bold).
    """

    title: str
    columns: list[str]
    rows: list[list[str]]
    caption: str = ""
    highlight: list[int] = field(default_factory=list)


@dataclass(slots=True)
class ExperimentResult:
    """One experiment's outcome; ``run`` fills in its id, the command and the seconds.

    The first table and the first figure lead: a report folds the others away.
    """

    id: str = ""  # such as synthetic/disjoint
    title: str = ""
    summary: str = ""  # what was found, in at most three sentences; the first is the conclusion
    command: str = ""  # what reproduces it
    settings: dict[str, Any] = field(default_factory=dict)  # every parameter and seed, by name
    differences: list[str] = field(default_factory=list)  # from the paper, a sentence for each
    warning: str = ""  # said above all tables and figures: a stand-in replaced the data
    tables: list[Table] = field(default_factory=list)
    figures: list[Figure] = field(default_factory=list)
    # rows for the table at the end of ``whim paper``: label, the paper's value, ours
    headline: list[tuple[str, str, str]] = field(default_factory=list)
    # what was to be reached, named so that it can be listed when missed, and whether it was
    targets: list[tuple[str, bool]] = field(default_factory=list)
    seconds: float = 0.0

    def save(self, path: Path) -> None:
        """Write as JSON, whole or not at all."""
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(path, json.dumps({"format": FORMAT, **asdict(self)}, indent=1))

    @classmethod
    def load(cls, path: Path) -> ExperimentResult:
        """Read what ``save`` wrote."""
        try:
            data = json.loads(path.read_text("utf-8"))
            if not isinstance(data, dict):
                raise ValueError(f"it holds a {type(data).__name__}")
            if data.pop("format") != FORMAT:
                raise ValueError(f"its format is not {FORMAT}")
            data["tables"] = [Table(**table) for table in data["tables"]]
            data["figures"] = [
                Figure(**{**figure, "curves": [Curve(**c) for c in figure["curves"]]})
                for figure in data["figures"]
            ]
            data["headline"] = [(label, paper, ours) for label, paper, ours in data["headline"]]
            data["targets"] = [(what, met) for what, met in data.get("targets", [])]
            return cls(**data)
        except KeyError as error:
            raise InvalidInputError(
                f"{path} must be the result of an experiment, got a file without {error}."
            ) from error
        except (OSError, ValueError, TypeError, AttributeError) as error:
            raise InvalidInputError(
                f"{path} must be the result of an experiment: {error}."
            ) from error
