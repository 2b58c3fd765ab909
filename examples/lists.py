"""The figure of docs/lists.md: clicks lost by what is learnt from a list of which a part was seen.

Run: ``python examples/lists.py docs/images/lists.svg`` (needs ``whim-bandits[plot]``).
"""

from __future__ import annotations

import sys

import matplotlib.pyplot as plt
import numpy as np

import whim
from whim.worlds import ListWorld, ReversingLinear

SEED, RUNS, HORIZON, D, K = 0, 20, 12_000, 5, 5
# half of the arms reverse half-way; users scan from the top and stop at the first click
WORLD = ListWorld(world=ReversingLinear(n_arms=30, n_features=D, period=HORIZON // 2), k=K)
WAYS = {
    "unclicked = 0": ("semi", whim.PSLinUCBDisjoint(n_features=D), "#b3541e"),
    "up to the first click, LinUCB": ("cascade", whim.LinUCBDisjoint(n_features=D), "#8a6fb0"),
    "up to the first click": ("cascade", whim.PSLinUCBDisjoint(n_features=D), "#1f5fa8"),
}


def live() -> None:
    """What a page does, visit by visit; the curves below are such visits in compiled loops."""
    episode = WORLD.episode(horizon=2000, seed=SEED)
    policy = whim.PSLinUCBDisjoint(n_features=D)
    policy.add_arms(range(WORLD.n_arms))
    clicked = 0
    for x, would_click in zip(episode.contexts, episode.items.rewards, strict=True):
        shown = policy.select_list(x, k=K).arms
        rewards = would_click[shown]
        clicked += bool(rewards.any())
        policy.update_list(shown, x, rewards)  # items after the first click are not learnt
    print(f"{clicked} of {len(episode.contexts)} lists clicked, {episode.best.sum():.0f} at best")


def main(path: str, runs: int = RUNS, horizon: int = HORIZON) -> None:
    live()
    plt.rcParams.update({"svg.hashsalt": "whim", "font.family": "sans-serif"})
    figure, axes = plt.subplots(figsize=(7, 3.6), layout="constrained")
    picks = np.random.default_rng(0).integers(runs, size=(2000, runs))
    for label, (feedback, policy, colour) in WAYS.items():
        result = whim.simulate(
            WORLD, {label: policy}, horizon=horizon, runs=runs, seed=SEED, feedback=feedback
        )
        curves = result.regret[label]
        low, high = np.quantile(curves[picks].mean(1), [0.025, 0.975], axis=0)
        axes.fill_between(result.steps, low, high, color=colour, alpha=0.18, lw=0)
        axes.plot(result.steps, curves.mean(0), color=colour, lw=1.6, label=label)
    axes.set(xlabel="visit", ylabel="clicks lost so far", xlim=(0, horizon))
    axes.set_ylim(bottom=0)
    axes.xaxis.set_major_formatter("{x:,.0f}")
    axes.set_title(f"Lists of {K}: mean of {runs} runs", loc="left", fontsize=11)
    axes.legend(frameon=False, fontsize=9, loc="upper left")
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, metadata={"Date": None} if path.endswith("svg") else None)


if __name__ == "__main__":
    main(sys.argv[1])
