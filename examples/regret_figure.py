"""The README's figure: what each policy believes about one arm, and regret over many runs.

Run: ``python examples/regret_figure.py docs/images/regret.svg`` (needs ``whim-bandits[plot]``).
"""

from __future__ import annotations

import sys
from typing import Any

import matplotlib.pyplot as plt
import numpy as np

import whim
from whim.worlds import PiecewiseLinear

SEED, RUNS, HORIZON, D = 0, 30, 20_000, 5
WORLD = PiecewiseLinear(n_arms=10, n_features=D, period=2000, users="fixed")
COLOURS = {
    "LinUCB": "#b3541e",
    "PSLinUCB, paper's test": "#8a6fb0",
    "PSLinUCB": "#1f5fa8",
    "oracle": "#5b8c5a",
}


def policies() -> dict[str, Any]:
    return {
        "LinUCB": whim.LinUCBDisjoint(n_features=D, alpha=1.0),
        "PSLinUCB, paper's test": whim.PSLinUCBDisjoint(
            n_features=D, alpha=1.0, window=100, threshold=0.35
        ),
        "PSLinUCB": whim.PSLinUCBDisjoint(n_features=D, alpha=1.0),
        "oracle": lambda episode: whim.OracleRestart(
            policy=whim.LinUCBDisjoint(n_features=D, alpha=1.0), changes=episode.changes
        ),
    }


def belief(axes: plt.Axes) -> None:
    """One item, one user who comes back: the item's appeal and what two policies believe."""
    world = PiecewiseLinear(
        n_arms=1, n_features=D, period=600, asynchronous=False, law="sphere", users="fixed"
    )
    episode = world.episode(horizon=2400, seed=3)
    x = episode.contexts[0].copy()
    made = {
        "LinUCB": whim.LinUCBDisjoint(n_features=D),
        "PSLinUCB": whim.PSLinUCBDisjoint(n_features=D),
    }
    believed: dict[str, list[float]] = {label: [] for label in made}
    events = []
    for policy in made.values():
        policy.add_arms([0])
    for reward in episode.rewards[:, 0].tolist():
        for label, policy in made.items():
            event = policy.update(0, x, reward)
            believed[label].append(policy.rank(x)[0].mean)
            if event is not None:
                events.append(event.step)
    truth = episode.expected[:, 0]
    axes.plot(truth, color="black", lw=1.2, ls=(0, (4, 2)), label="truth")
    for label, values in believed.items():
        axes.plot(values, color=COLOURS[label], lw=1.6, label=label)
    low = -0.56
    axes.set_ylim(low, 0.5)
    axes.plot(events, [low] * len(events), "^", color=COLOURS["PSLinUCB"], ms=8, clip_on=False)
    axes.annotate(
        "change detected", (events[0], low), (-4, 9), textcoords="offset points", fontsize=9
    )
    axes.set(xlabel="times the item was shown", ylabel="expected reward", xlim=(0, 2400))
    axes.set_title("What each believes about one item", loc="left", fontsize=11)
    axes.legend(frameon=False, fontsize=9, loc="upper right")


def regret(axes: plt.Axes) -> None:
    result = whim.simulate(WORLD, policies(), horizon=HORIZON, runs=RUNS, seed=SEED)
    picks = np.random.default_rng(0).integers(RUNS, size=(2000, RUNS))
    for label, curves in result.regret.items():
        low, high = np.quantile(curves[picks].mean(1), [0.025, 0.975], axis=0)
        axes.fill_between(result.steps, low, high, color=COLOURS[label], alpha=0.18, lw=0)
        axes.plot(result.steps, curves.mean(0), color=COLOURS[label], lw=1.6)
        end = curves.mean(0)[-1]
        axes.annotate(
            label.split(", ")[-1], (HORIZON, end), (-6, 7), textcoords="offset points", ha="right",
            color=COLOURS[label], fontsize=10,
        )  # fmt: skip
    axes.set(xlabel="step", ylabel="regret (reward lost so far)", xlim=(0, HORIZON))
    axes.set_ylim(bottom=0)
    axes.set_xticks(range(0, HORIZON + 1, 5000), ["0", "5,000", "10,000", "15,000", "20,000"])
    axes.set_title(f"Ten items that change: mean of {RUNS} runs", loc="left", fontsize=11)


def main(path: str) -> None:
    plt.rcParams.update({"svg.hashsalt": "whim", "font.family": "sans-serif"})
    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 3.6), layout="constrained")
    belief(left)
    regret(right)
    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, metadata={"Date": None} if path.endswith("svg") else None)


if __name__ == "__main__":
    main(sys.argv[1])
