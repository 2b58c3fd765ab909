"""A space's configuration as a form: flat fields of text, and back, with errors by their fields.

What is wrong is found by the code that checks requests of the API. What the form does not know,
such as settings that a later version adds, stays as it is.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, get_args

import msgspec

from whim.errors import WhimError
from whim.serve import wire
from whim.serve.dashboard.forms import checked, value_of
from whim.serve.http.bodies import NewSpace
from whim.serve.http.problems import problem_of

SIDES = ("context", "items")
ATTRIBUTES = tuple(name for name in wire.Field.__struct_fields__ if name not in ("name", "kind"))
KINDS: tuple[str, ...] = get_args(
    next(f.type for f in msgspec.structs.fields(wire.Field) if f.name == "kind")
)
_SPARE = 3  # empty rows for more features
_ROWS = 64  # of features in a form, at most
_ERRORS = 20  # that are told at once
_PLAIN = ("policy", "explore", "holdback", "baseline", "seed")
_RULES = ("wait_seconds", "default", "combine")
_RANGE = ("least", "most", "outside")
_TEXTS = frozenset((
    "name", "policy", "baseline", "combine", "outside", "kind",
))  # fmt: skip


def to_fields(config: wire.SpaceConfig) -> dict[str, str]:
    """A configuration as the text of each field."""
    fields = {name: _text(getattr(config, name)) for name in _PLAIN}
    if config.shadow:
        fields["shadow"] = "on"
    for name in _RULES:
        fields[f"rewards.{name}"] = _text(getattr(config.rewards, name))
    if config.rewards.range is not msgspec.UNSET:
        for name in _RANGE:
            fields[f"rewards.range.{name}"] = _text(getattr(config.rewards.range, name))
    for name, value in config.params.items():
        fields[f"p.{name}"] = json.dumps(value, ensure_ascii=False)
    for side in SIDES:
        fields |= _side_fields(side, getattr(config, side))
    return fields


def _side_fields(side: str, features: wire.Features) -> dict[str, str]:
    fields = {
        f"{side}.size": _text(features.size or ""),
        f"{side}.rest": _text(features.rest or ""),
    }
    if features.constant:
        fields[f"{side}.constant"] = "on"
    defaults = wire.Field(name="-", kind="flag")
    for i, one in enumerate(features.fields):
        row = f"{side}.fields.{i}"
        fields[f"{row}.name"], fields[f"{row}.kind"] = one.name, one.kind
        for name in ATTRIBUTES:
            value = getattr(one, name)
            if value != getattr(defaults, name):
                fields[f"{row}.{name}"] = _text(value)
    return fields


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        plain = all(isinstance(v, str) and v == v.strip() and "," not in v and v for v in value)
        if plain and not (value and value[0].startswith("[")):
            return ", ".join(value)
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        value = int(value)
    return json.dumps(value, ensure_ascii=False)


def rows_of(fields: Mapping[str, str], side: str) -> list[int]:
    """The rows of features that a form has, and some empty ones."""
    pattern = re.compile(rf"{side}\.fields\.(\d{{1,3}})\.name")
    found = [int(m.group(1)) for m in map(pattern.fullmatch, fields) if m]
    filled = [i for i in found if fields[f"{side}.fields.{i}.name"].strip()]
    last = max(filled, default=-1)
    return [*range(min(last + 1 + _SPARE, _ROWS))]


# -- back -------------------------------------------------------------------------------------


def to_values(
    fields: Mapping[str, str], base: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, list[int]]]:
    """What a form says, as a request would; and which row of the form each feature stands in."""
    values: dict[str, Any] = {**base}
    for name in _PLAIN if base else (*_PLAIN, "name"):  # a space keeps its name
        _put(values, name, fields.get(name))
    values["shadow"] = "shadow" in fields
    values["params"] = {
        name[2:]: value_of(text.strip())
        for name, text in fields.items()
        if name.startswith("p.") and text.strip()
    }
    rules = values["rewards"] = {**base.get("rewards", {})}
    for name in _RULES:
        _put(rules, name, fields.get(f"rewards.{name}"))
    bounds: dict[str, Any] = {}
    for name in _RANGE:
        _put(bounds, name, fields.get(f"rewards.range.{name}"))
    rules.pop("range", None)
    if "least" in bounds or "most" in bounds:
        rules["range"] = bounds
    places = {}
    for side in SIDES:
        values[side], places[side] = _side_values(fields, side, base.get(side, {}))
    return values, places


def _put(into: dict[str, Any], name: str, text: str | None) -> None:
    """A field's value; an empty one is the default."""
    if text is None:
        return
    text = text.strip()
    if text:
        into[name] = text if name in _TEXTS else value_of(text)
    else:
        into.pop(name, None)


def _side_values(
    fields: Mapping[str, str], side: str, base: Mapping[str, Any]
) -> tuple[dict[str, Any], list[int]]:
    values = {**base, "constant": f"{side}.constant" in fields}
    for name in ("size", "rest"):
        _put(values, name, fields.get(f"{side}.{name}"))
    old = {one["name"]: one for one in base.get("fields", ())}
    rows, places = [], []
    for i in rows_of(fields, side):
        row = {"name": fields.get(f"{side}.fields.{i}.name", "").strip()}
        if not row["name"]:
            continue
        row = {**{k: v for k, v in old.get(row["name"], {}).items() if k not in ATTRIBUTES}, **row}
        _put(row, "kind", fields.get(f"{side}.fields.{i}.kind", ""))
        for name in ATTRIBUTES:
            _put_attribute(row, name, fields.get(f"{side}.fields.{i}.{name}", ""))
        rows.append(row)
        places.append(i)
    values["fields"] = rows
    return values, places


