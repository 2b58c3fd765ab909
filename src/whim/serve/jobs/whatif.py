"""``run``: what another policy would have earned on a space's own log, beside what was earned.

The log is replayed under the other configuration, as a rebuild would do it, with delays and
expired waits. At each decision the other configuration makes its choice before it learns.
Its value is then estimated from the logged probabilities (SNIPS): a decision counts with the
probability that the other one gives to what was shown, over that which it had. The same
configuration gives what was logged. Where the other one would show what could not have been shown,
its value is unknown. It runs in a process of its own, with no engine.
"""

from __future__ import annotations

import contextlib
import json
import math
from array import array
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from whim.errors import InvalidInputError
from whim.evaluate import Interval, Replayed, ReplayResult
from whim.evaluate.estimates import Support, estimates
from whim.serve import wire
from whim.serve.log.base import read_base, rows_of
from whim.serve.log.configs import open_spaces
from whim.serve.log.reader import LogReader
from whim.serve.log.rows import DECODERS, ArmFeatures, DecisionRow, Expiry, Kind, RewardRow
from whim.serve.state.drawing import probability, seed_of
from whim.serve.state.ledger import Learn
from whim.serve.state.lists import contexts_of, slot_keys
from whim.serve.state.policy import draws
from whim.serve.state.slots import Slots
from whim.serve.state.space import NotFoundError
from whim.serve.state.space_state import SpaceState
from whim.serve.state.stats import MICRO
from whim.serve.state.waiting import WaitingList
from whim.types import F64

_BINS = 60  # points of a curve, at most
_A_BIN = 50  # decisions that it should have
_FEW = 100  # decisions' worth below which an estimate is called weak
_DREW = (
    "the logged policy drew its choices, and logged no probability of each draw: that of a list is "
    "not known, and an earlier version of Whim logged none"
)
_NONE_FITS = "no decision that is closed fits these features"
_DRAWS_LISTS = "how likely a policy that draws is to show a list is not known"
_POINT = 8  # decisions' worth below which a point is not drawn


def run(
    data: Path, space: str, config: wire.SpaceConfig, progress: Callable[[float], None]
) -> dict[str, Any]:
    """Replay the log of a space, which is only read, under ``config``."""
    with contextlib.closing(LogReader(data / "log.db")) as reader:
        if space not in (spaces := open_spaces(reader)):
            raise NotFoundError(f"space must be one that exists, got {space!r}.")
        number, history = spaces[space]
        replay = _Replay(config, history.served)
        last = reader.last()[0]
        base = read_base(reader, number)
        if base is not None:
            replay.begin(base.body.arms)
        for block in rows_of(reader, number, 0, last):
            for row in block:
                replay.take(row[0], row[1], row[3], row[5])
            progress(block[-1][0] / last)
        changes = reader.count_changes(number, history.now.version, 0, 1_000_000)
    return _result(replay, history.served[-1][2], config, changes)


