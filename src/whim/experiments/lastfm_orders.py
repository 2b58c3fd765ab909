"""``beyond/lastfm``: AdaptiveLinUCB on LastFM by the paper's protocol, users in turn or shuffled.

Many arms with rare rewards. One user after the other, each new one is a change; shuffled, nothing
changes, and what a policy that adapts loses against LinUCB is the price of adapting.
"""

from __future__ import annotations

import whim.policies as whim
from whim.evaluate import ReplayResult
from whim.experiments import click_rates
from whim.experiments import formatting as fmt
from whim.experiments.lastfm import D, source
from whim.experiments.options import Options, after
from whim.experiments.result import ExperimentResult, Table

_ORDERS = {"user": "one user after the other", "shuffled": "shuffled: nothing changes"}
_ADAPTIVE, _LINUCB = "AdaptiveLinUCB", "LinUCB, α = 0.15"


def _policies() -> dict[str, whim.Policy]:
    """As they come, but for LinUCB and the paper's test, which have the paper's settings."""
    return {
        _LINUCB: whim.LinUCBDisjoint(n_features=D, alpha=0.15),
        "LinUCB, α = 1": whim.LinUCBDisjoint(n_features=D, alpha=1.0),
        "PSLinUCB, paper's test": whim.PSLinUCBDisjoint(
            n_features=D, alpha=0.15, window=1200, threshold=0.035
        ),
        "PSLinUCB, score test": whim.PSLinUCBDisjoint(n_features=D),
        _ADAPTIVE: whim.AdaptiveLinUCB(n_features=D),
    }


def orders(options: Options) -> ExperimentResult:
    """The tables of ``beyond/lastfm``."""
    made = _policies()
    results: dict[str, ReplayResult] = {}
    runs = options.choose(10, 2)
    advance = options.stage("beyond/lastfm", len(_ORDERS) * len(made) * runs)
    for done, order in enumerate(_ORDERS):
        origin = source(options, "paper", full=10, quick=2, order=order)
        later = after(advance, done * len(made) * runs)
        results[order] = click_rates.replay_all(origin, made, options, later)
    gains = {order: found.relative(_ADAPTIVE, _LINUCB) for order, found in results.items()}
    said = [f"{fmt.percent(gain, 1, signed=True)} {_ORDERS[o]}" for o, gain in gains.items()]
    return ExperimentResult(
        title="LastFM, users in turn or shuffled: what adapting is worth, and what it costs",
        summary="Relative to LinUCB with the paper's α, AdaptiveLinUCB as it comes changes the "
        f"click rate by {' and by '.join(said)}.",
        settings={"log": origin.said | {"order": list(_ORDERS)}, "seed": options.seed}
        | {"policies": {label: repr(policy) for label, policy in made.items()}},
        differences=["The paper has PSLinUCB and LinUCB, one user after the other."],
        warning=origin.warning,
        tables=[_table(order, found) for order, found in results.items()],
        figures=[
            click_rates.over_time(found, list(made), f"Click rate over time, {_ORDERS[order]}")
            for order, found in results.items()
        ],
        headline=[("LastFM: AdaptiveLinUCB over LinUCB, α = 0.15", "–", said[0])]
        if fmt.is_telling(gains["user"]) or not options.quick
        else [],
        targets=[
            ("LastFM, users in turn: AdaptiveLinUCB above LinUCB", gains["user"].value > 0),
            (
                "LastFM, users shuffled: AdaptiveLinUCB at most 3 % below LinUCB",
                gains["shuffled"].value >= -0.03,
            ),
        ]
        if not origin.warning
        else [],
    )


def _table(order: str, found: ReplayResult) -> Table:
    rows = []
    for label, logs in found.runs.items():
        over = (
            "" if label == _LINUCB else fmt.percent(found.relative(label, _LINUCB), 1, signed=True)
        )
        changes = sum(len(log.changes) for log in logs) / len(logs)
        rows.append([label, fmt.rate(found.rate(label)), over, fmt.count(changes)])
    return Table(
        title=f"Click rates, {_ORDERS[order]}",
        columns=["policy", "CTR", f"over {_LINUCB}", "changes reported"],
        rows=rows,
        caption="95 % intervals over logs, which differ in the order and are the same for all "
        "policies. Changes reported are a mean per log.",
        highlight=[list(found.runs).index(_ADAPTIVE)],
    )
