"""Compile every policy's loop once, on all cores, before tests on several workers ask for them."""

from __future__ import annotations

from tests.factories import FACTORIES
from whim.evaluate.warm import warm

if __name__ == "__main__":
    policies = [make() for make in FACTORIES.values()]
    warm([p for p in policies if p.n_item_features or not p.n_cross_features], jobs=-1)
