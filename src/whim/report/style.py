"""How a curve looks: one slot per label, kept through a report; colours for colour-blind eyes too.

The six colours differ by at least 22 (CIE 1976 ΔE) in each pair, for normal sight and under
simulated protanopia, deuteranopia and tritanopia; each stands 3:1 or more against its ground.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from whim.experiments.result import Curve, Figure

LIGHT = {
    "curve-1": "#1b45b4",
    "curve-2": "#d9731a",
    "curve-3": "#017850",
    "curve-4": "#981d84",
    "curve-5": "#5b3504",
    "curve-6": "#1f97f0",
    "reference": "#6c757e",
    "tick": "#59636f",
    "grid": "#e4e7ea",
    "rule": "#b4bbc2",
}
DARK = {
    "curve-1": "#6f7cf5",
    "curve-2": "#e0692a",
    "curve-3": "#3ddc97",
    "curve-4": "#c66bb2",
    "curve-5": "#ffd54a",
    "curve-6": "#cdeaff",
    "reference": "#98a1aa",
    "tick": "#a5adb5",
    "grid": "#2a2f35",
    "rule": "#565e66",
}
COLOURS = 6

# matplotlib's marker and the same shape as a path of an 8 × 8 box around the origin
MARKERS = {
    "o": "M-4 0a4 4 0 1 0 8 0a4 4 0 1 0-8 0z",
    "s": "M-3.5-3.5h7v7h-7z",
    "^": "M0-4.5 4.5 3.5h-9z",
    "D": "M0-4.8 4.8 0 0 4.8-4.8 0z",
}
_DASHES: list[tuple[float, ...]] = [(), (5, 2), (1.5, 1.5), (7, 2, 1.5, 2)]
_REFERENCE_DASHES: list[tuple[float, ...]] = [(4, 3), (1.5, 2.5), (8, 3), (8, 2, 2, 2)]


def slots(figures: Iterable[Figure]) -> dict[str, int]:
    """Give each label one slot for all the figures; references are negative.

    Labels that meet in a figure never share a slot, and share a colour only when there are more
    than six of them. While a report has no more than six labels, each has its own colour.

    >>> curves = [Curve(label, [0.0], [1.0]) for label in ("LinUCB", "PSLinUCB")]
    >>> slots([Figure("Regret", "step", "regret", curves)])
    {'LinUCB': 0, 'PSLinUCB': 1}
    """
    panels = [
        [
            list(dict.fromkeys(c.label for c in figure.curves if (c.style == "reference") == grey))
            for grey in (False, True)
        ]
        for figure in figures
    ]
    slot_of: dict[str, int] = {}
    for grey in (False, True):
        meets: dict[str, set[str]] = {}
        for panel in panels:
            for label in panel[grey]:
                meets.setdefault(label, set()).update(panel[grey])
        used: Counter[int] = Counter()
        for label, others in meets.items():
            if label in slot_of:  # grey here, a policy there: it stays a policy
                continue
            taken = {slot_of[other] for other in others if other in slot_of}
            if grey:
                slot_of[label] = next(s for s in range(-1, -2 - len(others), -1) if s not in taken)
                continue
            free = [s for s in range(len(others) + COLOURS) if s not in taken]
            # a new colour before a new dash, the least used colour before the others
            slot_of[label] = min(free, key=lambda s: (s // COLOURS, used[s], s))
            used[slot_of[label]] += 1
    return slot_of


def colour_name(slot: int) -> str:
    """The key of ``LIGHT`` and ``DARK`` for a slot."""
    return "reference" if slot < 0 else f"curve-{slot % COLOURS + 1}"


def dashes(slot: int) -> tuple[float, ...]:
    """The dash pattern of a slot, in line widths; empty is a solid line."""
    if slot < 0:
        return _REFERENCE_DASHES[(-slot - 1) % len(_REFERENCE_DASHES)]
    return _DASHES[slot // COLOURS % len(_DASHES)]


def marker(slot: int) -> str:
    """The matplotlib marker of a slot."""
    return list(MARKERS)[slot % len(MARKERS)]


def swatch(curve: Curve, slot: int, *, marked: bool) -> str:
    """A sample of the curve for the legend, as inline SVG."""
    colour = f"var(--{colour_name(slot)})"
    pattern = " ".join(f"{2 * dash:g}" for dash in dashes(slot))
    line = f'<path d="M1 6H33" stroke="{colour}" stroke-width="2.2"'
    line += f' stroke-dasharray="{pattern}"/>' if pattern else "/>"
    shape = f'<path d="{MARKERS[marker(slot)]}" transform="translate(17 6)" fill="{colour}"/>'
    dots = curve.style == "points" or len(curve.x) == 1
    inside = ("" if dots else line) + (shape if marked else "")
    return f'<svg class="swatch" viewBox="0 0 34 12" aria-hidden="true">{inside}</svg>'
