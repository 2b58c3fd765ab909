"""What msgspec says of a space's configuration, as a field, a constraint and what came."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from typing import Any

_WORDS = {
    "`int`": "a whole number", "`float`": "a number", "`str`": "text", "`bool`": "true or false",
    "`object`": "an object", "`array`": "a list", "`null`": "nothing",
}  # fmt: skip


def in_words(error: str, config: Mapping[str, Any], known: tuple[str, ...]) -> str:
    """Its message in words; ``known`` are the fields that a configuration may have.

    >>> in_words("Expected `bool`, got `str` - at `$.shadow`", {"shadow": "maybe"}, ())
    "shadow must be true or false, got 'maybe'."
    >>> in_words("Object contains unknown field `alfa`", {}, ("policy", "params"))
    'alfa must be a field of a space, got an unknown field `alfa`; perhaps params.alfa is meant.'
    """
    text, _, at = error.partition(" - at `$.")
    at = at.removesuffix("`")
    if found := re.search(r"unknown field `(.*)`", text):
        return _unknown(found[1], at, known)
    if found := re.search(r"required field `(.*)`", text):
        return f"{f'{at}.' if at else ''}{found[1]} must be given."
    if not at:
        return f"a space must be described as docs/serving.md says: {text.rstrip('.')}."
    must = text.removeprefix("Expected ").partition(", got ")[0]
    if text.startswith("Invalid "):  # value of a choice
        must = "as docs/serving.md says"
    for word, plain in _WORDS.items():
        must = must.replace(word, plain)
    return f"{at} must be {must}, got {_at(config, at)!r:.80}."


def _unknown(name: str, at: str, known: tuple[str, ...]) -> str:
    said = f"{f'{at}.' if at else ''}{name} must be a field of a space, got an unknown field "
    if at:
        return f"{said}`{name}`."
    close = difflib.get_close_matches(name, known, 1)
    return f"{said}`{name}`; perhaps {close[0] if close else f'params.{name}'} is meant."


def _at(value: Any, path: str) -> Any:
    for part in re.findall(r"[^.\[\]]+", path):
        try:
            value = value[int(part)] if isinstance(value, list) else value[part]
        except (KeyError, IndexError, TypeError, ValueError):
            return value
    return value