class _Replay:
    """The state of a space under another configuration, which chooses at every decision."""

    def __init__(
        self, config: wire.SpaceConfig, in_force: list[tuple[int, int, wire.SpaceConfig]]
    ) -> None:
        self.state = SpaceState(config)
        self._explore = config.explore
        self._to_come = list(reversed(in_force))
        self._logged = config
        self._fair, self._draws = True, False
        # of decisions that wait: time, weight, how likely the choice could have been shown,
        # whether both agree, whether it is no holdback, whether every candidate had a chance
        self._waiting: dict[str, tuple[float, float, float, bool, bool, bool]] = {}
        self.columns = {name: array("d") for name in ("at", "weight", "supported", "reward")}
        self.flags = {name: array("b") for name in ("agreed", "own", "fair")}
        self.changes = self.skipped = 0
        self.tiny = 0  # lists whose probability is too small for a number
        self.drew = False  # the logged policy drew, with probabilities that were not logged
        self.draws_lists = False  # the other one draws, and nobody knows how likely its lists are
        self.late = False  # the log's beginning is gone

    def begin(self, arms: list[ArmFeatures]) -> None:
        """Add the features of arms that came before what is left of the log."""
        self.late = True
        for arm in arms:
            with contextlib.suppress(InvalidInputError):
                self.state.add_arms([arm.id], [arm.features], lenient=True)

    def take(self, seq: int, at: int, kind: int, body: bytes) -> None:
        """Take a row of the log."""
        while self._to_come and self._to_come[-1][0] <= seq:
            self._logged_by(self._to_come.pop()[2])
        row, ledger = DECODERS[kind].decode(body), self.state.ledger
        if kind in (Kind.CONFIG, Kind.BUILT):
            ledger.configured(kind, row)
            return
        if kind == Kind.DECISION:
            self._decided(seq, at, row)
            return
        if type(row) is RewardRow and ledger.outcome(at, row) is wire.RewardState.LEARNT:
            items = ledger.lists.get(row.id)
            if items is not None:  # the reward is not taken yet
                items = items.with_reward(row.item or 0, row.value)
            self._closed(row.id, ledger.learnt(row), items)
        elif type(row) is Expiry:
            for key, learn in ledger.ended(at, row):
                self._closed(key, learn, ledger.lists.get(key))
        self.changes += len(self.state.apply_body(seq, at, row))

    def _logged_by(self, config: wire.SpaceConfig) -> None:
        self._logged = config
        aside = config.shadow or config.holdback > 0
        self._fair = config.explore > 0 or (config.baseline == "random" and aside)
        self._draws = draws(config)

    def _decided(self, seq: int, at: int, row: DecisionRow) -> None:
        state = self.state
        try:
            x, *more = [state.context(one, lenient=True) for one in contexts_of(row)]
            state.add_arms(row.arms, row.features, lenient=True)
        except InvalidInputError:  # it does not fit these features
            self.skipped += 1
            return
        if row.items is not None:
            self._decided_list(seq, at, row, [x, *more])
            return
        ids = row.arms
        order, _, chances = state.preview(x, ids, None, seed_of(state.config.seed, row.id))
        agreed, n = order[0] == row.place, len(ids)
        would = np.full(n, self._explore / n)
        if chances is not None:
            would += (1 - self._explore) * chances
        else:
            would[order[0]] += 1 - self._explore
        weight = would[row.place] / row.probability
        fair = self._fair or n == 1 or row.drawn is not None
        supported = 1.0
        if not fair:
            could = [probability(self._logged, i, row.wanted, n) > 0 for i in range(n)]
            could[row.place] = True
            supported = float(would[could].sum())
        self.drew = self.drew or (self._draws and row.drawn is None)
        own = row.mode != "holdback"
        # what was learnt from a table left no choice: counting it would hide differences
        if n > 1 or row.mode != "shadow":
            self._waiting[row.id] = (at / MICRO, weight, supported, agreed, own, fair)
        state.add_decision(
            seq, at, row.id, ids[row.place], x.tobytes(), row.probability, row.mode, agreed,
            row.deferred, row.due,
        )  # fmt: skip

    def _decided_list(self, seq: int, at: int, row: DecisionRow, x: list[F64]) -> None:
        """The same for a list, which counts as a whole: its items, in their order."""
        state, part, n = self.state, row.items, len(row.arms)
        assert part is not None
        seeds = [seed_of(state.config.seed, key) for key in slot_keys(row.id, len(x))]
        previews = [
            state.preview(one, row.arms, None, seed) for one, seed in zip(x, seeds, strict=True)
        ]
        slots = Slots(n, len(part.places), part.exclude)
        choice = slots.fill([one.order for one in previews])

        def would(places: list[int]) -> float:
            by_chance = slots.prefixes(places)[-1] if self._explore else 0.0
            return self._explore * by_chance + (1 - self._explore) * (choice == places)

        known = row.probability > 0
        self.drew = self.drew or (self._draws and not known)  # as it may be of a policy that draws
        self.tiny += not (known or self._draws)
        self.draws_lists = self.draws_lists or previews[0].chances is not None
        supported, fair = 1.0, self._fair or n == 1
        if not fair:
            could = [part.places]
            could += [row.order] if row.order not in could and self._logged.holdback < 1 else []
            supported = sum(map(would, could))
        weight = would(part.places) / row.probability if known else 0.0
        own, agreed = row.mode != "holdback", choice == part.places
        if known or self._draws:
            self._waiting[row.id] = (at / MICRO, weight, supported, agreed, own, fair)
        vectors = [one.tobytes() for one in x]
        state.add_list(seq, at, row, WaitingList.of(part, row.arms, vectors))

    def _closed(self, key: str, learn: Learn, items: WaitingList | None) -> None:
        decision = self._waiting.pop(key, None)
        if decision is None or learn is None:
            return
        if items is not None:  # a list has earned what its items have
            ledger = self.state.ledger
            plays = items.plays(items.rewards(ledger.rules.default), ledger.list_rules)
            learn = sum([play.reward for play in plays])
        assert isinstance(learn, float)
        at, weight, supported, agreed, own, fair = decision
        for name, value in zip(self.columns, (at, weight, supported, learn), strict=True):
            self.columns[name].append(value)
        for name, flag in (("agreed", agreed), ("own", own), ("fair", fair)):
            self.flags[name].append(flag)


