"""The findings of a folder, in the order in which a report tells them."""

from __future__ import annotations

from pathlib import Path

from whim.errors import InvalidInputError
from whim.experiments.findings import Findings

__all__ = ["read_folder"]

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


def _place(findings: Findings) -> tuple[int, str]:
    family = findings.id.partition("/")[0]
    known = family in _FAMILIES
    return _FAMILIES.index(family) if known else len(_FAMILIES), findings.id
