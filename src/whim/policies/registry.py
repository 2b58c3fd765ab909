"""Policies by their registered name: what the command line, the service and ``load`` use."""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any, TypeVar, overload

from whim.errors import InvalidInputError, StateFileError
from whim.features import Features
from whim.policies.base import Policy, state_file

POLICIES: dict[str, type[Policy]] = {}
P = TypeVar("P", bound=Policy)


def register(cls: type[Policy]) -> type[Policy]:
    """Make a policy known by its ``name``, so that ``policy`` and ``load`` find it."""
    if not cls.name:
        raise InvalidInputError(f"name must be set on {cls.__name__} before it is registered.")
    if POLICIES.get(cls.name, cls) is not cls:
        raise InvalidInputError(f"name must be new, got {cls.name!r} which is registered already.")
    POLICIES[cls.name] = cls
    return cls


def policy(name: str, **params: Any) -> Policy:
    """Build a policy from its registered name.

    ``features`` made by ``whim.features`` set ``n_features``, and are given to ``with_features``.

    >>> policy("linucb-disjoint", n_features=6, alpha=0.2)
    LinUCBDisjoint(n_features=6, alpha=0.2, ridge=1.0, scoring='float64', seed=0, ties='first')
    """
    if name not in POLICIES:
        known = ", ".join(sorted(POLICIES))
        raise InvalidInputError(
            f"name must be a registered policy ({known}), got {name!r}{meant(name)}"
        )
    features = params.pop("features", None)
    if isinstance(features, Features):
        params.setdefault("n_features", features.size)
    try:
        made = POLICIES[name](**params)
    except TypeError as error:
        raise InvalidInputError(f"parameters of {name} must fit: {error}.") from None
    return made if features is None else made.with_features(features)


def meant(name: str, known: Iterable[str] = POLICIES) -> str:
    """The end of a sentence that refuses a name: which one it may stand for, if any.

    >>> meant("AdaptiveLinUCB"), meant("linucb-disjont"), meant("magic")
    ('; did you mean adaptive-linucb?', '; did you mean linucb-disjoint?', '.')
    """
    name, classes = name.lower(), {POLICIES[one].__name__.lower(): one for one in known}
    longer = [one for one in sorted(classes.values()) if one.startswith(f"{name}-")]
    close = longer or difflib.get_close_matches(name, [*classes, *classes.values()], 1)
    return f"; did you mean {classes.get(close[0], close[0])}?" if close else "."


def from_bytes(data: bytes, *, source: str = "data") -> Policy:
    """The policy, of whatever registered class, that ``Policy.to_bytes`` sealed."""
    header, _ = state_file.unpack(data, source)
    cls = POLICIES.get(header["class"])
    if cls is None:
        raise StateFileError(
            f"{source} must hold a registered policy, got {header['class']!r}: "
            "load it with its own class or register that first."
        )
    return cls.from_bytes(data, source=source)


@overload
def load(path: str | os.PathLike[str]) -> Policy: ...
@overload
def load(path: str | os.PathLike[str], cls: type[P]) -> P: ...
def load(path: str | os.PathLike[str], cls: type[Policy] = Policy) -> Policy:
    """Read a policy of any registered class from a file, or one that must be a ``cls``.

    >>> import tempfile, whim
    >>> file = tempfile.mkdtemp() + "/policy.whim"
    >>> whim.UCB().save(file)
    >>> type(load(file, whim.UCB)).__name__
    'UCB'
    """
    made = from_bytes(Path(path).read_bytes(), source=str(path))
    if not isinstance(made, cls):
        raise StateFileError(f"{path} must hold a {cls.__name__}, got a {type(made).__name__}.")
    return made
