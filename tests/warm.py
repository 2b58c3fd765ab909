"""Compile every policy's loop once, on all cores, before tests on several workers ask for them."""

from __future__ import annotations

from tests.factories import FACTORIES
from whim.evaluate.warm import warm

if __name__ == "__main__":
    policies = [make() for make in FACTORIES.values()]
    warm(policies, calls=("loop",), jobs=-1)
