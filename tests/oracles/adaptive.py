"""AdaptiveLinUCB as docs/math.md writes it: full matrices, models refitted from their plays.

With ``beginnings=None`` every beginning is kept. With ``paths=True`` the weights of an arm's models
are summed over every history of jumps that there can have been (three to the number of plays).
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from itertools import product

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float64]
HAZARDS = [1e-6, 1e-5, 1e-4, 3e-4, 1e-3, 3e-3, 1e-2]
RATES = [5e-6, 5e-5, 5e-4]
JUMP_WORLDS = [(h, back) for back in (0.0, 0.5) for h in HAZARDS]
FAVOUR = [-0.5 * math.log(h / 1e-6) for h, _ in JUMP_WORLDS]
FAVOUR += [-0.5 * math.log(10 * rho / 1e-6) for rho in RATES]
RING = 512


def sigmoid(a: float) -> float:
    """The logistic function."""
    return 1 / (1 + math.exp(min(-a, 700.0)))


def shrink(s: float) -> float:
    """E σ(a) of a ~ N(m, s) is about σ(shrink(s) m)."""
    return 1 / math.sqrt(1 + math.pi * s / 8)


class Model:
    """Coefficients since a play: plays refitted (rewards), or filtered one by one (clicks)."""

    def __init__(self, born: int, precision: Vector, centre: Vector, toward: Vector) -> None:
        self.born = born
        self.age = 0
        self.precision, self.centre = precision.copy(), centre.copy()
        self.offset = precision * (toward - centre)  # stays when the prior moves
        self.plays: list[tuple[Vector, float]] = []
        self.information = np.zeros((len(centre), len(centre)))
        self.linear = np.zeros(len(centre))  # Σ of what plays add to precision times mean
        self.gain = 0.0

    def posterior(self) -> tuple[Vector, Vector]:
        """Mean and covariance."""
        P = np.linalg.inv(np.diag(self.precision) + self.information)
        return P @ (self.precision * self.centre + self.offset + self.linear), P

    def move(self, precision: Vector, centre: Vector) -> None:
        """Start from another prior."""
        self.precision, self.centre = precision.copy(), centre.copy()

    def learn(self, x: Vector, value: float, clicks: bool) -> None:
        """One play."""
        if not clicks:
            self.plays.append((x, value))
            self.information = np.sum([np.outer(x, x) for x, _ in self.plays], axis=0)
            self.linear = np.sum([r * x for x, r in self.plays], axis=0)
            return
        m, P = self.posterior()
        s = float(x @ P @ x)
        k = shrink(s)
        p = sigmoid(k * float(x @ m))
        seen = k * k * p * (1 - p)
        after = m + P @ x * k * (value - p)
        self.information = self.information + seen / (1 - seen * s) * np.outer(x, x)
        whole = np.diag(self.precision) + self.information
        self.linear = whole @ after - self.precision * self.centre - self.offset


class Arm:
    """What is kept of an arm."""

    def __init__(self) -> None:
        self.plays = 0
        self.last = 0
        self.models: list[Model] = []
        self.ever: Model | None = None
        self.drifts: list[tuple[Vector, Vector]] = []
        self.precision = self.centre = self.ever_precision = np.zeros(0)
        self.weights: list[dict[int, float]] = []  # per jump world, by born; 0 is EVER
        self.paths: list[dict[tuple[int, ...], float]] = []  # per jump world, by history
        self.mixed: dict[int, float] = {}
        self.jumping = 0.0
        self.archived = self.reported = 0
        self.said = np.zeros((3, 0))
        self.errors = self.free = 0.0


class AdaptiveOracle:
    """The mixture, step by step."""

    def __init__(
        self, *, d: int, optimism: float = 1.0, least_gain: float, beginnings: int | None,
        paths: bool = False,
    ) -> None:  # fmt: skip
        self.d, self.p = d, d + 1
        self.optimism, self.least_gain = optimism, least_gain
        self.beginnings, self.enumerates = beginnings, paths
        self.arms: dict[Hashable, Arm] = {}
        self.values: list[float] = []
        self.ring: list[tuple[Hashable, int, Vector, float]] = []
        self.t = 0
        self.last_statistic: float | None = None
        self._clear()

    def _clear(self) -> None:
        self.arms = {a: Arm() for a in self.arms}
        for arm in self.arms.values():
            arm.said = np.zeros((3, self.p))
        self.errors = self.free = self.squares = self.lengths = self.highs = self.noise = 0.0
        self.steps = 0
        self.evidence = np.zeros(len(FAVOUR))
        self.pi = np.full(len(FAVOUR), 1 / len(FAVOUR))
        self.mu, self.tau2 = np.zeros(self.p), np.ones(self.p)
        self.totals = np.zeros((3, self.p))
        self.first_x: Vector | None = None
        self.same, self.same_sum = np.zeros(self.d, bool), False

    def add(self, a: Hashable) -> None:
        """Create an arm."""
        self.arms[a] = Arm()
        self.arms[a].said = np.zeros((3, self.p))

    @property
    def clicks(self) -> bool:
        """Whether rewards have had at most two values."""
        return len(self.values) <= 2

    def _phi(self, x: Vector) -> Vector:
        constant = self.first_x is not None and bool(
            (self.same & (self.first_x != 0)).any() or (self.same_sum and self.first_x.sum() != 0)
        )
        return np.append(x, 1.0 if self.clicks and not constant else 0.0)

    def _noise(self, arm: Arm) -> float:
        if self.clicks:
            return 1.0
        own = (10 * self.noise + arm.errors) / (10 + arm.free)
        return max(own, 1e-12 * self.squares / (self.steps + 1))

    # -- decisions --------------------------------------------------------------------------------

    def scores(self, x: Vector, arms: Sequence[Hashable]) -> Vector:
        """Optimistic value of each candidate."""
        return np.array([self._score(self.arms[a], self._phi(x), len(arms)) for a in arms])

    def _score(self, arm: Arm, phi: Vector, candidates: int) -> float:
        new_mean, new_variance = float(phi @ self.mu), float(phi**2 @ self.tau2)
        c = self.optimism * (1.0 if self.clicks else 1.5)
        if arm.plays == 0:
            up = new_mean + c * math.sqrt(new_variance)
            return sigmoid(up) if self.clicks else up
        gap = self.t - arm.last
        more = max(0.0, math.log(gap / candidates))
        scale = self._noise(arm)
        jumped = [1 - math.exp(-h * 2 / len(self.arms) * gap) for h, _ in JUMP_WORLDS]
        pi = self.pi[: len(JUMP_WORLDS)]
        leave = sum(w * q for w, q in zip(pi, jumped, strict=True))
        back = sum(w * q * b for w, q, (_, b) in zip(pi, jumped, JUMP_WORLDS, strict=True))
        assert arm.ever is not None
        ever_mean = float(phi @ arm.ever.posterior()[0])
        new_mean += 0.25 * (ever_mean - new_mean)
        keep = (pi.sum() - leave) / arm.jumping
        opinions = [(leave - back, new_mean, new_variance, 0.0)]
        for model in [*arm.models, arm.ever]:
            weight = arm.mixed[model.born] * keep + (back if model is arm.ever else 0.0)
            m, P = model.posterior()
            opinions.append((weight, float(phi @ m), scale * float(phi @ P @ phi), more))
        for rho, world, (m, P) in zip(RATES, self.pi[-3:], arm.drifts, strict=True):
            left = math.exp(-2 * rho * 2 / len(self.arms) * gap)
            mean = new_mean + math.sqrt(left) * (float(phi @ m) - new_mean)
            variance = left * scale * float(phi @ P @ phi) + (1 - left) * new_variance
            opinions.append((world, mean, variance, more))
        opinions = [o for i, o in enumerate(opinions) if i == 0 or o[0] >= 0.01]
        W = sum(w for w, *_ in opinions)
        if self.clicks:
            up = [w * sigmoid(m + math.sqrt(v * (c * c + g))) for w, m, v, g in opinions]
            return sum(up) / W
        mean = sum(w * m for w, m, _, _ in opinions) / W
        second = sum(w * (v + m * m) for w, m, v, _ in opinions) / W
        total = max(second - mean * mean, 0.0)
        inside = min(sum(w * v for w, _, v, _ in opinions[1:]) / W, total)
        return mean + math.sqrt(c * c * total + more * inside)

    # -- rewards ----------------------------------------------------------------------------------

    def update(self, a: Hashable, x: Vector, r: float) -> bool:
        """Learn a reward; whether a change was reported."""
        self.ring = [*self.ring, (a, self.t, x, r)][-RING:]
        if r not in self.values and len(self.values) < 3:
            was_click = bool(self.values) and self.values[0] > 0
            self.values.append(r)
            other = len(self.values) == 2 and was_click != (self.values[0] == max(self.values))
            if len(self.values) == 3 or other:
                self._clear()
                for b, step, y, reward in self.ring[:-1]:
                    self._learn(b, step, y, reward)
        changed = self._learn(a, self.t, x, r)
        self.t += 1
        return changed

    def _targets(self, arm: Arm) -> tuple[Vector, Vector]:
        noise = self._noise(arm)
        least = 0.0
        if self.lengths > 0:
            least = 0.3 * (4.0 if self.clicks else noise) * (self.steps + 1) * self.d / self.lengths
        return noise / self.tau2, noise / np.maximum(self.tau2, least)

    def _learn(self, a: Hashable, step: int, x: Vector, r: float) -> bool:
        arm = self.arms[a]
        if self.first_x is None:
            self.first_x, self.same, self.same_sum = x, np.ones(self.d, bool), True
        self.same = self.same & (x == self.first_x)
        first = self.first_x.sum()
        self.same_sum = self.same_sum and bool(abs(x.sum() - first) <= 1e-9 * abs(first))
        phi, first = self._phi(x), arm.plays == 0
        if self.steps == 0:
            biggest = max(v * v for v in [r, *self.values[:2]])
            self.noise = self.squares = biggest  # as if one play of that size had been seen
            self.lengths = length = float(phi @ phi)
            size = 4.0 if self.clicks else biggest
            self.tau2 = np.full(self.p, size / length if length > 0 else size)
        precision, ever_precision = self._targets(arm)
        far = first or (
            ((self.mu - arm.centre) ** 2 > 0.25**2 * self.tau2).any()
            or (np.abs(np.log(arm.precision / precision)) > 0.25).any()
        )
        if far:
            arm.precision, arm.centre, arm.ever_precision = (
                precision,
                self.mu.copy(),
                ever_precision,
            )
            for model in arm.models:
                model.move(precision, self.mu)
            if arm.ever is not None:
                arm.ever.move(ever_precision, self.mu)
        value = r
        if self.clicks:
            high = max(self.values) if len(self.values) == 2 else None
            value = float(r > 0 if high is None else r == high)
            self.highs += value
        return self._play(arm, step, phi, value, first)

    def _play(self, arm: Arm, step: int, phi: Vector, value: float, first: bool) -> bool:
        noise, gap = self._noise(arm), step - arm.last
        rate = (0.5 + self.highs) / (self.steps + 2)
        arm.plays += 1
        if first:
            arm.ever = Model(0, arm.ever_precision, arm.centre, arm.centre)
            arm.drifts = [(self.mu, np.zeros((self.p, self.p)))] * len(RATES)
            toward = arm.centre
        assert arm.ever is not None
        ever_mean = arm.ever.posterior()[0]
        toward = arm.centre + 0.25 * (ever_mean - arm.centre)
        arm.models.append(Model(arm.plays, arm.precision, arm.centre, toward))
        said: dict[object, tuple[float, float, float]] = {}  # error, spread, log-likelihood
        usual = self.mu if first else self.mu + 0.25 * (ever_mean - self.mu)
        for z, rho in enumerate(RATES):
            left = 0.0 if first else math.exp(-2 * rho * 2 / len(self.arms) * gap)
            m, P = arm.drifts[z]
            m = usual + math.sqrt(left) * (m - usual)
            P = left * P + (1 - left) * np.diag(1 / arm.precision)
            said["drift", z] = self._said(m, P, phi, value, noise, rate)
            s = float(phi @ P @ phi)
            k = shrink(s)
            p = sigmoid(k * float(phi @ m))
            seen = k * k * p * (1 - p) if self.clicks else 1 / (1 + s)
            error = k * (value - p) if self.clicks else (value - float(phi @ m)) / (1 + s)
            arm.drifts[z] = m + P @ phi * error, P - seen * np.outer(P @ phi, P @ phi)
        for model in [*arm.models, arm.ever]:
            said[model.born] = self._said(*model.posterior(), phi, value, noise, rate)
            model.learn(phi, value, self.clicks)
        return self._believe(arm, step, gap, phi, value, said, first)

    def _said(
        self, m: Vector, P: Vector, phi: Vector, value: float, noise: float, rate: float
    ) -> tuple[float, float, float]:
        mean, s = float(phi @ m), float(phi @ P @ phi)
        if self.clicks:
            p = sigmoid(shrink(s) * mean)
            mixed = 0.99 * p + 0.01 * rate
            return value - p, 1 + s * p * (1 - p), math.log(mixed if value else 1 - mixed)
        e, v = value - mean, 1 + s
        y = e * e / (noise * v)
        density = 0.98 * math.exp(-y / 2) + 0.02 / 5 * (1 + y / 25) ** -1.5 + 1e-300
        return e, v, math.log(density) - 0.5 * math.log(noise * v)

    def _believe(
        self, arm: Arm, step: int, gap: int, phi: Vector, value: float,
        said: dict[object, tuple[float, float, float]], first: bool,
    ) -> bool:  # fmt: skip
        newest = arm.models[-1].born
        may_jump = not first and self.free >= 20
        counted = [log for key, (_, _, log) in said.items() if may_jump or key != newest]
        most = max(counted)
        like = {key: math.exp(log - most) for key, (_, _, log) in said.items()}
        known = {0: arm.mixed.get(0, 0.0) + 1e-30}
        known |= {m.born: arm.mixed[m.born] for m in arm.models[:-1] if m.born <= arm.reported}
        total = sum(w * like[b] for b, w in known.items())
        believed = math.log(total / sum(known.values()) + 1e-300) + most
        for model in arm.models:
            model.gain += said[model.born][2] - believed
        for world, (h, back) in enumerate(JUMP_WORLDS):
            q = min(0.99, 1 - math.exp(-h * 2 / len(self.arms) * gap)) if may_jump else 0.0
            total = self._weigh(arm, world, q, back, like, first, newest)
            if not first:
                self.evidence[world] = 0.9998 * self.evidence[world] + 0.5 * math.log(total)
        for z in range(len(RATES)):
            if not first:
                at = len(JUMP_WORLDS) + z
                log = math.log(max(like["drift", z], 1e-300))
                self.evidence[at] = 0.9998 * self.evidence[at] + 0.5 * log
        odds = self.evidence + FAVOUR
        self.pi = np.exp(odds - odds.max())
        self.pi /= self.pi.sum()
        places = [0, *(model.born for model in arm.models)]
        jump_pi = self.pi[: len(JUMP_WORLDS)]
        arm.mixed = {
            b: sum(w * weights[b] for w, weights in zip(jump_pi, arm.weights, strict=True))
            for b in places
        }
        arm.jumping = 1e-12 + sum(arm.mixed.values())
        for model in arm.models:
            model.age += 1
        self._noises(arm, phi, value, said)
        changed = False
        if first:
            arm.archived = arm.reported = 1
        else:
            changed = self._report(arm)
            best = max(places, key=lambda b: arm.mixed[b])
            after = sum(arm.mixed[m.born] for m in arm.models if m.born > arm.archived)
            if best > arm.archived and after > 0.5 * arm.jumping:
                arm.archived = arm.plays
                arm.said = np.zeros((3, self.p))
        self._prune(arm)
        arm.last = step
        self._prior(arm)
        return changed

    def _weigh(
        self, arm: Arm, world: int, q: float, back: float, like: dict[object, float], first: bool,
        newest: int,
    ) -> float:  # fmt: skip
        """Weights of one jump world after a play; the evidence of the play."""
        if first:
            arm.weights.append({0: like[0], newest: 0.0})
            arm.paths.append({(0,): like[0]})
        elif self.enumerates:
            moves = {}
            for (path, w), move in product(arm.paths[world].items(), ("stay", "new", "back")):
                chance = {"stay": 1 - q, "new": q * (1 - back), "back": q * back}[move]
                now = {"stay": path[-1], "new": newest, "back": 0}[move]
                moves[*path, {"stay": -1, "new": newest, "back": -2}[move], now] = (
                    w * chance * like[now]
                )
            arm.paths[world] = moves
            arm.weights[world] = dict.fromkeys([0, *(m.born for m in arm.models)], 0.0)
            for path, w in moves.items():
                arm.weights[world][path[-1]] += w
        else:
            before = arm.weights[world]
            now_weights = {b: (1 - q) * w * like[b] for b, w in before.items()}
            now_weights[0] = ((1 - q) * before[0] + q * back) * like[0]
            now_weights[newest] = q * (1 - back) * like[newest]
            arm.weights[world] = now_weights
        total = max(sum(arm.weights[world].values()), 1e-300)
        arm.weights[world] = {b: w / total for b, w in arm.weights[world].items()}
        arm.paths[world] = {path: w / total for path, w in arm.paths[world].items()}
        return total

    def _noises(
        self, arm: Arm, phi: Vector, value: float, said: dict[object, tuple[float, float, float]]
    ) -> None:
        weights: dict[object, float] = {**arm.mixed}
        weights |= {("drift", z): float(self.pi[len(JUMP_WORLDS) + z]) for z in range(len(RATES))}
        errors = sum(w * (said[b][0] / said[b][1]) ** 2 for b, w in weights.items())
        free = sum(w / said[b][1] for b, w in weights.items())
        fade = 1 - 1 / 2000
        self.errors, self.free = fade * self.errors + errors, fade * self.free + free
        arm.errors, arm.free = fade * arm.errors + errors, fade * arm.free + free
        self.steps += 1
        self.squares += value * value
        self.lengths += float(phi @ phi)
        self.noise = (self.squares / (self.steps + 1) + self.errors) / (1 + self.free)

    def _report(self, arm: Arm) -> bool:
        later = [m for m in arm.models if m.born > arm.reported]
        after = sum(arm.mixed[m.born] for m in later)
        if after <= 0.95 * arm.jumping or arm.jumping <= 0.5:
            return False
        likeliest = max(later, key=lambda m: arm.mixed[m.born])
        learning = self.p * math.log(arm.plays / (likeliest.born - 1))
        if likeliest.gain < self.least_gain + learning:
            return False
        self.last_statistic = likeliest.gain
        arm.reported = arm.plays
        return True

    def _prune(self, arm: Arm) -> None:
        if self.beginnings is None or len(arm.models) <= self.beginnings:
            return
        best = max([0, *(m.born for m in arm.models)], key=lambda b: arm.mixed[b])
        order = [m.born for m in arm.models]
        ages = {m.born: m.age for m in arm.models}
        faint = [b for b in order[:-1] if b < best and arm.mixed[b] < 1e-3 * arm.jumping]
        if faint:
            gone = min(faint, key=lambda b: arm.mixed[b])
        else:

            def missed(i: int) -> float:
                older = ages[order[i - 1]] if i > 0 else 4 * ages[order[0]]
                apart = math.log(older / ages[order[i + 1]])
                return apart * (0.05 + arm.mixed[order[i]] / arm.jumping)

            gone = order[min((i for i in range(len(order) - 1) if order[i] != best), key=missed)]
        i = order.index(gone)
        heir = order[i + 1]
        if i > 0 and ages[order[i - 1]] * ages[order[i + 1]] < ages[gone] ** 2:
            heir = order[i - 1]
        for weights in [arm.mixed, *arm.weights]:
            weights[heir] += weights.pop(gone)
        arm.models = [m for m in arm.models if m.born != gone]

    def _prior(self, arm: Arm) -> None:
        models = {0: arm.ever} | {m.born: m for m in arm.models}
        best = max(models, key=lambda b: arm.mixed[b])
        drift = int(np.argmax(self.pi[-3:]))
        model = models[best]
        assert model is not None
        m, P = model.posterior()
        if self.pi[-3 + drift] > arm.mixed[best]:
            m, P = arm.drifts[drift]
        known = np.clip(1 - np.diag(P) * arm.precision, 0, 1)
        said = np.stack([known, known * m, (m - self.mu) ** 2])
        self.totals += said - arm.said
        arm.said = said
        t = self.steps - 1
        if self.lengths <= 0 or (t >= 200 and t % 16):
            return
        known, values, squares = self.totals
        self.mu = values / (known + 1)
        size = 4.0 * (self.steps + 1) if self.clicks else self.squares
        usual = (size / self.lengths + squares.sum()) / (1 + known.sum())
        alike = 10.0 if self.clicks else 3.0
        self.tau2 = (alike * usual + squares) / (alike + known)
        if self.clicks:
            self.tau2 = np.minimum(self.tau2, 1000 * size / self.lengths)
