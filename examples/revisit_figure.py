"""The figure of docs/math.md: regret with and without revisits of neglected arms.

Run: ``python examples/revisit_figure.py docs/images/revisit.svg`` (needs ``whim-bandits[plot]``).
"""

from __future__ import annotations

import sys

import matplotlib.pyplot as plt
import numpy as np

import whim
from whim.worlds import PiecewiseLinear

SEED, RUNS, HORIZON, D = 0, 20, 20_000, 5
REVISIT = {
    "off": ("off", "#b3541e"),
    "auto": ("auto", "#1f5fa8"),
    "h = 1/2000": (1 / 2000, "#5b8c5a"),
}
WORLDS = {
    "One user: neglected arms are revisited": ("fixed", 2000),
    "A new user at each step: all arms are played": ("random", 2000),
    "One user, and nothing changes": ("fixed", None),
}


def panel(axes: plt.Axes, title: str, users: str, period: int | None) -> None:
    world = PiecewiseLinear(n_arms=10, n_features=D, period=period, law="sphere", users=users)
    made = {
        label: whim.PSLinUCBDisjoint(n_features=D, revisit=revisit)
        for label, (revisit, _) in REVISIT.items()
    }
    result = whim.simulate(world, made, horizon=HORIZON, runs=RUNS, seed=SEED)
    picks = np.random.default_rng(0).integers(RUNS, size=(2000, RUNS))
    for label, curves in result.regret.items():
        colour = REVISIT[label][1]
        low, high = np.quantile(curves[picks].mean(1), [0.025, 0.975], axis=0)
        axes.fill_between(result.steps, low, high, color=colour, alpha=0.18, lw=0)
        axes.plot(result.steps, curves.mean(0), color=colour, lw=1.6, label=label)
    axes.set(xlabel="step", xlim=(0, HORIZON))
    axes.set_ylim(bottom=0)
    axes.set_xticks([0, 10_000, 20_000], ["0", "10,000", "20,000"])
    axes.set_title(title, loc="left", fontsize=10)


def main(path: str) -> None:
    plt.rcParams.update({"svg.hashsalt": "whim", "font.family": "sans-serif"})
    figure, row = plt.subplots(1, len(WORLDS), figsize=(11, 3.4), layout="constrained")
    for axes, (title, (users, period)) in zip(row, WORLDS.items(), strict=True):
        panel(axes, title, users, period)
        axes.spines[["top", "right"]].set_visible(False)
    row[0].set_ylabel("regret (reward lost so far)")
    row[0].legend(frameon=False, fontsize=9, loc="upper left", title="revisit")
    figure.savefig(path, metadata={"Date": None})


if __name__ == "__main__":
    main(sys.argv[1])
