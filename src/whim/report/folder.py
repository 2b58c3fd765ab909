"""The results of a folder, in the order in which a report shows them."""

from __future__ import annotations

from pathlib import Path

from whim.errors import InvalidInputError
from whim.experiments import EXPERIMENTS, ExperimentResult
from whim.report.saved import is_saved_run, read_saved_run

_ORDER = list(EXPERIMENTS)
_FAMILIES = ("synthetic", "lastfm", "yahoo", "beyond")


def read_folder(folder: Path) -> list[ExperimentResult]:
    """Every ``*.json`` of ``folder``: the paper's experiments first, then those beyond it."""
    folder = Path(folder)
    if not folder.is_dir():
        what = "a file" if folder.exists() else "nothing there"
        raise InvalidInputError(f"folder must be a folder of results, got {folder}: {what}.")
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