def _put_attribute(row: dict[str, Any], name: str, text: str) -> None:
    text = text.strip()
    if not text:
        return
    if name == "values" and not text.startswith("["):
        row[name] = [part.strip() for part in text.split(",") if part.strip()]
    else:
        row[name] = value_of(text)


def read(
    fields: Mapping[str, str], now: wire.SpaceConfig | None
) -> tuple[wire.SpaceConfig | None, dict[str, str]]:
    """The configuration that a form asks for, or what is wrong with which field.

    ``now`` is that of a space that is to be changed; None: a space is to be made, and its name is
    checked, too.
    """
    base = {} if now is None else msgspec.to_builtins(now)
    values, places = to_values(fields, base)
    kind = NewSpace if now is None else wire.SpaceConfig
    errors: dict[str, str] = {}
    config = None
    for _ in range(_ERRORS):
        try:
            config = msgspec.convert(values, kind)
            break
        except msgspec.ValidationError as error:
            path = _add(errors, error, places)
            if not _drop(values, path):
                break
    if errors or config is None:
        return None, errors
    parts = {name: getattr(config, name) for name in wire.SpaceConfig.__struct_fields__}
    made = wire.SpaceConfig(**parts)
    try:
        checked(made)
    except WhimError as error:
        _add(errors, error, places)
        return None, errors
    return made, errors


def _add(errors: dict[str, str], error: Exception, places: dict[str, Any]) -> str:
    """Put an error beside its field; its path."""
    problem = problem_of(error)
    path, message = "$", str(error)
    if problem is not None:
        path, message = problem.problem.path or "$", problem.problem.message
    text = message.removeprefix(path).removeprefix(" is wrong").lstrip(": ")
    missing = re.search(r"missing required field `(\w+)`", text)
    field = field_of(path + (f".{missing[1]}" if missing else ""), places)
    errors.setdefault(field, plain(text))
    return path


_PHRASES = (
    (r"Object missing required field .*", "must be filled in."),
    (r"Expected `str` matching regex .*",
     "must be letters, digits, points, underscores and hyphens, the first one a letter or digit."),
    (r"Expected `str` of length >= 1\.", "must be filled in."),
    (r"Expected `str` of length <= (\d+)\.", r"must have at most \1 characters."),
    (r"Expected `(?:int|float)` <= ([\d.e+]+?)(?:\.0)?\.", r"must be at most \1."),
    (r"Expected `(?:int|float)` >= ([\d.e+-]+?)(?:\.0)?\.", r"must be at least \1."),
    (r"Expected `(?:int|float)` > ([\d.e+-]+?)(?:\.0)?\.", r"must be above \1."),
    (r"Expected `int`, got `.*", "must be a whole number."),
    (r"Expected `float`, got `.*", "must be a number."),
    (r"Invalid enum value (.*)\.", r"must be one of the choices, got \1."),
)  # fmt: skip


def plain(text: str) -> str:
    """What is wrong with a field, in words.

    >>> plain("Expected `float` <= 1.0."), plain("must be empty.")
    ('must be at most 1.', 'must be empty.')
    """
    for pattern, words in _PHRASES:
        if (found := re.fullmatch(pattern, text)) is not None:
            return found.expand(words)
    return text


def field_of(path: str, places: Mapping[str, Any]) -> str:
    """The field of a form that a path is about, or its group; "" where there is none.

    >>> field_of("$.context.fields[1].scale", {"context": [0, 3]})
    'context.fields.3.scale'
    >>> field_of("$.params.alpha", {}), field_of("$.features", {}), field_of("$", {})
    ('p.alpha', 'items', '')
    """
    name = re.sub(r"\[(\w*)\]", r".\1", path.removeprefix("$").lstrip("."))
    name = re.sub(r"^features\b", "items", re.sub(r"^params\b", "p", name))
    side, _, rest = name.partition(".fields.")
    row, _, attribute = rest.partition(".")
    if side in places and row.isdigit() and int(row) < len(places[side]):
        attribute = attribute.partition(".")[0]
        name = f"{side}.fields.{places[side][int(row)]}" + (f".{attribute}" if attribute else "")
    return name


def _drop(values: dict[str, Any], path: str) -> bool:
    """Leave out what is wrong, so that the rest can be checked; False: nothing is left out."""
    keys = re.findall(r"\w+", path)
    if "fields" in keys and len(keys) > keys.index("fields") + 1:
        at = int(keys[2])
        values[keys[0]]["fields"][at] = {"name": f"\0{at}", "kind": "flag"}
        return True
    if not keys:  # of the whole only its name may be missing
        new = "name" not in values
        values.setdefault("name", "unnamed")
        return new
    inside: Any = values
    for key in keys[:-1]:
        inside = inside.get(key, {}) if isinstance(inside, dict) else {}
    if not isinstance(inside, dict) or keys[-1] not in inside:
        return values.pop(keys[0], None) is not None
    del inside[keys[-1]]
    return True
