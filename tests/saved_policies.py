"""Policies saved by an earlier whim, and what that whim then decided: new code must go on so.

``python -m tests.saved_policies NAME ...`` writes them anew, with the code that is installed: only
for a new policy, or one whose stored numbers are meant to change (then the format's version goes up
as well).
"""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

from tests.factories import FACTORIES
from whim import Policy
from whim.types import F64

__all__ = ["FOLDER", "NAMES", "continued"]

FOLDER = Path(__file__).parent / "data" / "policies"
# what each arm earns at each step but for the noise, by numbers of features, as computed where the
# expected decisions were stored: BLAS rounds otherwise on another kind of processor
WORTH = FOLDER / "worth.npz"
NAMES = tuple(name for name in FACTORIES if not name.startswith("linucb-watched-"))
_ARMS = ["a", "b", "c", 7]


def _given(policy: Policy) -> int:
    """How many cross features its caller gives it."""
    return 0 if policy.n_item_features else policy.n_cross_features


def _world(policy: Policy) -> str:
    """The name in ``WORTH`` of what it meets: draws follow from the numbers of features."""
    return f"{policy.n_features or 1}-{_given(policy)}"


def _events(
    policy: Policy, steps: int, seed: int, worth: F64 | None = None
) -> list[tuple[Any, ...]]:
    """Decide and learn; rewards of each arm change now and then. What was decided and found."""
    rng = np.random.default_rng(seed)
    seen: list[tuple[Any, ...]] = []
    d, k = policy.n_features, _given(policy)
    theta = rng.normal(size=(len(_ARMS), d or 1))
    for step in range(steps):
        if step % 70 == 69:
            theta[rng.integers(len(_ARMS))] *= -1.5
        x = rng.normal(size=d or 1)
        cross = rng.normal(size=(len(_ARMS), k)) if k else None
        decision = policy.select(None if d is None else x, _ARMS, cross=cross)
        place = _ARMS.index(decision.arm)
        mean = np.tanh(theta[place] @ x) if worth is None else worth[step, place]
        reward = float(mean + 0.05 * rng.normal())
        row = None if cross is None else cross[place]
        event = policy.update(decision.arm, None if d is None else x, reward, cross=row)
        numbers = [float(value).hex() for value in decision[1:]]
        change = None if event is None else [event.plays, float(event.statistic).hex()]
        seen.append((decision.arm, *numbers, change))
    return seen


def _digest(rows: list[list[str]]) -> str:
    return hashlib.sha256(json.dumps(rows).encode()).hexdigest()


def continued(policy: Policy, same: int | None = None) -> dict[str, Any]:
    """What a loaded policy does next, and a digest of all that it then holds.

    ``same``: how many decisions are those of the code that saved it, where a test has
    changed since; they have a digest of their own.
    """
    with np.load(WORTH) as stored:
        worth = stored[_world(policy)]
    events = _events(policy, 150, seed=2, worth=worth)
    rows = [[str(part) for part in event] for event in events]
    before = {} if same is None else {"same": same, "as_saved": _digest(rows[:same])}
    return before | {
        "decisions": _digest(rows),
        "first": rows[:3],
        "changes": sum(event[-1] is not None for event in events),
        "state": hashlib.sha256(policy.to_bytes()).hexdigest(),
    }


def _write(names: list[str]) -> None:
    expected = json.loads((FOLDER / "expected.json").read_text())
    for name in names:
        policy = FACTORIES[name]()
        m = policy.n_item_features
        rng = np.random.default_rng(0)
        policy.add_arms(_ARMS, **({"features": rng.normal(size=(4, m))} if m else {}))
        _events(policy, 400, seed=1)
        policy.save(FOLDER / f"{name}.policy")
        expected[name] = continued(policy)
    text = json.dumps(expected, indent=1, sort_keys=True)
    (FOLDER / "expected.json").write_text(text + "\n")


if __name__ == "__main__":
    _write(sys.argv[1:])
