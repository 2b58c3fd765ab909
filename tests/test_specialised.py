"""Kernels that are compiled without what a policy does not need: the same bits, and less code."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np
import pytest

import whim
from tests.factories import FACTORIES
from whim.kernels import jit
from whim.kernels.linalg import udu

EXTRA = True
beside: Any = ModuleType("whim.kernels.beside")


@jit.part
def _plain(x: float) -> float:
    return x + 1.0


@jit.part
def _inner(x: float) -> float:
    if EXTRA and x > 1.0:
        return "a branch" + x  # type: ignore[operator, no-any-return]  # cannot be compiled
    return x


beside.inner = _inner


@jit.part
def _by_name(x: float) -> float:
    return _inner(x) + _plain(x)


@jit.part
def _by_module(x: float) -> float:
    value: float = beside.inner(x)
    return value


def test_a_branch_that_is_switched_off_is_not_compiled() -> None:
    copy = jit.Specialised("test", {"EXTRA": False})
    for kernel in (_inner, _by_name, _by_module):
        with pytest.raises(Exception, match=r"No implementation"):
            jit.jit(kernel.py_func)(2.0)  # type: ignore[attr-defined]
    assert jit.jit(copy(_by_name).py_func)(2.0) == 5.0
    assert jit.jit(copy(_by_module).py_func)(2.0) == 2.0
    assert copy(_by_name) is copy(_by_name)


def test_what_uses_no_switch_stays_itself() -> None:
    copy = jit.Specialised("test", {"EXTRA": False})
    assert copy(_plain) is _plain
    assert copy(None) is None
    assert beside.inner is _inner


@pytest.mark.parametrize("name", ["linucb-disjoint", "pslinucb-disjoint-revisit"])
def test_short_vectors_have_the_same_bits_with_and_without_the_long_ones_code(name: str) -> None:
    rng = np.random.default_rng(3)
    one, other = FACTORIES[name](), FACTORIES[name]()
    other._unused = ("COPIES",)
    arms = list(range(6))
    for policy in (one, other):
        policy.add_arms(arms)
    d = one.n_features
    assert d is not None
    assert d < udu.SHORT
    for _ in range(200):
        x, r = rng.normal(size=d), float(rng.normal())
        a, b = one.select(x), other.select(x)
        assert a == b
        assert one.update(a.arm, x, r) == other.update(b.arm, x, r)
    assert one.to_bytes() == other.to_bytes()
    assert "VECTORS" in one._unused
    assert one._code is not other._code


@pytest.mark.parametrize("d", [udu.SHORT - 1, udu.SHORT])
def test_length_decides(d: int) -> None:
    policy = whim.LinUCBDisjoint(n_features=d)
    assert ("VECTORS" in policy._unused) == (d < udu.SHORT)
    assert "COPIES" in policy._unused
    assert "COPIES" not in whim.LinUCBDisjoint(n_features=d, scoring="float32")._unused
