"""What becomes of a feature, in words."""

from __future__ import annotations

from whim.features.fields import Field, names_of
from whim.features.scaling import to_digits_of


def described(f: Field) -> str:
    """One feature in a line.

    >>> from whim.features.fields import choice, number
    >>> described(number("age", mean=40.0, scale=10.0, missing=True))
    'number, (age - 40) / 10; a dimension of its own where it is missing'
    >>> described(choice("device", ["phone", "desk"], other=True))
    'one of 2 (phone, desk) or another'
    """
    if f.kind == "number":
        words = f"number, {_scaled(f)}"
    elif f.kind == "choice":
        listed = ", ".join(f.values[:5]) + (", …" if len(f.values) > 5 else "")
        words = f"one of {len(f.values)} ({listed})" + (" or another" if f.other else "")
    elif f.kind == "hash":
        words = f"{'words' if f.words else 'text'} hashed over {f.size} dimensions"
    elif f.kind == "cyclic":
        waves = len(names_of(f)) - f.missing
        words = f"cyclic with period {f.period:g}, {waves} sines and cosines"
    else:
        words = "true or false"
    return words + ("; a dimension of its own where it is missing" if f.missing else "")


def _scaled(f: Field) -> str:
    value = f"log(1 + {f.name} / {f.log:g})" if f.log else f.name
    if f.mean == 0 and f.scale == 1:
        return f"{value} as it is"
    sign = "-" if f.mean >= 0 else "+"
    mean = to_digits_of(f.scale, abs(f.mean))
    return f"({value} {sign} {mean:.15g}) / {f.scale:g}"
