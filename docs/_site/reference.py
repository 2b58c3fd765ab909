"""The parts of the reference that the code writes: policies, commands, HTTP calls."""

from __future__ import annotations

import inspect
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


# -- policies ---------------------------------------------------------------------------------

# in the order in which a reader needs them; what is not named here comes under "Further"
_CONTRACT = {
    "Choosing": "select select_many rank scores scores_many probabilities",
    "Learning": "update update_many reset_arms",
    "Lists": "select_list select_list_many update_list update_list_many",
    "Arms": "add_arms retire_arms set_features arms plays step",
    "Features by name": "with_features features feature_names",
    "Looking inside": "explain preview history plot_changes",
    "Parameters and copies": "params get_params clone",
    "Saving": "save load to_bytes from_bytes",
}
# what makes policies, and what they return
_AROUND = {
    **dict.fromkeys(("policy", "load", "from_bytes", "register"), "function"),
    **dict.fromkeys(("Decision", "ListDecision", "ChangeEvent"), "class"),
}


def policies() -> str:
    """The contract of all policies, then every registered one with what it adds."""
    import whim

    parts = ["## The contract\n", _contract(whim.Policy), "## Made, loaded, returned\n"]
    parts += [_rst(f".. auto{kind}:: whim.{name}") for name, kind in _AROUND.items()]
    parts.append("## Every policy\n")
    for name, cls in sorted(whim.POLICIES.items(), key=lambda item: item[1].__name__.lower()):
        added = own(cls, whim.Policy)
        parts += [
            f"### {cls.__name__}\n",
            f"Registered as `{name}`.\n",
            _rst(
                f".. autoclass:: whim.{cls.__name__}",
                *([f"   :members: {', '.join(added)}"] if added else []),
            ),
        ]
    return "\n".join(parts)


def public(cls: type) -> list[str]:
    """Methods and properties of a class that are not private, inherited ones included."""
    found = {name: inspect.getattr_static(cls, name) for name in dir(cls) if name[0] != "_"}
    return [n for n, one in found.items() if isinstance(one, property) or _callable(one)]


def own(cls: type, base: type) -> list[str]:
    """What a policy has beyond the contract."""
    return [name for name in public(cls) if not hasattr(base, name)]


def _callable(one: Any) -> bool:
    return callable(getattr(one, "__func__", one))


def _contract(cls: type) -> str:
    named = {name for words in _CONTRACT.values() for name in words.split()}
    groups = {title: words.split() for title, words in _CONTRACT.items()}
    groups["Further"] = [name for name in public(cls) if name not in named]
    lines = [f".. autoclass:: whim.{cls.__name__}"]
    for title, names in groups.items():
        lines += ["", f"   .. rubric:: {title}", ""]
        lines += [f"   .. auto{_kind(cls, name)}:: {name}" for name in names]
    return _rst(*lines)


def _kind(cls: type, name: str) -> str:
    return "property" if isinstance(inspect.getattr_static(cls, name), property) else "method"


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
