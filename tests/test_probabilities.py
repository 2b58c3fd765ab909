"""``probabilities``: what ``select`` does, counted; in the library and in the service's log."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from scipy import stats

import whim
from tests.clocks import Clock
from tests.factories import FACTORIES
from whim.errors import InvalidInputError, LogFileError
from whim.kernels.linalg import normals
from whim.policies.lints import _NODES, _WEIGHTS
from whim.serve import wire
from whim.serve.jobs import whatif
from whim.serve.jobs.export import export
from whim.serve.log.rows import DECODERS, DecisionRow, Kind
from whim.serve.state.engine import Engine
from whim.serve.state.space_state import SpaceState
from whim.types import F64

ARMS, SECOND = 5, 1_000_000_000


def learnt(policy: whim.Policy, steps: int = 60) -> whim.Policy:
    rng = np.random.default_rng(5)
    m = policy.n_item_features
    policy.add_arms(range(ARMS), rng.normal(size=(ARMS, m)) if m else None)
    X = rng.normal(size=(steps, policy.n_features or 1))
    arms = rng.integers(ARMS, size=steps)
    rewards = 0.1 * arms + X[:, 0] + rng.normal(size=steps)
    policy.update_many(arms, X if policy.n_features else None, rewards)
    return policy


def largest(mean: Any, width: Any, first: bool = True) -> F64:
    out = np.empty(len(mean))
    normals.largest(np.array(mean, float), np.array(width, float), first, _NODES, _WEIGHTS, out)
    return out


# -- the quadrature -----------------------------------------------------------------------------


def test_two_normals_in_closed_form() -> None:
    rng = np.random.default_rng(0)
    for _ in range(50):
        mean, width = rng.normal(size=2), 10.0 ** rng.uniform(-4, 2, size=2)
        exact = stats.norm.cdf((mean[0] - mean[1]) / math.hypot(*width))
        assert largest(mean, width) == pytest.approx([exact, 1 - exact], abs=1e-12)


def test_many_normals_against_a_fine_integral() -> None:
    rng = np.random.default_rng(1)
    for n in (3, 7, 20):
        mean, width = rng.normal(size=n), rng.uniform(0.05, 1.5, size=n)
        v = np.linspace(-12, 15, 200_001)
        below = stats.norm.cdf((v[:, None] - mean) / width)
        for c in range(n):
            density = stats.norm.pdf(v, mean[c], width[c])
            exact = np.trapezoid(density * np.delete(below, c, axis=1).prod(axis=1), v)
            assert largest(mean, width)[c] == pytest.approx(exact, abs=1e-9)


@pytest.mark.parametrize(
    ("mean", "width", "first", "wanted"),
    [
        ([1.0], [0.5], True, [1.0]),
        ([0.0, 0.0, 0.0, 0.0], [1.0] * 4, True, [0.25] * 4),
        ([1.0, 2.0, 2.0], [0.0] * 3, True, [0.0, 1.0, 0.0]),
        ([1.0, 2.0, 2.0], [0.0] * 3, False, [0.0, 0.5, 0.5]),
        ([0.0, 0.0], [0.0, 1.0], True, [0.5, 0.5]),
        ([0.0, 1e9], [1.0, 1.0], True, [0.0, 1.0]),
        ([0.0, 0.0], [1e-9, 1e9], True, [0.5, 0.5]),
        ([1e6, 1e6], [1e-9, 1e-9], True, [1.0, 0.0]),  # no number lies in between
    ],
)
def test_edges(mean: Any, width: Any, first: bool, wanted: Any) -> None:
    assert largest(mean, width, first) == pytest.approx(wanted, abs=1e-9)


# -- the library --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "policy",
    [
        whim.LinTS(n_features=3, alpha=0.4),
        whim.LinTS(n_item_features=3, payoff="item", alpha=0.4),
        whim.LinTS(n_features=3, n_item_features=2, payoff="cross", alpha=0.4, ties="random"),
        whim.Random(n_features=3),
        whim.CUSUMUCB(n_features=3, threshold=4.0, explore=0.3),
        whim.UCB(n_features=3, ties="random"),
    ],
    ids=lambda p: f"{p.name}-{p.params.get('payoff', '')}",
)
def test_they_are_the_shares_of_what_select_chooses(policy: whim.Policy) -> None:
    policy = learnt(policy)
    policy.add_arms(
        ["new", "newer"],
        np.ones((2, policy.n_item_features or 1)) if policy.n_item_features else None,
    )
    arms = [4, "newer", 0, 2, "new"]
    x, n = np.array([0.4, -0.2, 0.7]), 20_000
    before = policy.to_bytes()
    p = policy.probabilities(x, arms)
    assert policy.to_bytes() == before
    assert p.sum() == pytest.approx(1)
    chosen = [policy.select(x, arms).arm for _ in range(n)]
    share = np.array([chosen.count(arm) for arm in arms]) / n
    error = np.sqrt(p * (1 - p) * (1 / n + 1 / 4096)) + 1e-3
    assert (np.abs(share - p) < 4 * error).all(), (share, p)


@pytest.mark.parametrize("name", FACTORIES)
def test_every_policy_has_them(name: str) -> None:
    policy = FACTORIES[name]()
    rng = np.random.default_rng(2)
    m, k = policy.n_item_features, policy.n_cross_features
    policy.add_arms(range(ARMS), rng.normal(size=(ARMS, m)) if m else None)
    Z = rng.normal(size=(ARMS, k)) if k and not m else None
    x = rng.normal(size=policy.n_features or 1)
    p = policy.probabilities(x, cross=Z)
    assert p.shape == (ARMS,)
    assert p.sum() == pytest.approx(1)
    if not policy.randomised:
        assert p[policy.arms.index(policy.select(x, cross=Z).arm)] == 1.0
    with pytest.raises(InvalidInputError, match="x must be finite"):
        policy.probabilities(np.full(policy.n_features or 1, np.nan), cross=Z)


def test_a_policy_of_a_user_s_own_that_draws_is_counted() -> None:
    class Coin(whim.Policy):
        name = "coin"
        _draws = True

        def __init__(self, *, seed: int = 0, ties: str = "first") -> None:
            super().__init__(n_features=None, seed=seed, ties=ties)

        def _noise(self, rng: np.random.Generator, n: int) -> F64:
            return rng.random(1)

        def _score(self, x: Any, slots: Any, cross: Any, noise: Any) -> int:
            self._out[: len(slots)] = 0.0
            return int(noise[0] < 0.3)

        def _observe(self, slot: int, x: Any, cross: Any, reward: float) -> int:
            return 0

    policy = Coin()
    policy.add_arms(["a", "b"])
    assert policy.probabilities() == pytest.approx([0.7, 0.3], abs=4 * 0.0075)


# -- the service --------------------------------------------------------------------------------

DRAWING: dict[str, dict[str, Any]] = {
    "lints": {"policy": "lints", "context": wire.Features(size=2)},
    "lints shared": {
        "policy": "lints", "params": {"payoff": "item"}, "items": wire.Features(size=2),
        "context": wire.Features(size=0),
    },
    "random": {"policy": "random", "context": wire.Features(size=2)},
    "cusum": {
        "policy": "cusum-ucb", "params": {"threshold": 5.0, "explore": 0.2},
        "context": wire.Features(size=2),
    },
}  # fmt: skip


def serve(data: Path, config: wire.SpaceConfig, n: int, seed: int = 0) -> list[DecisionRow]:
    """Decisions and rewards of a space; their rows."""
    clock, rng = Clock(1_700_000_000 * SECOND), np.random.default_rng(seed)
    engine = Engine(data, clock=clock)
    try:
        engine.create("log", config)
        for _ in range(n):
            clock.now += SECOND
            x = [1.0, float(rng.integers(2))] if config.context.size else []
            arms: list[Any] = ["a", "b", "c"]
            if config.items.size:
                arms = [wire.Candidate(a, [1.0, i / 2]) for i, a in enumerate(arms)]
            body = wire.DecisionBody(candidates=arms, context=x)
            answer = msgspec.json.decode(engine.decide("log", body, b""), type=wire.Answer)
            value = float(rng.random() < 0.3 + 0.2 * "abc".index(str(answer.arm)))
            engine.reward("log", wire.RewardBody(decision_id=answer.decision_id, value=value))
        engine.store.flush()
        rows = engine.store.rows()
        return [DECODERS[r.kind].decode(r.body) for r in rows if r.kind == Kind.DECISION]
    finally:
        engine.close()


@pytest.mark.parametrize("explore", [0.0, 0.2])
@pytest.mark.parametrize("name", DRAWING)
def test_the_service_logs_the_true_probability_of_a_draw(
    tmp_path: Path, name: str, explore: float
) -> None:
    config = wire.SpaceConfig(explore=explore, **DRAWING[name])
    rows = serve(tmp_path, config, 600)
    p = np.array([row.probability for row in rows])
    drawn = np.array([row.drawn for row in rows], float)
    assert ((p > 0) & (p <= 1)).all()
    assert p == pytest.approx(explore / 3 + (1 - explore) * drawn)
    # under the true probabilities the inverse ones of any one arm have mean 1
    has_a_chance = {"cusum": [], "lints shared": [0, 2]}  # a line is highest at one of its ends
    for place in has_a_chance.get(name, [0, 1, 2]):
        w = np.where([row.place == place for row in rows], 1 / p, 0.0)
        assert abs(w.mean() - 1) < 4 * w.std() / math.sqrt(len(w)), place


def test_decisions_without_draws_are_logged_as_before(tmp_path: Path) -> None:
    config = wire.SpaceConfig(policy="linucb-disjoint", context=wire.Features(size=2))
    rows = serve(tmp_path, config, 20)
    assert {row.probability for row in rows} == {1.0}
    assert {row.drawn for row in rows} == {None}


def test_draws_of_an_earlier_version_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows that say 1 for a draw, as they were written before: no log, no what-if of them."""
    preview = SpaceState.preview

    def certain(*given: Any) -> Any:
        return preview(*given)._replace(chances=np.ones(3))

    monkeypatch.setattr(SpaceState, "preview", certain)
    config = wire.SpaceConfig(**DRAWING["lints"])
    encode = msgspec.msgpack.encode

    def older(row: Any) -> bytes:
        if isinstance(row, DecisionRow):
            return encode(
                msgspec.structs.astuple(row)[: DecisionRow.__struct_fields__.index("drawn")]
            )
        return encode(row)

    monkeypatch.setattr("whim.serve.state.choosing._encode", older)
    rows = serve(tmp_path, config, 40)
    assert {(row.probability, row.drawn) for row in rows} == {(1.0, None)}
    monkeypatch.undo()
    with pytest.raises(LogFileError, match="probability that was not logged"):
        export(tmp_path, "log", tmp_path / "out.whim", format="log")
    found = whatif.run(tmp_path, "log", config, lambda share: None)
    assert found["whatif"]["rate"] is None
    assert "logged no probability" in found["unknown"]


def test_a_log_of_thompson_sampling_estimates_another_policy(tmp_path: Path) -> None:
    """The true value of showing b always is 0.5; a log of LinTS without explore knows it."""
    rows = serve(tmp_path, wire.SpaceConfig(**DRAWING["lints"]), 1500)
    w = np.array([(row.place == 1) / row.probability for row in rows])
    export(tmp_path, "log", tmp_path / "out.whim", format="log")
    log = whim.logs.open(tmp_path / "out.whim")
    assert log.propensity is not None
    assert sorted(log.propensity) == sorted(row.probability for row in rows)
    value = (w * log.reward).sum() / w.sum()
    assert abs(value - 0.5) < 4 * math.sqrt((w**2 * (log.reward - value) ** 2).sum()) / w.sum()
