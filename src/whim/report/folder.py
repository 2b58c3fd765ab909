"""The findings of a folder, in the order in which a report tells them."""

from __future__ import annotations

from pathlib import Path

from whim.errors import InvalidInputError
from whim.experiments import EXPERIMENTS, Findings

__all__ = ["read_folder"]

_ORDER = list(EXPERIMENTS)
_FAMILIES = ("synthetic", "lastfm", "yahoo", "beyond")


def read_folder(folder: Path) -> list[Findings]:
    """Every ``*.json`` of ``folder``: the paper's experiments first, then those beyond it."""
    folder = Path(folder)
    if not folder.is_dir():
        what = "a file" if folder.exists() else "nothing there"
        raise InvalidInputError(f"folder must be a folder of findings, got {folder}: {what}.")
    found = [Findings.load(path) for path in sorted(folder.glob("*.json"))]
    if not found:
        raise InvalidInputError(
            f"folder must hold findings (*.json, as 'whim paper' writes), got {folder}: none there."
        )
    return sorted(found, key=_place)


def _place(findings: Findings) -> tuple[int, int, str]:
    """By family, then as they are run, then by id."""
    family = findings.id.partition("/")[0]
    group = _FAMILIES.index(family) if family in _FAMILIES else len(_FAMILIES)
    turn = _ORDER.index(findings.id) if findings.id in _ORDER else len(_ORDER)
    return group, turn, findings.id
