"""Whim: recommendations for people who change their minds.

Contextual bandits that detect each change of interest, restart only what changed, and report it.
Policies are here; ``whim.worlds``, ``whim.logs``, ``whim.simulate``, ``whim.replay``,
``whim.testing``, ``whim.Client`` and ``whim.AsyncClient`` are loaded when first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from whim import errors, policies
from whim.policies import *  # noqa: F403
from whim.types import ChangeEvent, Decision
from whim.version import __version__

if TYPE_CHECKING:
    from whim import logs, testing, worlds
    from whim.client import AsyncClient as AsyncClient
    from whim.client import Client as Client
    from whim.evaluate import replay, simulate

__all__ = [
    "ChangeEvent", "Decision", "__version__", "errors", "logs", "replay", "simulate", "testing",
    "worlds", *policies.__all__,
]  # fmt: skip

_LATER = {
    "AsyncClient": "whim.client",  # not in __all__: they need the extra "serve"
    "Client": "whim.client",
    "logs": "whim.logs",
    "replay": "whim.evaluate",
    "simulate": "whim.evaluate",
    "testing": "whim.testing",
    "worlds": "whim.worlds",
}


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module 'whim' has no attribute {name!r}")
    module = importlib.import_module(_LATER[name])
    return module if module.__name__ == f"whim.{name}" else getattr(module, name)
