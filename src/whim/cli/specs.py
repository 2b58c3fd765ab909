"""Policies, worlds and lists of values as they are written on the command line.

A policy is ``[LABEL=]NAME[:param=value,...]``; sizes of contexts and items are filled in from the
world or log that it is for.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields
from typing import TYPE_CHECKING, Any, NamedTuple

from whim.errors import InvalidInputError

if TYPE_CHECKING:
    from whim.evaluate.tasks import OracleMaker
    from whim.policies import Policy
    from whim.worlds import World

_ORACLE = "oracle-restart"
_WORDS = {"true": True, "false": False, "none": None}
# the paper's synthetic experiments have one user who comes back
# and a front page of few articles shows within a minute what Yahoo's takes a month to show
_CUSTOMS: dict[str, dict[str, Any]] = {
    "piecewise": {"users": "fixed"},
    "news": {"n_arms": 20, "pool_size": 5, "rate": 0.1},
}


class Spec(NamedTuple):
    """A policy as it was written on the command line."""

    label: str
    name: str
    params: dict[str, Any]


class Source(NamedTuple):
    """What a policy is to meet: a world or a log, and the sizes that it has."""

    what: str
    n_features: int
    n_item_features: int
    knows_truth: bool


def value(text: str) -> Any:
    """A value: a whole number, a number, true, false, none, or text as it is.

    >>> [value(text) for text in ("100", "0.35", "true", "none", "seed")]
    [100, 0.35, True, None, 'seed']
    """
    word = text.strip()
    if word.lower() in _WORDS:
        return _WORDS[word.lower()]
    for kind in (int, float):
        try:
            return kind(word)
        except ValueError:
            continue
    return word


def parse_policy(text: str) -> Spec:
    """Take a policy's label, name and parameters apart.

    >>> parse_policy("PS=pslinucb-disjoint:window=50,threshold=0.3")
    Spec(label='PS', name='pslinucb-disjoint', params={'window': 50, 'threshold': 0.3})
    """
    head, colon, tail = text.partition(":")
    label, equals, name = head.rpartition("=")
    name = name.strip()
    if not name or (equals and not label.strip()) or (colon and not tail.strip()):
        raise InvalidInputError(f"policy must be [LABEL=]NAME[:param=value,...], got {text!r}.")
    params = settings("policy", tail.split(",")) if colon else {}
    return Spec(label.strip() if equals else name, name, params)


def settings(option: str, texts: Sequence[str]) -> dict[str, Any]:
    """``name=value`` texts as a dict; a name may come once.

    >>> settings("set", ["n_arms=3", "law=ball"])
    {'n_arms': 3, 'law': 'ball'}
    """
    named = _named(option, "made of name=value", texts)
    return {name: only for name, (only,) in named.items()}


def axes(texts: Sequence[str]) -> dict[str, list[Any]]:
    """``name=value,value`` texts as the axes of a grid.

    >>> axes(["window=50,100", "threshold=0.2,0.35"])
    {'window': [50, 100], 'threshold': [0.2, 0.35]}
    """
    return _named("vary", "name=value,value,...", texts, several=True)


def _named(
    option: str, form: str, texts: Sequence[str], *, several: bool = False
) -> dict[str, list[Any]]:
    """The values after each ``name=``; a name may come once."""
    values: dict[str, list[Any]] = {}
    for text in texts:
        name, _, after = text.partition("=")
        name, parts = name.strip(), after.split(",") if several else [after]
        if not name or not all(part.strip() for part in parts):
            raise InvalidInputError(f"{option} must be {form}, got {text!r}.")
        if name in values:
            raise InvalidInputError(f"{option} must have each name once, got {name!r} twice.")
        values[name] = [value(part) for part in parts]
    return values


def complete(name: str, params: Mapping[str, Any], source: Source) -> dict[str, Any]:
    """The parameters with the sizes of the source; unknown and missing ones are refused."""
    from whim.policies import POLICIES
    from whim.policies.registry import meant

    if name not in POLICIES:
        known = ", ".join(sorted(POLICIES))
        raise InvalidInputError(f"policy must be one of {known}, got {name!r}{meant(name)}")
    if name == _ORACLE:
        return _complete_oracle(params, source)
    takes = inspect.signature(POLICIES[name]).parameters
    unknown = [key for key in params if key not in takes]
    if unknown:
        raise InvalidInputError(
            f"parameters of {name} must be among {', '.join(takes)}, got {unknown[0]!r}."
        )
    if params.get("n_cross_features") is not None:
        raise InvalidInputError(
            f"n_cross_features of {name} must be left out: {source.what} has no cross features."
        )
    completed = dict(params)
    sizes = source.n_features, source.n_item_features
    needed = _needed(takes, params)
    for key, there in zip(("n_features", "n_item_features"), sizes, strict=True):
        if completed.get(key) is None and key in needed:
            if not there:
                hint = ": --set n_item_features=5 gives it some" if source.knows_truth else ""
                raise InvalidInputError(
                    f"{name} needs item features, and {source.what} has none{hint}."
                )
            completed[key] = there
        elif completed.get(key) not in (None, there):
            raise InvalidInputError(
                f"{key} of {name} must be that of {source.what}, {there}, got {completed[key]!r}."
            )
    for key, parameter in takes.items():
        if parameter.default is parameter.empty and key not in completed:
            raise InvalidInputError(
                f"{key} must be given for {name}, as in {name}:{key}=VALUE; it takes "
                f"{', '.join(takes)}."
            )
    return completed


def _needed(takes: Mapping[str, inspect.Parameter], params: Mapping[str, Any]) -> tuple[str, ...]:
    """Which sizes the constructor wants: by its payoff, or because it cannot do without."""
    both = ("n_features", "n_item_features")
    if "payoff" in takes:
        payoff = params.get("payoff", takes["payoff"].default)
        return {"disjoint": both[:1], "item": both[1:], "cross": both}.get(payoff, ())
    if "n_features" in takes and takes["n_features"].default is None:
        return ()  # looks at rewards only
    if params.get("groups") == "given":
        raise InvalidInputError(
            "groups must be a number here: neither a world nor a log has labels of groups."
        )
    return tuple(key for key in both if key in takes)


def _complete_oracle(params: Mapping[str, Any], source: Source) -> dict[str, Any]:
    if not source.knows_truth:
        raise InvalidInputError(
            f"policy must not be {_ORACLE} here: {source.what} does not know its changes."
        )
    inner = params.get("policy", "linucb-disjoint")
    if inner == _ORACLE:
        raise InvalidInputError(f"policy of {_ORACLE} must be another one, got {inner!r}.")
    rest = {key: value for key, value in params.items() if key != "policy"}
    return {"policy": inner, **complete(str(inner), rest, source)}


def make(texts: Sequence[str], source: Source) -> dict[str, Policy | OracleMaker]:
    """Policies by label, each made for the source."""
    from whim.evaluate.tasks import make_policy

    policies: dict[str, Policy | OracleMaker] = {}
    for text in texts:
        spec = parse_policy(text)
        if spec.label in policies:
            raise InvalidInputError(
                f"labels must differ, got {spec.label!r} twice: write --policy LABEL={spec.name}…"
            )
        policies[spec.label] = make_policy(spec.name, complete(spec.name, spec.params, source))
    return policies


def world(kind: str, params: Mapping[str, Any]) -> tuple[World, dict[str, Any], Source]:
    """A world by its kind, all its parameters, and what it offers to policies."""
    from whim import checks
    from whim.evaluate.tasks import WORLDS, make_world

    cls = WORLDS[checks.choice("world", kind, tuple(WORLDS))]
    known = {field.name: field for field in fields(cls)}
    for name, value in params.items():
        if name not in known:
            raise InvalidInputError(
                f"parameters of the {kind} world must be among {', '.join(known)}, got {name!r}."
            )
        if isinstance(known[name].default, bool) and not isinstance(value, bool):
            raise InvalidInputError(f"{name} must be true or false, got {value!r}.")
    made: Any = make_world(kind, **{**_CUSTOMS.get(kind, {}), **params})
    source = Source(f"the {kind} world", made.n_features, made.n_item_features, True)
    return made, {"kind": kind, **asdict(made)}, source
