"""Live calls take short cuts: they are in use, and no array slips through them wrongly."""

from __future__ import annotations

import copy

import numpy as np
import pytest

import whim
from whim.errors import InvalidInputError
from whim.kernels import jit
from whim.kernels.models import hybrid


def disjoint() -> whim.PSLinUCBDisjoint:
    policy = whim.PSLinUCBDisjoint(n_features=4, window=5, threshold=0.4)
    policy.add_arms(["a", "b", "c"])
    return policy


def mixed() -> whim.PSLinUCBHybrid:
    policy = whim.PSLinUCBHybrid(n_features=4, n_item_features=2, window=5, threshold=0.4)
    policy.add_arms(["a", "b", "c"], features=[[1.0, 0.0], [0.0, 1.0], [0.5, 0.5]])
    return policy


def plain() -> whim.LinUCBHybrid:
    policy = whim.LinUCBHybrid(n_features=4, n_item_features=2)
    policy.add_arms(["a", "b", "c"], features=[[1.0, 0.0], [0.0, 1.0], [0.5, 0.5]])
    return policy


MAKERS = [disjoint, mixed, plain]


@pytest.mark.parametrize("make", MAKERS)
def test_a_decision_is_the_best_of_the_ranking(make: type[whim.Policy]) -> None:
    """The compiled choice and the scores of all candidates come to the same numbers."""
    policy = make()
    rng = np.random.default_rng(0)
    for _ in range(200):
        x = rng.normal(size=4)
        decision = policy.select(x)
        assert decision == policy.rank(x)[0]
        policy.update(decision.arm, x, float(rng.normal()))


def test_machine_code_is_called_directly() -> None:
    """Numba's entry points are no promised interface: this says when they are gone."""
    policies = [make() for make in MAKERS]
    for policy in policies:
        for _ in range(2):
            policy.update(policy.select(np.ones(4)).arm, np.ones(4), 1.0)
    kernels = [policy._code for policy in policies]
    for short_cut in [getattr(k, name) for k in kernels for name in ("choose", "observe")]:
        assert short_cut.call != short_cut._first
        assert short_cut.kernel.targetoptions[jit._NRT] is False
        assert short_cut.kernel.targetoptions["nogil"] is False  # no waiting for a busy thread
    for long in (hybrid.LINUCB.observe_many, hybrid.LINUCB.run_events):
        assert long.targetoptions["nogil"] is True


def test_without_the_option_kernels_compile_as_others_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jit, "_NRT", "_no_such_option")

    def double(x: float) -> float:
        return 2 * x

    assert jit.jit_nonrt(double)(1.5) == 3.0


@pytest.mark.parametrize("make", MAKERS)
def test_any_kind_of_vector_gives_the_same(make: type[whim.Policy]) -> None:
    plain = np.array([0.5, -0.25, 1.0, 2.0])
    frozen = plain.copy()
    frozen.flags.writeable = False
    spaced = np.repeat(plain, 2)[::2]
    column = np.asfortranarray(np.stack([plain, plain], axis=1))[:, 0]
    swapped = plain.astype(">f8")
    kinds = [plain, plain.tolist(), tuple(plain), frozen, spaced, column, swapped]
    kinds += [plain.astype(np.float32), np.broadcast_to(plain, (2, 4))[1]]
    policies = [make() for _ in kinds]
    for _ in range(12):
        decisions = [p.select(x) for p, x in zip(policies, kinds, strict=True)]
        assert len(set(decisions)) == 1
        for policy, x in zip(policies, kinds, strict=True):
            policy.update(decisions[0].arm, x, 1.0)
    assert len({policy.to_bytes() for policy in policies}) == 1


@pytest.mark.parametrize("make", MAKERS)
def test_an_array_changed_between_decision_and_reward_is_looked_at_again(
    make: type[whim.Policy],
) -> None:
    policy = make()
    x = np.ones(4)
    policy.select(x)
    before = policy.to_bytes()
    x[2] = np.nan
    with pytest.raises(InvalidInputError, match="x must be finite"):
        policy.update("a", x, 1.0)
    x[2] = 1.0
    x.resize((2, 2), refcheck=False)  # the same array, another shape
    with pytest.raises(InvalidInputError, match="x must be a vector of length 4"):
        policy.update("a", x, 1.0)
    assert policy.to_bytes() == before


def test_an_override_of_the_score_is_heard() -> None:
    """A subclass that scores in its own way must not be passed over by the compiled choice."""

    class Contrary(whim.LinUCBDisjoint):
        name = "contrary"

        def _score(self, x, slots, cross, noise):  # type: ignore[no-untyped-def]
            super()._score(x, slots, cross, noise)
            self._out[: len(slots), 0] *= -1
            return int(np.argmax(self._out[: len(slots), 0]))

    policy = Contrary(n_features=1, alpha=0.0)
    policy.add_arms(["good", "bad"])
    policy.update("good", [1.0], 1.0)
    policy.update("bad", [1.0], -1.0)
    assert policy.select([1.0]).arm == "bad"


def test_arrays_in_hand_are_let_go_when_they_are_replaced() -> None:
    """More arms, other features, a copy, a saved state: none of them learns into old arrays."""
    policy, other = plain(), plain()
    rng = np.random.default_rng(3)
    for step in range(60):
        x = rng.normal(size=4)
        decision = policy.select(x)
        assert decision == other.select(x.tolist())  # not by the short cut
        policy.update(decision.arm, x, 0.5)
        other.update(decision.arm, x.tolist(), 0.5)
        if step == 10:
            assert policy._bound is not None
        for either in (policy, other):
            if step == 20:
                either.add_arms(range(40), features=np.arange(80.0).reshape(40, 2) / 80)
            if step == 50:
                either.set_features(["a"], [[0.3, 0.3]])
        if step == 30:
            policy = copy.deepcopy(policy)
            assert policy._bound is None
        if step == 40:
            policy = whim.LinUCBHybrid.from_bytes(policy.to_bytes())
    assert policy.to_bytes() == other.to_bytes()


def test_a_vector_that_lies_badly_is_copied() -> None:
    policy, other = plain(), plain()
    numbers = np.array([0.5, -0.25, 1.0, 2.0])
    odd = np.frombuffer(b"." + numbers.tobytes(), np.float64, offset=1)
    assert not odd.flags.aligned
    for x in (numbers, odd, np.repeat(numbers, 2)[::2]):
        for _ in range(3):
            assert policy.select(x) == other.select(numbers)
            policy.update("a", x, 1.0)
            other.update("a", numbers, 1.0)
    assert policy.to_bytes() == other.to_bytes()
