"""``Client`` and ``AsyncClient``: decisions and rewards from a Whim service, safe to retry.

``core`` makes every request and reads every reply without input or output; ``sync`` and
``asynchronous`` only carry what it makes. A decision and a reward always have an id, so that one
whose reply was lost is sent again and still counts once.
"""

from __future__ import annotations

from whim.errors import WhimError
from whim.extras import install

try:
    import httpx as _httpx  # noqa: F401
    import msgspec as _msgspec  # noqa: F401
except ImportError as error:
    raise WhimError(
        f"whim.Client needs {error.name}, which is not installed: {install('serve')}."
    ) from error

from whim.client.asynchronous import AsyncClient
from whim.client.core import ServiceError, UnreachableError
from whim.client.sync import Client
from whim.client.views import Arm, Change, Rewarded, SpaceInfo
from whim.serve.wire import (
    Answer,
    Candidate,
    DecisionBody,
    ListAnswer,
    ListBody,
    ListItem,
    RewardBody,
    Slot,
    SpaceConfig,
)

__all__ = [
    "Answer", "Arm", "AsyncClient", "Candidate", "Change", "Client", "DecisionBody",
    "ListAnswer", "ListBody", "ListItem", "RewardBody", "Rewarded", "ServiceError", "Slot",
    "SpaceConfig", "SpaceInfo", "UnreachableError",
]  # fmt: skip
