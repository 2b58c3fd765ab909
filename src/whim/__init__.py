"""Whim: recommendations for people who change their minds.

Contextual bandits that detect each change of interest, restart only what changed, and report it.
Policies are here, with ``whim.features``, ``whim.worlds``, ``whim.logs``, ``whim.simulate``,
``whim.replay``, ``whim.evaluate``, ``whim.detectors``, ``whim.testing``, ``whim.Client`` and
``whim.AsyncClient``; each is loaded when first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from whim.version import __version__ as __version__

if TYPE_CHECKING:
    from whim import detectors as detectors
    from whim import errors as errors
    from whim import evaluate as evaluate
    from whim import features as features
    from whim import logs as logs
    from whim import policies as policies
    from whim import testing as testing
    from whim import worlds as worlds
    from whim.client import AsyncClient as AsyncClient
    from whim.client import Client as Client
    from whim.evaluate.replay import replay as replay
    from whim.evaluate.simulate import simulate as simulate
    from whim.policies import *  # noqa: F403
    from whim.types import ChangeEvent as ChangeEvent
    from whim.types import Decision as Decision
    from whim.types import ListDecision as ListDecision

_LATER = {
    "ChangeEvent": "whim.types",
    "Decision": "whim.types",
    "ListDecision": "whim.types",
    "detectors": "whim.detectors",
    "errors": "whim.errors",
    "evaluate": "whim.evaluate",
    "features": "whim.features",
    "logs": "whim.logs",
    "replay": "whim.evaluate",
    "simulate": "whim.evaluate",
    "testing": "whim.testing",
    "worlds": "whim.worlds",
}
_NOT_IN_ALL = {
    "AsyncClient": "whim.client",  # they need the extra "serve"
    "Client": "whim.client",
    "client": "whim.client",
    "policies": "whim.policies",
    "types": "whim.types",
}


def __getattr__(name: str) -> Any:
    """Load what is asked for: ``import whim`` alone does not wait for numba."""
    if name == "__all__":
        return sorted([*_LATER, "__version__", *_load("whim.policies").__all__])
    path = _LATER.get(name) or _NOT_IN_ALL.get(name)
    module = _load(path or "whim.policies")
    if path is None and name not in module.__all__:
        raise AttributeError(f"module 'whim' has no attribute {name!r}")
    value = module if path == f"whim.{name}" else getattr(module, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    own = {name for name in globals() if name.startswith("__")}
    return sorted({*own, *_NOT_IN_ALL, *__getattr__("__all__")})


def _load(name: str) -> Any:
    return importlib.import_module(name)
