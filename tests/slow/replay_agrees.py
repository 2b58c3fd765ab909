"""``python -m tests.slow.replay_agrees``: replay against the truth, over thousands of logs.

Prints a line a comparison and ends with 1 if one is out of bounds: coverage of 95 % intervals
within four standard errors, means within four standard errors of the truth. Bounds of four on
some forty comparisons fail by chance once in four hundred runs; seeds are fixed.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import whim
from tests.replay_truth import Fixed, Paired, coverage, news_pairs, online_pairs, slower_clock

LEARNERS: dict[str, whim.Policy] = {
    "Random": whim.Random(),
    "UCB": whim.UCB(),
    "LinUCBDisjoint": whim.LinUCBDisjoint(n_features=3),
    "PSLinUCBDisjoint": whim.PSLinUCBDisjoint(n_features=3, window=50, threshold=0.2),
    "LinTS": whim.LinTS(n_features=3, alpha=0.3),
}


def say(text: str) -> None:
    """A line on stdout, at once."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def line(what: str, value: float, wanted: str, fine: bool) -> bool:
    """Print one comparison; whether it is out of bounds."""
    say(f"{what:<58} {value:>9.4f}  {wanted:<18} {'ok' if fine else 'OUT OF BOUNDS'}")
    return not fine


def intervals(folder: Path, logs: int, events: int) -> int:
    """Coverage, bias and variance for a policy whose value is known."""
    bad = 0
    for scheme in ("uniform", "propensity"):
        found = coverage(folder, scheme=scheme, logs=logs, events=events, seed=1)
        for name, share in found.share.items():
            bound = f"0.95 ± {found.slack:.3f}"
            fine = abs(share - 0.95) < found.slack
            bad += line(f"{scheme}: coverage of {name}, {logs} logs", share, bound, fine)
            off = found.off(name)
            bad += line(f"{scheme}: bias of {name} in standard errors", off, "< 4", off < 4)
        if scheme == "propensity":
            ratio = found.variance["dr"] / found.variance["ips"]
            bad += line("propensity: variance of DR over that of IPS", ratio, "< 1", ratio < 1)
    return bad


def agrees(what: str, found: Paired) -> bool:
    """Whether replay and online differ by more than chance."""
    say(f"{what}: replayed {found.replayed.mean():.4f}, online {found.online.mean():.4f}")
    fine = abs(found.difference) < 4 * found.error
    return line(f"{what}: difference", found.difference, f"0 ± {4 * found.error:.4f}", fine)


def main() -> int:
    """The exit code."""
    whim.policies.register(Fixed)
    bad = 0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        bad += intervals(folder, logs=1500, events=1500)
        for label, policy in LEARNERS.items():
            bad += agrees(label, online_pairs(folder, policy, worlds=400, events=3000))
        hybrid = whim.LinUCBHybrid(n_features=6, n_item_features=6, alpha=0.5)
        bad += agrees("LinUCBHybrid, news", news_pairs(folder, hybrid, worlds=200, events=4000))
        sliding = whim.SWLinUCB(n_features=3, window=200)
        same, scaled = slower_clock(folder, sliding, worlds=200, events=10_000, period=100)
        fine = same.difference < -4 * same.error
        bad += line("changes: replay minus online, same events", same.difference, "below 0", fine)
        bad += agrees("changes, online K times as fast", scaled)
    say(f"{bad} out of bounds")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
