"""Any order of calls: a policy that is saved and loaded at random, a twin that is not.

After every step the arms are those of a plain list and each decision, event and error is the
twin's, to the last bit. The PSLinUCB policies are also compared with the literal algorithms,
in which an arm that is retired or reset comes back under a new name.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Hashable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

import whim
from tests.oracles import LinUCBDisjointOracle, PSLinUCBDisjointOracle, PSLinUCBHybridOracle

F64 = npt.NDArray[np.float64]

IDS: list[Hashable] = ["a", "b", 1, 2, (1, "c"), b"d", 0.5]
WINDOW, THRESHOLD = 4, 0.4

ids = st.lists(st.sampled_from(IDS), min_size=1, max_size=4)
seeds = st.integers(0, 2**32 - 1)


class Mirror:
    """A literal algorithm beside the policy; ``name`` gives each life of an arm a new name."""

    def __init__(self, slow: Any) -> None:
        self.slow = slow
        self.lives: dict[Hashable, int] = {}

    def name(self, arm: Hashable) -> Hashable:
        return arm, self.lives.get(arm, 0)

    def add(self, arm: Hashable) -> None:
        self.slow.add(self.name(arm))

    def forget(self, arm: Hashable, retired: bool) -> None:
        self.lives[arm] = self.lives.get(arm, 0) + 1
        if not retired:
            self.add(arm)

    def scores(self, x: F64, Z: F64 | None, arms: list[Hashable]) -> F64:
        return np.asarray(self.slow.scores(x, [self.name(a) for a in arms]))

    def update(self, arm: Hashable, x: F64, z: F64 | None, r: float) -> bool:
        return bool(self.slow.update(self.name(arm), x, r))


class HybridMirror(Mirror):
    """As ``Mirror``; an arm that goes leaves its window to G_pre."""

    def forget(self, arm: Hashable, retired: bool) -> None:
        name = self.name(arm)
        for x, z, r in self.slow.SW[name]:
            self.slow._learn_pre(name, x, z, r)
        super().forget(arm, retired)

    def scores(self, x: F64, Z: F64 | None, arms: list[Hashable]) -> F64:
        return np.asarray(self.slow.scores(x, Z, [self.name(a) for a in arms]))

    def update(self, arm: Hashable, x: F64, z: F64 | None, r: float) -> bool:
        return bool(self.slow.update(self.name(arm), x, z, r))


def disjoint_mirror() -> Mirror:
    return Mirror(
        PSLinUCBDisjointOracle(
            d=2, alpha=0.7, window=WINDOW, threshold=THRESHOLD, first_window="seed"
        )
    )


def hybrid_mirror() -> Mirror:
    return HybridMirror(
        PSLinUCBHybridOracle(
            d=2, k=4, alpha=0.7, window=WINDOW, threshold=THRESHOLD, first_window="seed",
            g_pre="exact",
        )
    )  # fmt: skip


class Machine(RuleBasedStateMachine):
    """Every public call in any order."""

    make: Callable[[], whim.Policy]
    mirror: Callable[[], Mirror] | None = None
    changes: list[whim.ChangeEvent]

    def __init__(self) -> None:
        super().__init__()
        self.subject, self.twin = type(self).make(), type(self).make()
        self.slow = None if self.mirror is None else type(self).mirror()  # type: ignore[misc]
        self.model: list[Hashable] = []
        self.features: dict[Hashable, F64] = {}
        self.folder = tempfile.TemporaryDirectory()
        self.plays = dict.fromkeys(IDS, 0)

    def teardown(self) -> None:
        self.folder.cleanup()
        assert self.subject.to_bytes() == self.twin.to_bytes()

    def both(self, call: Callable[[Any], Any]) -> Any:
        """The same call on both; what it gave, or the error that both raised."""
        results = []
        for policy in (self.subject, self.twin):
            try:
                results.append(call(policy))
            except whim.errors.WhimError as error:
                results.append((type(error), str(error)))
        assert results[0] == results[1]
        return results[0]

    def rows(self, arms: list[Hashable], rng: np.random.Generator) -> F64 | None:
        m = self.subject.n_item_features
        return rng.normal(size=(len(arms), m)) if m else None

    def cross(self, x: F64, arms: list[Hashable]) -> F64 | None:
        if not self.subject.n_item_features:
            return None
        return np.array([np.kron(self.features[a], x) for a in arms])

    @initialize(seed=seeds)
    def start(self, seed: int) -> None:
        self.add(["a", "b", 1], seed)

    @rule(arms=ids, seed=seeds)
    def add(self, arms: list[Hashable], seed: int) -> None:
        Y = self.rows(arms, np.random.default_rng(seed))
        new = self.both(lambda policy: policy.add_arms(arms, features=Y))
        expected = [a for a in dict.fromkeys(arms) if a not in self.model]
        assert new == expected
        for arm in expected:
            self.model.append(arm)
            self.plays[arm] = 0
            if Y is not None:
                self.features[arm] = Y[arms.index(arm)]
            if self.slow is not None:
                self.slow.add(arm)

    @rule(arms=ids)
    def retire(self, arms: list[Hashable]) -> None:
        found = self.both(lambda policy: policy.retire_arms(arms))
        if any(a not in self.model for a in arms):
            assert found[0] is whim.errors.UnknownArmError
            return
        for arm in set(arms):
            self.model.remove(arm)
            if self.slow is not None:
                self.slow.forget(arm, retired=True)

    @rule(arms=st.none() | ids)
    def reset(self, arms: list[Hashable] | None) -> None:
        found = self.both(lambda policy: policy.reset_arms(arms))
        if any(a not in self.model for a in arms or ()):
            assert found[0] is whim.errors.UnknownArmError
            return
        if self.slow is not None:
            for arm in dict.fromkeys(self.model if arms is None else arms):
                self.slow.forget(arm, retired=False)

    @precondition(lambda self: self.subject.n_item_features and self.model)
    @rule(data=st.data(), seed=seeds)
    def set_features(self, data: st.DataObject, seed: int) -> None:
        arms = data.draw(st.lists(st.sampled_from(self.model), min_size=1, unique=True))
        Y = self.rows(arms, np.random.default_rng(seed))
        self.both(lambda policy: policy.set_features(arms, Y))
        self.features |= dict(zip(arms, Y, strict=True))  # type: ignore[arg-type]

    @rule(seed=seeds, some=st.booleans())
    def play(self, seed: int, some: bool) -> None:
        """Decide among all arms or a random subset, then learn."""
        rng = np.random.default_rng(seed)
        x = rng.normal(size=2)
        if not self.model:
            assert self.both(lambda p: p.select(x))[0] is whim.errors.InvalidInputError
            return
        size = int(rng.integers(1, len(self.model) + 1))
        among = [self.model[i] for i in rng.permutation(len(self.model))[:size]]
        candidates = among if some else None
        scores = self.both(lambda p: p.scores(x, candidates).tolist())
        self.both(lambda p: p.rank(x, candidates))
        decision = self.both(lambda p: p.select(x, candidates))
        tried = among if some else list(self.model)
        assert decision.arm == tried[int(np.argmax(scores))]
        Z = self.cross(x, tried)
        if self.slow is not None:
            expected = self.slow.scores(x, Z, tried)
            np.testing.assert_allclose(scores, expected, rtol=0, atol=1e-9)
        self.learn(decision.arm, x, float(rng.choice([0.0, 1.0])))

    def learn(self, arm: Hashable, x: F64, r: float) -> None:
        event = self.both(lambda p: p.update(arm, x, r))
        self.changes += [event] if event is not None else []
        self.plays[arm] += 1
        if self.slow is not None:
            Z = self.cross(x, [arm])
            changed = self.slow.update(arm, x, None if Z is None else Z[0], r)
            assert (event is not None) == changed

    @precondition(lambda self: self.model)
    @rule(seed=seeds, n=st.integers(0, 30), level=st.floats(-2, 2))
    def play_many(self, seed: int, n: int, level: float) -> None:
        rng = np.random.default_rng(seed)
        arms = [self.model[i] for i in rng.integers(len(self.model), size=n)]
        X = rng.normal(size=(n, 2))
        r = level + 0.2 * rng.normal(size=n)
        events = self.both(lambda p: p.update_many(arms, X, r))
        self.changes += events
        changed = []
        for t, arm in enumerate(arms):
            self.plays[arm] += 1
            if self.slow is not None:
                Z = self.cross(X[t], [arm])
                if self.slow.update(arm, X[t], None if Z is None else Z[0], float(r[t])):
                    changed.append(arm)
        if self.slow is not None:
            assert [event.arm for event in events] == changed

    @rule(arm=st.sampled_from(IDS))
    def nonsense(self, arm: Hashable) -> None:
        """What is refused is refused alike and leaves no trace (the invariants go on holding)."""
        bad = np.array([np.nan, 1.0])
        self.both(lambda p: p.update(arm, bad, 1.0))
        self.both(lambda p: p.update(arm, np.zeros(2), np.inf))
        self.both(lambda p: p.select(np.zeros(2), [arm, arm]))
        self.both(lambda p: p.add_arms(["z", None]))

    @rule()
    def through_bytes(self) -> None:
        self.subject = whim.from_bytes(self.subject.to_bytes())

    @rule()
    def through_a_file(self) -> None:
        path = Path(self.folder.name) / "policy"
        self.subject.save(path)
        self.subject = type(self.subject).load(path)
        assert [p.name for p in Path(self.folder.name).iterdir()] == ["policy"]

    @invariant()
    def arms_are_the_list(self) -> None:
        assert self.subject.arms == self.twin.arms == self.model
        assert self.subject.step == self.twin.step
        for arm in self.model:
            assert self.subject.plays(arm) == self.plays[arm]


MAKERS: dict[str, tuple[Callable[[], whim.Policy], Callable[[], Mirror] | None]] = {
    "pslinucb-disjoint": (
        lambda: whim.PSLinUCBDisjoint(
            n_features=2, alpha=0.7, window=WINDOW, threshold=THRESHOLD
        ),
        disjoint_mirror,
    ),
    "pslinucb-hybrid": (
        lambda: whim.PSLinUCBHybrid(
            n_features=2, n_item_features=2, alpha=0.7, window=WINDOW, threshold=THRESHOLD
        ),
        hybrid_mirror,
    ),
    "pslinucb-hybrid-literal": (
        lambda: whim.PSLinUCBHybrid(
            n_features=2, n_item_features=2, window=3, threshold=0.3, g_pre="literal",
            first_window="literal",
        ),
        None,
    ),
    "mucb": (lambda: whim.MUCB(window=2, threshold=0.5, gamma=0.3), None),
    "swlinucb": (lambda: whim.SWLinUCB(n_features=2, window=9, alpha=0.7), None),
    "lints": (lambda: whim.LinTS(n_features=2, alpha=0.7, seed=3), None),
    "oracle-restart": (
        lambda: whim.OracleRestart(
            policy=whim.PSLinUCBDisjoint(n_features=2, window=4, threshold=0.4),
            changes={"a": [5, 20], 1: [11], "never added": [7]},
        ),
        None,
    ),
    "oracle-restart-all": (
        lambda: whim.OracleRestart(
            policy=whim.LinUCBHybrid(n_features=2, n_item_features=2), changes=[4, 9, 40]
        ),
        None,
    ),
}  # fmt: skip


def machine_of(
    make: Callable[[], whim.Policy], mirror: Callable[[], Mirror] | None
) -> type[Machine]:
    parts = {"make": staticmethod(make), "mirror": mirror and staticmethod(mirror), "changes": []}
    return type("Machine", (Machine,), parts)


@pytest.mark.parametrize("name", MAKERS)
def test_any_order_of_calls(name: str) -> None:
    machine = machine_of(*MAKERS[name])
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=30, stateful_step_count=40, deadline=None, derandomize=True, database=None
        ),
    )
    if name not in ("swlinucb", "lints", "oracle-restart-all"):
        assert machine.changes


@pytest.mark.parametrize("name", ["pslinucb-disjoint", "linucb-disjoint"])
def test_a_thousand_calls(name: str) -> None:
    """One long life, with far more changes, arms and savings than a short one has."""
    make, mirror = MAKERS["pslinucb-disjoint"]
    if name == "linucb-disjoint":
        make = lambda: whim.LinUCBDisjoint(n_features=2, alpha=0.7)  # noqa: E731
        mirror = lambda: Mirror(LinUCBDisjointOracle(d=2, alpha=0.7))  # noqa: E731
    machine: Any = machine_of(make, mirror)()
    machine.start(seed=0)
    rng = np.random.default_rng(1)
    for _ in range(1000):
        arms = [IDS[i] for i in rng.permutation(len(IDS))[: rng.integers(1, 4)]]
        seed = int(rng.integers(2**32))
        what = rng.random()
        if what < 0.6:
            machine.play(seed=seed, some=bool(rng.integers(2)))
        elif what < 0.7 and machine.model:
            machine.play_many(seed=seed, n=20, level=float(rng.normal()))
        elif what < 0.8:
            machine.add(arms=arms, seed=seed)
        elif what < 0.84:
            machine.retire(arms=arms)
        elif what < 0.87:
            machine.reset(arms=arms)
        elif what < 0.95:
            machine.through_bytes()
        else:
            machine.nonsense(arm=arms[0])
        machine.arms_are_the_list()
    assert machine.subject.step > 1500
    assert len(machine.changes) > (50 if name == "pslinucb-disjoint" else -1)
    machine.teardown()
