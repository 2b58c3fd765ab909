"""``beyond/streams``: share of reward on streams with every reward known, and drift of any kind.

``AdaptiveLinUCB`` and the score test run as they come. Rivals run as they come and with the best of
a grid of settings, chosen in hindsight on the stream itself. With archives under ``--data`` these
are the streams; without, one is made up per kind of drift.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from whim.evaluate import Interval, spread
from whim.evaluate.intervals import block_interval
from whim.experiments import formatting as fmt
from whim.experiments.options import Options, after
from whim.experiments.result import Curve, ExperimentResult, Figure, Table
from whim.experiments.stream_rivals import (
    ADAPTIVE,
    HINDSIGHT,
    LINUCB,
    LOGISTIC,
    SCORE_TEST,
    VOWPAL,
    Rival,
    Task,
    earned,
    has_vowpal,
    rivals,
)
from whim.experiments.stream_sources import MANY_ARMS, Stream, sources
from whim.types import F64

_STAND_IN = (
    "Made with a stand-in: one made-up stream per kind of drift, not real ones, which are not part "
    "of Whim. With your own archives (X and y, or X and R): --data DIR."
)
_IN_TIME, _SHUFFLED = "in time", "shuffled: nothing changes"
_DRAWN = (ADAPTIVE, SCORE_TEST, LINUCB, LINUCB + HINDSIGHT, "DLinUCB" + HINDSIGHT,
          LOGISTIC + HINDSIGHT)  # fmt: skip


class Outcome(NamedTuple):
    """One stream in one arrangement: what each label earned, and the setting that it had."""

    stream: Stream
    size: tuple[int, int, int]  # steps, arms, features
    rewards: dict[str, F64]  # per step of the last 90 %, mean over orders of the arms
    settings: dict[str, dict[str, Any]]

    def share(self, label: str) -> Interval:
        """Mean reward."""
        return block_interval(self.rewards[label], self.block)

    def ahead(self, of: str) -> Interval:
        """Mean reward of the adaptive policy less that of another, over the same steps."""
        return block_interval(self.rewards[ADAPTIVE] - self.rewards[of], self.block)

    @property
    def block(self) -> int:
        """Steps of a block of the bootstrap."""
        return round(2 * math.sqrt(len(self.rewards[ADAPTIVE])))

    @property
    def best(self) -> str:
        """The rival with the largest mean reward, all settings tried."""
        others = [label for label in self.rewards if label != ADAPTIVE]
        return max(others, key=lambda label: float(self.rewards[label].mean()))


def streams(options: Options) -> ExperimentResult:
    """The tables and figures of ``beyond/streams``."""
    every = sources(options)
    made_up = not every[0].path
    policies = rivals(quick=options.quick)
    advance = options.stage("beyond/streams", 2 * len(every))
    outcomes: dict[str, list[Outcome]] = {_IN_TIME: [], _SHUFFLED: []}
    for done, stream in enumerate(every):
        for arrangement, found in outcomes.items():
            found.append(_outcome(stream, arrangement == _SHUFFLED, policies, options))
            after(advance, 2 * done)(len(outcomes[_IN_TIME]) + len(outcomes[_SHUFFLED]) - 2 * done)
    ahead = [one.ahead(one.best) for one in outcomes[_IN_TIME]]
    average = fmt.in_points(Interval(_mean(ahead), math.nan, math.nan))
    return ExperimentResult(
        title="Streams with every reward known: one policy as it comes, against tuned rivals",
        summary=_summary(outcomes, average),
        settings={
            "streams": {one.stream.name: _said(one) for one in outcomes[_IN_TIME]},
            "arm orders of streams with many arms": options.choose(4, 2),
            "policies": {b: {"as it comes": r.usual, "tried": r.grid} for b, r in policies.items()},
            "seed": options.seed,
        },
        differences=_differences(),
        warning=_STAND_IN if made_up else "",
        tables=[
            *(_compared(where, found) for where, found in outcomes.items()),
            *(_table(where, found) for where, found in outcomes.items()),
            _chosen(outcomes),
        ],
        figures=[_figure(where, found) for where, found in outcomes.items()],
        headline=[
            ("Streams: AdaptiveLinUCB less the best rival in hindsight, mean, points", "–", average)
        ],
    )


def _outcome(
    stream: Stream, shuffled: bool, policies: dict[str, Rival], options: Options
) -> Outcome:
    """Every policy and every setting over one stream; of those tried in hindsight the best."""
    X, R, _ = stream.load()
    orders = options.choose(4, 2) if R.shape[1] >= MANY_ARMS else 1
    clicks = bool((R >= 0).all() and (R <= 1).all())
    tried = [
        (label, settings)
        for label, rival in policies.items()
        if clicks or not rival.clicks_only
        for settings in _different([rival.usual, *rival.grid])
    ]
    tasks = [
        Task(stream, shuffled, order, options.seed, label, settings)
        for label, settings in tried
        for order in range(orders)
    ]
    found = spread(earned, tasks, jobs=options.jobs)
    rewards: dict[str, F64] = {}
    chosen: dict[str, dict[str, Any]] = {}
    for place, (label, settings) in enumerate(tried):
        mean = np.mean(found[place * orders : (place + 1) * orders], axis=0)[len(X) // 10 :]
        if settings == policies[label].usual:
            rewards[label], chosen[label] = mean, settings
        tuned = label + HINDSIGHT
        if settings in policies[label].grid and (
            tuned not in rewards or mean.mean() > rewards[tuned].mean()
        ):
            rewards[tuned], chosen[tuned] = mean, settings
    return Outcome(stream, (len(X), R.shape[1], X.shape[1]), rewards, chosen)


def _different(settings: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [one for i, one in enumerate(settings) if one not in settings[:i]]


def _mean(intervals: list[Interval]) -> float:
    return float(np.mean([i.value for i in intervals]))


def _said(one: Outcome) -> dict[str, Any]:
    steps, arms, d = one.size
    origin = "archive" if one.stream.path else f"made up, seed {one.stream.seed}"
    return {"steps": steps, "arms": arms, "features": d, "from": origin, "block": one.block}


def _summary(outcomes: dict[str, list[Outcome]], average: str) -> str:
    moved, still = outcomes[_IN_TIME], outcomes[_SHUFFLED]
    ahead = [one.ahead(one.best) for one in moved]
    level = [one.ahead(LINUCB + HINDSIGHT) for one in still]
    return (
        f"On {len(moved)} streams AdaptiveLinUCB as it comes is surely ahead of the best rival "
        f"tuned in hindsight on {sum(i.low > 0 for i in ahead)}, surely behind on "
        f"{sum(i.high < 0 for i in ahead)}; the difference is {average} points of reward on "
        f"average. Shuffled, so that nothing changes, it is surely below LinUCB with α tuned in "
        f"hindsight on "
        f"{sum(i.high < 0 for i in level)}, by at most "
        f"{100 * max(0.0, -min(i.value for i in level)):.1f} points."
    )


def _compared(where: str, found: list[Outcome]) -> Table:
    tuned, rows = LINUCB + HINDSIGHT, []
    for one in found:
        best = one.best.replace(HINDSIGHT, " (tuned)")
        rows.append(
            [
                one.stream.name, f"{100 * one.share(ADAPTIVE).value:.1f}",
                f"{best} {100 * one.share(one.best).value:.1f}", fmt.in_points(one.ahead(one.best)),
                f"{100 * one.share(tuned).value:.1f}", fmt.in_points(one.ahead(tuned)),
            ]
        )  # fmt: skip
    return Table(
        title=f"AdaptiveLinUCB as it comes, against the best rival in hindsight, {where}",
        columns=[
            "stream", ADAPTIVE, "best rival in hindsight", "difference", f"{LINUCB} (tuned)",
            "difference",
        ],
        rows=rows,
        caption="Mean reward over the last 90 % of a stream, in percent; differences in points, "
        "over the same steps, with 95 % intervals by a bootstrap of blocks of 2√n steps. The best "
        "rival is the one with the largest mean on this very stream among all policies and "
        "settings tried: its lead is flattered by the choice, and the difference is so much harder "
        "on AdaptiveLinUCB.",
    )  # fmt: skip


def _labels(found: list[Outcome]) -> list[str]:
    """Labels in the order of policies, each tuned form after the one as it comes."""
    return list(dict.fromkeys(label for one in found for label in one.rewards))


def _table(where: str, found: list[Outcome]) -> Table:
    labels = _labels(found)
    rows = [
        [label]
        + [fmt.percent(one.share(label), 1) if label in one.rewards else "–" for one in found]
        for label in labels
    ]
    return Table(
        title=f"Mean reward by policy, {where}",
        columns=["policy", *(one.stream.name for one in found)],
        rows=rows,
        caption="“Tuned in hindsight”: the best of a grid of settings on this very stream, which "
        "nobody could have known beforehand. Without it: α = 1 and, where a policy forgets, a "
        "memory of 1,000 steps. –: rewards outside [0, 1].",
        highlight=[i for i, label in enumerate(labels) if label in (ADAPTIVE, SCORE_TEST)],
    )


def _chosen(outcomes: dict[str, list[Outcome]]) -> Table:
    rows = []
    for where, found in outcomes.items():
        for one in found:
            for label, settings in one.settings.items():
                if label.endswith(HINDSIGHT):
                    words = ", ".join(f"{k} {v}" for k, v in settings.items())
                    rows.append([one.stream.name, where, label.removesuffix(HINDSIGHT), words])
    return Table(
        title="Settings chosen in hindsight",
        columns=["stream", "order", "policy", "settings"],
        rows=rows,
    )


def _figure(where: str, found: list[Outcome]) -> Figure:
    curves = []
    drawn = [label for label in _DRAWN if any(label in one.rewards for one in found)]
    for k, label in enumerate(drawn):
        shares = [(i, one.share(label)) for i, one in enumerate(found) if label in one.rewards]
        beside = 0.6 * (k / max(len(drawn) - 1, 1) - 0.5)  # side by side within the row
        curves.append(
            Curve(
                label, [s.value for _, s in shares], [i + beside for i, _ in shares],
                [s.low for _, s in shares], [s.high for _, s in shares], "points",
            )
        )  # fmt: skip
    return Figure(
        title=f"Mean reward on streams, {where}",
        x_label="mean reward, last 90 %",
        y_label="",
        curves=curves,
        rows=[one.stream.name for one in found],
        caption="95 % intervals by a bootstrap of blocks. Tuned in hindsight: the best setting of "
        "a grid on this very stream.",
    )


def _differences() -> list[str]:
    sentences = [
        "The paper has no streams with every reward known; the comparison is ours.",
        "AdaptiveLinUCB and PSLinUCB have no setting here. Every other policy is shown twice: with "
        "α = 1 and a memory of 1,000 steps, and with the best of a grid, chosen in hindsight on "
        "the reward that is shown.",
        "The discounted logistic bandit is there to tell what the logistic link alone is worth: "
        "one model per arm, discounted, upper confidence bounds of the logit.",
        f"Streams with {MANY_ARMS} arms or more are run in several orders of the arms (the "
        "file's own first), because ties go to the first; rewards are means over them.",
    ]
    if has_vowpal():
        sentences.append(
            "Vowpal Wabbit draws from its own probabilities (--cb_explore, with a seed); all other "
            "policies here draw nothing."
        )
    else:
        sentences.append(f"{VOWPAL} was left out: its package is not installed.")
    return sentences
