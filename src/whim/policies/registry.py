"""Policies by their registered name: what the command line, the service and ``load`` use."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from whim.errors import InvalidInputError, StateFileError
from whim.policies import state
from whim.policies.base import Policy
from whim.policies.cusumucb import CUSUMUCB
from whim.policies.denband import DenBand
from whim.policies.dlinucb import DLinUCB
from whim.policies.ducb import DUCB
from whim.policies.dynamic_linucb import DynamicLinUCB
from whim.policies.lints import LinTS
from whim.policies.linucb_disjoint import LinUCBDisjoint
from whim.policies.linucb_hybrid import LinUCBHybrid
from whim.policies.linucb_uniform import LinUCBUniform
from whim.policies.linucb_watched import LinUCBWatched
from whim.policies.modified_pslinucb import ModifiedPSLinUCB
from whim.policies.mucb import MUCB
from whim.policies.oracle_restart import OracleRestart
from whim.policies.pslinucb_disjoint import PSLinUCBDisjoint
from whim.policies.pslinucb_groups import PSLinUCBGroups
from whim.policies.pslinucb_hybrid import PSLinUCBHybrid
from whim.policies.random_policy import Random
from whim.policies.swlinucb import SWLinUCB
from whim.policies.swucb import SWUCB
from whim.policies.ucb import UCB

__all__ = ["POLICIES", "from_bytes", "load", "policy", "register"]

POLICIES: dict[str, type[Policy]] = {}


def register(cls: type[Policy]) -> type[Policy]:
    """Make a policy known by its ``name``, so that ``policy`` and ``load`` find it."""
    if not cls.name:
        raise InvalidInputError(f"name must be set on {cls.__name__} before it is registered.")
    if POLICIES.get(cls.name, cls) is not cls:
        raise InvalidInputError(f"name must be new, got {cls.name!r} which is registered already.")
    POLICIES[cls.name] = cls
    return cls


_BUILT_IN: tuple[type[Policy], ...] = (
    CUSUMUCB,
    DLinUCB,
    DUCB,
    DenBand,
    DynamicLinUCB,
    LinTS,
    LinUCBDisjoint,
    LinUCBHybrid,
    LinUCBUniform,
    LinUCBWatched,
    MUCB,
    ModifiedPSLinUCB,
    OracleRestart,
    PSLinUCBDisjoint,
    PSLinUCBGroups,
    PSLinUCBHybrid,
    Random,
    SWLinUCB,
    SWUCB,
    UCB,
)
for _cls in _BUILT_IN:
    register(_cls)


def policy(name: str, **params: Any) -> Policy:
    """Build a policy from its registered name.

    >>> policy("linucb-disjoint", n_features=6, alpha=0.2)
    LinUCBDisjoint(n_features=6, alpha=0.2, ridge=1.0, scoring='float64', seed=0, ties='first')
    """
    if name not in POLICIES:
        known = ", ".join(sorted(POLICIES))
        raise InvalidInputError(f"name must be a registered policy ({known}), got {name!r}.")
    try:
        return POLICIES[name](**params)
    except TypeError as error:
        raise InvalidInputError(f"parameters of {name} must fit: {error}.") from None


def from_bytes(data: bytes, *, source: str = "data") -> Policy:
    """The policy, of whatever registered class, that ``Policy.to_bytes`` sealed."""
    header, _ = state.unpack(data, source)
    cls = POLICIES.get(header["class"])
    if cls is None:
        raise StateFileError(
            f"{source} must hold a registered policy, got {header['class']!r}: "
            "load it with its own class or register that first."
        )
    return cls.from_bytes(data, source=source)


def load(path: str | os.PathLike[str]) -> Policy:
    """Read a policy of any registered class from a file."""
    return from_bytes(Path(path).read_bytes(), source=str(path))
