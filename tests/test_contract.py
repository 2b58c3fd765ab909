"""Every policy keeps the contract; a policy that breaks it is caught."""

from __future__ import annotations

import numpy as np
import pytest

import whim
from tests.factories import FACTORIES
from whim.testing import check_policy


@pytest.mark.parametrize("name", FACTORIES)
def test_contract(name: str) -> None:
    passed = check_policy(FACTORIES[name])
    assert len(passed) == 15


def test_every_registered_policy_is_covered() -> None:
    assert {type(make()).name for make in FACTORIES.values()} == set(whim.POLICIES)


class Leaky(whim.LinUCBDisjoint):
    """Learns while it is only being looked at."""

    name = "leaky"

    def scores(self, *args: object, **kwargs: object) -> np.ndarray:  # type: ignore[override]
        self._cum[0, -1] += 1e-3
        return super().scores(*args, **kwargs)  # type: ignore[arg-type]


class Forgetful(whim.LinUCBDisjoint):
    """Leaves its models out of the saved state."""

    name = "forgetful"

    def to_bytes(self) -> bytes:
        fresh = Forgetful(**self.params)
        fresh.add_arms(self.arms)
        return super(Forgetful, fresh).to_bytes()


class Trusting(whim.LinUCBDisjoint):
    """Takes any context at its word."""

    name = "trusting"

    def _context(self, x: object) -> np.ndarray:
        return np.nan_to_num(np.resize(np.asarray(x, float), 3))


class Eager(whim.LinUCBDisjoint):
    """Takes items below a click for seen ones."""

    name = "eager"

    def update_list(self, *args: object, **kwargs: object) -> list:  # type: ignore[override]
        return super().update_list(*args, **{"cross": None, **kwargs, "feedback": "semi"})  # type: ignore[arg-type]


class Upside(whim.LinUCBDisjoint):
    """Shows the best at the bottom."""

    name = "upside"

    def select_list(self, *args: object, **kwargs: object) -> whim.ListDecision:  # type: ignore[override]
        shown = super().select_list(*args, **kwargs)  # type: ignore[arg-type]
        return whim.ListDecision(*(part[::-1] for part in shown))


@pytest.mark.parametrize("broken", [Leaky, Forgetful, Trusting, Eager, Upside])
def test_a_broken_policy_is_caught(broken: type[whim.LinUCBDisjoint]) -> None:
    with pytest.raises((AssertionError, ValueError, TypeError)):
        check_policy(lambda: broken(n_features=3))
