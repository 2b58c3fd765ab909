"""AdaptiveLinUCB: interests that jump, drift or stay as they are, with nothing to set."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from whim import checks
from whim.kernels.linalg import udu
from whim.kernels.models import adaptive
from whim.kernels.models.adaptive import state as parts
from whim.kernels.models.adaptive import stored
from whim.policies.base.detecting import Reporting
from whim.types import F64, I64, ArmId, ChangeEvent

# log-likelihood that a change must have gained: at least so much, and where features are many so
# much times the logarithm of coefficients less one (tests/slow/adaptive_events). For e times fewer
# false events it is so much more, as rewards need of which nine in ten are zero (beyond/rewards);
# for e times more so much less
_GAIN, _BY_FEATURES, _FEWER, _MORE = 4.5, 5.0, 6.0, 1.0
_RARE = 1e-5  # hazards up to this one are "nothing changes"


def _least_gain(d: int, accepted: float) -> float:
    """What a change must have gained to be reported, beside what learning costs."""
    fewer = -math.log(accepted)
    usual = max(_GAIN, _BY_FEATURES * (math.log(d + 1) - 1))
    return max(usual + (_FEWER if fewer > 0 else _MORE) * fewer, 0.0)


@dataclass(frozen=True, slots=True)
class ArmBelief:
    """What is believed of one arm.

    Attributes
    ----------
    began
        The arm's play with which its present coefficients most likely began.
    began_probability
        How likely that is, among all plays that are still considered.
    changed
        The probability that the arm has changed since its last reported change (or since its first
        play), which no event has said yet.
    noise
        Standard deviation of its rewards around what the context explains; ``None`` for clicks.
    """

    began: int
    began_probability: float
    changed: float
    noise: float | None


@dataclass(frozen=True, slots=True)
class Beliefs:
    """What ``AdaptiveLinUCB`` holds to be true.

    Attributes
    ----------
    rewards
        ``"clicks"`` while rewards have had at most two values, else ``"numbers"``.
    nothing, jumps, drift
        The probabilities that interests (almost) never change, that they jump, and that they drift.
    plays_between_jumps
        If they jump: the mean number of an arm's plays from one jump to the next.
    noise
        Standard deviation of rewards, over all arms; ``None`` for clicks.
    arms
        By arm, of those that have been played.
    """

    rewards: str
    nothing: float
    jumps: float
    drift: float
    plays_between_jumps: float
    noise: float | None
    arms: dict[ArmId, ArmBelief]


class AdaptiveLinUCB(Reporting):
    """One policy for interests that jump, drift or stay as they are, with nothing to set.

    A Bayesian mixture: each arm has models that differ in when its present coefficients began, and
    others that drift. How often interests change, the noise, and how large coefficients are is
    learnt from all arms. Rewards of two values are taken for clicks, with a logistic link, as long
    as there is no third value; at a third, the last 512 plays are learnt again as numbers.

    Parameters
    ----------
    n_features
        Length d of a context.
    false_events
        Reported changes that are none, per 10,000 plays, that you accept. It says when an event is
        reported, not how the policy learns. Measured with 2 to 47 features: the more there are, the
        more evidence a report takes.
    optimism
        >= 0: how many times the usual optimism. 1 is what everything was measured with.
    beginnings
        >= 2: how many beginnings are considered per arm; more cost time and memory.
    seed, ties
        See ``Policy``.

    Notes
    -----
    About (beginnings + 2)·(d + 1)²/2 + 2·(d + 1)² numbers per arm, with beginnings + 2 rounded up
    to a multiple of eight.

    Examples
    --------
    >>> import numpy as np
    >>> policy = AdaptiveLinUCB(n_features=1)
    >>> policy.add_arms(["toys"])
    ['toys']
    >>> noise = 0.1 * np.random.default_rng(0).normal(size=80)
    >>> rewards = np.repeat([1.0, -1.0], 40) + noise
    >>> [event] = policy.update_many(["toys"] * 80, np.ones((80, 1)), rewards)
    >>> event.began, event.kind, round(event.probability, 2)
    (41, 'jump', 0.99)
    >>> beliefs = policy.beliefs()
    >>> beliefs.rewards, beliefs.arms["toys"].began
    ('numbers', 41)
    """

    name = "adaptive-linucb"
    _kernels = adaptive.ADAPTIVE

    # of ``Arms`` and ``Shared``
    _models: F64
    _drifts: F64
    _mixed: F64
    _born: I64
    _clock: I64
    _noises: F64
    _sums: F64
    _worlds: F64

    def __init__(
        self,
        *,
        n_features: int,
        false_events: float = 1.0,
        optimism: float = 1.0,
        beginnings: int = 6,
        seed: int = 0,
        ties: str = "first",
    ) -> None:
        d = checks.integer("n_features", n_features, 1)
        accepted = checks.number("false_events", false_events, above=0)
        self._least_gain = _least_gain(d, accepted)
        self._optimism = checks.number("optimism", optimism, least=0)
        self._beginnings = checks.integer("beginnings", beginnings, 2)
        super().__init__(n_features=d, seed=seed, ties=ties)
        self._p = d + 1
        rows = parts.arm_rows(self._p, self._beginnings)
        shared = parts.shared_arrays(self._p)
        self._arm_fields, self._shared_fields = list(rows), list(shared)
        self._rows({f"_{name}": row for name, row in rows.items()})
        self._keep(
            **{f"_{name}": array for name, array in shared.items()},
            _ring_at=np.zeros(2, np.int64),
            _ring_place=np.full((parts.RING, 2), -1, np.int64),
            _ring_play=np.zeros((parts.RING, d + 1)),
        )
        self._ring_at: I64
        self._ring_place: I64
        self._ring_play: F64
        self._scratch = parts.scratch(self._p, self._beginnings)
        self._report = self._scratch.report

    def _state(self) -> parts.State:
        arms = parts.Arms(*(getattr(self, f"_{name}") for name in self._arm_fields))
        shared = parts.Shared(*(getattr(self, f"_{name}") for name in self._shared_fields))
        ring = parts.Ring(self._ring_at, self._ring_place, self._ring_play)
        settings = parts.Settings(
            max(len(self._live), 1), self._beginnings, self._optimism, self._least_gain
        )
        return parts.State(arms, shared, ring, settings, self._scratch)

    def _forget(self, slots: list[int], gone: bool) -> None:
        super()._forget(slots, gone)  # what they have taught about all arms stays
        self._ring_place[np.isin(self._ring_place[:, 0], slots), 0] = -1

    def _to_file(self, arrays: dict[str, npt.NDArray[Any]]) -> dict[str, npt.NDArray[Any]]:
        return stored.to_file(arrays, self._p, self._beginnings)

    def _from_file(self, arrays: dict[str, npt.NDArray[Any]]) -> dict[str, npt.NDArray[Any]]:
        return stored.from_file(arrays, self._p, self._beginnings)

    def _verify(self) -> None:
        super()._verify()
        rows, d = len(self._clock), self._p - 1
        fresh = parts.shared_arrays(self._p)
        shapes = {name: fresh[name].shape for name in self._shared_fields}
        shapes |= {"ring_at": (2,), "ring_place": (parts.RING, 2), "ring_play": (parts.RING, d + 1)}
        for name, shape in shapes.items():
            kept = getattr(self, f"_{name}")
            if kept.shape != shape or not np.isfinite(kept).all():
                raise ValueError(f"{name} must be numbers of shape {shape}, got {kept.shape}")
        for name in self._arm_fields:
            if not np.isfinite(getattr(self, f"_{name}")).all():
                raise ValueError(f"{name} must be finite")
        count = self._clock[:, parts.COUNT]
        if not ((count >= 0) & (count <= self._beginnings)).all():
            raise ValueError(f"clock must count 0 to {self._beginnings} beginnings")
        place = self._ring_place[:, 0]
        if not ((place >= -1) & (place < rows)).all() or self._ring_at.min() < 0:
            raise ValueError("ring must name slots")

    # -- what it holds --------------------------------------------------------------------------

    @property
    def _clicks(self) -> bool:
        return bool(self._sums[parts.VALUES] <= parts.CLICKS)

    def _shares(self, slot: int) -> F64:
        """Of EVER, the beginnings and the drifts, together 1."""
        count = self._clock[slot, parts.COUNT]
        own = [*self._mixed[slot, : count + 1], *self._worlds[1, parts.JUMPS :]]
        weights: F64 = np.array(own) / np.sum(own)
        return weights

    def coefficients(self, arm: ArmId) -> F64:
        """The mean of the arm's coefficients over all models, a copy; of the logit, for clicks."""
        slot, d, p = self._table.slot(arm), self._p - 1, self._p
        if not self._clock[slot, parts.PLAYS]:
            return self._with_names(np.zeros(d))
        count, at = self._clock[slot, parts.COUNT], udu.packed_size(p)
        models, drifts = self._models[slot, at:, : count + 1], self._drifts[slot, at:]
        mean: F64 = np.concatenate([models, drifts], axis=1) @ self._shares(slot)
        return self._with_names(mean[:d])

    def beliefs(self) -> Beliefs:
        """How interests change here, the noise, and what is believed of each arm."""
        jump_worlds, drift = self._worlds[1, : parts.JUMPS], self._worlds[1, parts.JUMPS :]
        hazards = np.tile(parts.HAZARDS, len(parts.RETURNS))
        often = hazards > _RARE
        jumps = float(jump_worlds[often].sum())
        rate = float(jump_worlds[often] @ hazards[often]) / max(jumps, 1e-300)
        noise = None if self._clicks else math.sqrt(self._sums[parts.VARIANCE_OF_ALL])
        return Beliefs(
            rewards="clicks" if self._clicks else "numbers",
            nothing=float(jump_worlds[~often].sum()),
            jumps=jumps,
            drift=float(drift.sum()),
            plays_between_jumps=1 / (2 * rate),
            noise=noise,
            arms={
                arm: self._arm_belief(slot)
                for arm, slot in self._table.slot_of.items()
                if self._clock[slot, parts.PLAYS]
            },
        )

    def _arm_belief(self, slot: int) -> ArmBelief:
        count, reported = self._clock[slot, [parts.COUNT, parts.REPORTED]]
        born = np.append(1, self._born[slot, 1 : count + 1, parts.PLAY])
        mixed = self._mixed[slot, : count + 1]
        share = mixed / max(mixed.sum(), 1e-300)
        best = int(np.argmax(share))
        noise = None
        if not self._clicks:
            own, all_arms = self._noises[slot], self._sums[parts.VARIANCE_OF_ALL]
            variance = (10 * all_arms + own[parts.ERRORS]) / (10 + own[parts.FREE])
            noise = math.sqrt(variance)
        return ArmBelief(
            began=int(born[best]),
            began_probability=float(share[best]),
            changed=float(share[born > reported].sum()),
            noise=noise,
        )

    def _event(self, slot: int) -> ChangeEvent:
        d = self._p - 1
        before, after = self._report[0, :d], self._report[1, :d]
        gain, bound, probability, began, jump = self._report[2, :5].tolist()
        moved = after - before
        size = float(np.linalg.norm(moved))
        return ChangeEvent(
            arm=self._table.id_of[slot],
            step=self._step,
            plays=self._plays[slot],
            statistic=gain,
            threshold=bound,
            theta_before=tuple(before.tolist()),
            theta_after=tuple(after.tolist()),
            window=self._plays[slot] - int(began) + 1,
            began=int(began),
            direction=tuple((moved / size).tolist()) if size > 0 else (),
            probability=probability,
            kind="jump" if jump else "drift",
        )