# -- the result -------------------------------------------------------------------------------


def _result(
    replay: _Replay, logged: wire.SpaceConfig, config: wire.SpaceConfig, changes: int
) -> dict[str, Any]:
    at, weight, supported, reward = (np.frombuffer(c) for c in replay.columns.values())
    agreed, own, fair = (np.frombuffer(flag, np.int8) == 1 for flag in replay.flags.values())
    n = len(at)
    bins = min(_BINS, max(1, n // _A_BIN))
    first, last = (float(at.min()), float(at.max())) if n else (0.0, 0.0)
    span = (last - first) or 1.0
    places = np.minimum(((at - first) / span * bins).astype(np.int64), bins - 1)
    middles = [first + span * (b + 0.5) / bins for b in range(bins)]
    support = _support(weight, supported)
    if not n and replay.skipped:
        support = support._replace(problem=_NONE_FITS)
    elif replay.drew:
        support = support._replace(problem=_DREW)
    elif replay.draws_lists:
        support = support._replace(problem=_DRAWS_LISTS)

    actual, whatif = [], []
    for b, middle in enumerate(middles):
        here = places == b
        if (here & own).any():
            actual.append([middle, *finite(_rate(reward[here & own]))])
        w = weight[here]
        if support.problem is None and w.any() and w.sum() ** 2 / (w**2).sum() >= _POINT:
            whatif.append([middle, *finite(_snips(w, reward[here]))])
    return {
        "logged": _side(_rate(reward[own]), actual, _label(logged), changes),
        "whatif": _side(
            None if support.problem else _snips(weight, reward), whatif, _label(config),
            replay.changes,
        ),
        "relative": None if support.problem else _relative(at, weight, reward, own),
        "matched": int(agreed.sum()),
        "events": n,
        "clicks": bool(((reward == 0) | (reward == 1)).all()),
        "effective": support.effective,
        "support": support.share,
        "unknown": support.problem,
        "skipped": replay.skipped,
        "warnings": _warnings(replay, n, int((~fair).sum()), support),
    }  # fmt: skip


def _rate(rewards: F64) -> Interval | None:
    if not len(rewards):
        return None
    replayed = Replayed.empty(1)
    replayed.count(np.zeros(len(rewards), np.int64), np.ones(len(rewards), bool), rewards)
    return replayed.interval


def _sums(weight: F64, reward: F64) -> Replayed:
    replayed = Replayed.empty(1)
    nothing = np.zeros(len(weight), np.int64)
    replayed.count(nothing, np.zeros(len(weight), bool), reward)
    replayed.weigh(weight, reward)
    return replayed


def _support(weight: F64, supported: F64) -> Support:
    replayed = _sums(weight, np.zeros(len(weight)))
    replayed.back(supported, np.zeros(0))
    return replayed.support


def _snips(weight: F64, reward: F64) -> Interval | None:
    """The estimate, of a part of the log too: whether all of it has support is known already."""
    sums = _sums(weight, reward)
    sums.back(np.ones(len(weight)), reward)
    found = estimates(sums.events, sums.weights.tolist(), [0.0, 0.0, 0.0], sums.rewards)
    value = found.get("snips")
    if value is None or not ((reward >= 0) & (reward <= 1)).all():
        return value
    return Interval(value.value, max(value.low, 0.0), min(value.high, 1.0))


def _relative(at: F64, weight: F64, reward: F64, own: Any) -> dict[str, float] | None:
    """The one over the other, minus one; parts of the log are resampled, for both together."""
    n = len(at)
    bins = min(_BINS, n // 4)
    if bins < 2:
        return None
    places = np.empty(n, np.int64)
    places[np.argsort(at, kind="stable")] = np.arange(n) * bins // n

    def sums(values: F64) -> F64:
        total: F64 = np.bincount(places, values, bins).astype(np.float64)
        return total

    none = np.zeros(bins)
    ours = Replayed(none, sums(weight), sums(weight * reward), none)
    theirs = Replayed(none, sums(own * 1.0), sums(own * reward), none)
    if not weight.any() or theirs.total <= 0:
        return None
    result = ReplayResult({}, {"whatif": [ours], "logged": [theirs]})
    value, low, high = finite(result.relative("whatif", "logged"))
    if value is None or low is None or high is None:
        return None
    return {"value": value, "low": low, "high": high}


def _side(rate: Interval | None, curve: list[Any], label: str, changes: int) -> dict[str, Any]:
    value, low, high = finite(rate)
    return {
        "rate": value, "low": low, "high": high, "curve": curve, "label": label,
        "changes": changes,
    }  # fmt: skip


def finite(interval: Interval | None) -> list[float | None]:
    """Value, low and high of an interval, if there is one; JSON has no word for nan."""
    if interval is None:
        return [None, None, None]
    return [float(part) if math.isfinite(part) else None for part in interval]


def _label(config: wire.SpaceConfig) -> str:
    parts = [f"{k} = {json.dumps(v, ensure_ascii=False)}" for k, v in config.params.items()]
    parts += [f"explore = {config.explore:g}"] if config.explore else []
    inside = f" ({', '.join(parts)})" if parts else ""
    return f"{config.policy}{inside}" + (", in shadow" if config.shadow else "")


def _warnings(replay: _Replay, n: int, unfair: int, support: Support) -> list[str]:
    warnings = []
    if not n and replay.skipped:
        return [
            "No decision that is closed fits these features, so there is nothing to replay: "
            f"{replay.skipped} decisions do not fit and were left out."
        ]
    if not n and not replay.tiny:
        return ["No decision of this space is closed yet, so there is nothing to replay."]
    if support.problem is not None:
        remedy = " Set explore to a few percent, and later decisions tell."
        if replay.drew or replay.draws_lists:
            remedy = ""
        warnings.append(f"What this would have earned is unknown: {support.problem}.{remedy}")
    elif unfair == n:
        warnings.append(
            "The space never explores, so only a policy that chooses what was shown can be "
            "evaluated; this one does."
        )
    elif unfair:
        warnings.append(
            f"On {unfair} of {n} decisions some candidates had no chance to be shown; this "
            "configuration chooses none of those."
        )
    if replay.late:
        warnings.append(
            "The beginning of the log was removed (retention): the what-if learns from the "
            "remaining rows only, while the logged policy had learnt from all of them."
        )
    if support.problem is None and support.effective < _FEW:
        warnings.append(
            f"The effective sample size is only {support.effective:.0f} decisions: take the "
            "estimate as a hint. More exploration, or a longer log, would make it more precise."
        )
    if replay.tiny:
        warnings.append(
            f"{replay.tiny} lists were so long that the probability of what was drawn is too small "
            "for a number; they were learnt and are not in the estimate."
        )
    if replay.skipped:
        warnings.append(f"{replay.skipped} decisions do not fit these features and were left out.")
    return warnings
