"""The parts of the reference that the code writes: policies, commands, HTTP calls."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

_TAGS = {
    "decisions": "Decisions and rewards",
    "spaces": "Spaces",
    "operations": "Operations",
    "personalizer": "Personalizer's paths",
}


def _rst(*lines: str) -> str:
    return "\n".join(["```{eval-rst}", *lines, "```", ""])


def _class(path: str, *, members: bool = True) -> str:
    options = ["   :members:"] if members else []
    return _rst(f".. autoclass:: {path}", *options)


# -- policies ---------------------------------------------------------------------------------


def policies() -> str:
    """Every registered policy, with what it adds to the contract of all."""
    import whim

    parts = ["## Every policy\n"]
    for name, cls in sorted(whim.POLICIES.items(), key=lambda item: item[1].__name__.lower()):
        parts += [
            f"### {cls.__name__}\n",
            f"Registered as `{name}`.\n",
            _class(f"whim.{cls.__name__}"),
        ]
    return "\n".join(parts)


# -- the command line -------------------------------------------------------------------------


def commands() -> str:
    """Every verb with its arguments and options, as ``--help`` shows them."""
    import typer

    from whim.cli.app import app

    return "\n".join(_verbs(typer.main.get_command(app), "whim"))


def _verbs(group: Any, above: str) -> Iterator[str]:
    for name, command in group.commands.items():
        title = f"{above} {name}"
        if hasattr(command, "commands"):
            yield f"## {title}\n\n{_paragraphs(command.help)}\n"
            yield from _verbs(command, title)
        else:
            depth = "#" * title.count(" ") + "#"
            yield f"{depth} {title}\n\n{_paragraphs(command.help)}\n\n{_parameters(command)}\n"


def _paragraphs(text: str | None) -> str:
    return _plain(re.sub(r"(?<!\n)\n(?!\n)", " ", (text or "").replace("\b", "")))


def _parameters(command: Any) -> str:
    rows = []
    for one in command.params:
        if one.name == "help":
            continue
        if one.param_type_name == "argument":
            name = one.name.upper()
        else:
            name = ", ".join([*one.opts, *one.secondary_opts])
        words = _plain(getattr(one, "help", None) or "")
        default = one.default
        if default not in (None, False, (), [], "") and not callable(default):
            words += f" (default `{default}`)"
        rows.append(f"| `{name}` | {words}{' (needed)' if one.required else ''} |")
    return "\n".join(["| | |", "|---|---|", *rows]) if rows else ""


def _plain(text: str) -> str:
    """Help as Markdown takes it literally."""
    return re.sub(r"([\\<>*_|\[\]$])", r"\\\1", " ".join(text.split(" ")))


# -- the service ------------------------------------------------------------------------------


def http() -> str:
    """Every path of the OpenAPI document, then every schema that one of them names."""
    from whim.serve.app import API
    from whim.serve.http.openapi import document

    whole = document(API, [])
    by_tag: dict[str, list[str]] = {}
    for path, methods in whole["paths"].items():
        for method, operation in methods.items():
            by_tag.setdefault(operation["tags"][0], []).append(_operation(path, method, operation))
    parts = []
    for tag, operations in by_tag.items():
        parts += [f"## {_TAGS.get(tag, tag.capitalize())}\n", *operations]
    parts.append("## Schemas\n")
    for name, schema in sorted(whole["components"]["schemas"].items()):
        parts.append(f"(schema-{name.lower()})=\n### {name}\n\n{_schema(schema)}\n")
    return "\n".join(parts)


def _operation(path: str, method: str, operation: dict[str, Any]) -> str:
    lines = [f"### {method.upper()} {path}\n", _plain(operation.get("summary") or ""), ""]
    if operation.get("description"):
        lines += [_plain(operation["description"]), ""]
    rows = [
        f"| `{p['name']}` | in the {p['in']} | {_type(p['schema'])} "
        f"| {_plain(p.get('description', ''))} |"
        for p in operation["parameters"]
    ]
    body = operation.get("requestBody", {}).get("content", {}).get("application/json")
    if body:
        rows.append(f"| | body | {_type(body['schema'])} | |")
    if rows:
        lines += ["| parameter | | type | |", "|---|---|---|---|", *rows, ""]
    lines += ["| status | | body |", "|---|---|---|"]
    for status, reply in operation["responses"].items():
        shapes = ", ".join(_type(one["schema"]) for one in reply.get("content", {}).values())
        lines.append(f"| {status} | {_plain(reply['description'])} | {shapes} |")
    return "\n".join([*lines, ""])


def _schema(schema: dict[str, Any]) -> str:
    lines = [_plain(" ".join(schema.get("description", "").split())), ""]
    if "properties" not in schema:
        return "\n".join([*lines, _type(schema)])
    needed = set(schema.get("required", ()))
    lines += ["| field | type | |", "|---|---|---|"]
    for name, field in schema["properties"].items():
        default = field.get("default")
        notes = ["needed"] if name in needed else []
        if default is not None and default not in ({}, []):
            notes.append(f"default `{default}`")
        if field.get("description"):
            notes.append(_plain(field["description"]))
        lines.append(f"| `{name}` | {_type(field)} | {', '.join(notes)} |")
    return "\n".join(lines)


def _type(schema: dict[str, Any]) -> str:
    """A schema in a few words, with a link where it has a name."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"[{name}](#schema-{name.lower()})"
    for key in ("anyOf", "oneOf"):
        if key in schema:
            return " or ".join(dict.fromkeys(map(_type, schema[key])))
    if "enum" in schema:
        return ", ".join(f"`{value}`" for value in schema["enum"])
    kind = str(schema.get("type", "anything"))
    if kind == "array":
        return f"list of {_type(schema.get('items', {}))}"
    if kind == "object" and isinstance(schema.get("additionalProperties"), dict):
        return f"object of {_type(schema['additionalProperties'])}"
    limits = [
        f"{sign} {schema[key]}"
        for key, sign in (
            ("minimum", "≥"),
            ("exclusiveMinimum", "\\>"),
            ("maximum", "≤"),
            ("exclusiveMaximum", "\\<"),
        )
        if key in schema
    ]
    if "maxLength" in schema:
        limits.append(f"at most {schema['maxLength']} characters")
    return " ".join([kind, *limits])


PARTS: dict[str, Callable[[], str]] = {
    "reference/policies": policies,
    "reference/commands": commands,
    "reference/http": http,
}
