"""Made-up findings: a report as the paper's experiments give it, and one of every odd case."""

from __future__ import annotations

import math

import numpy as np

from whim.experiments import Curve, ExperimentResult, Figure, Table

NAN = math.nan


def regret_figure(title: str, *, points: int = 200, horizon: int = 20_000) -> Figure:
    """Cumulative regret of three policies with bands, saw-toothed as changes make it."""
    steps = np.linspace(0, horizon, points)
    within = steps % 2000
    shapes = {
        "LinUCB": 0.115 * steps,
        "PSLinUCB": 0.055 * steps + 18 * np.log1p(within / 40),
        "oracle": 0.021 * steps + 9 * np.log1p(within / 30),
    }
    curves = [
        Curve(label, steps.tolist(), mean.tolist(), (0.93 * mean).tolist(), (1.07 * mean).tolist())
        for label, mean in shapes.items()
    ]
    return Figure(
        title,
        "step",
        "cumulative regret",
        curves,
        caption="Mean of 100 runs; bands are 95 % intervals over runs.",
    )


def synthetic() -> ExperimentResult:
    settings = {
        "runs": 100,
        "horizon": 20_000,
        "seed": 0,
        "world": {"n_arms": 10, "n_features": 5, "period": 2000, "law": "ball", "noise": 0.2},
        "policies": {
            "LinUCB": {"alpha": 1.0},
            "PSLinUCB": {"alpha": 1.0, "window": 100, "threshold": 0.35, "first_window": "seed"},
        },
        "checkpoints": list(range(0, 20_001, 1000)),
    }
    return ExperimentResult(
        "synthetic/disjoint",
        "Synthetic data, disjoint model",
        "PSLinUCB loses about half of LinUCB's regret when arms change at their own times, and "
        "about a third when all change together.",
        "whim paper synthetic/disjoint --runs 100 --seed 0 --jobs 2",
        settings,
        differences=[
            "The paper does not say how long a context is; d = 5 is used here.",
            "The first full window seeds the model and reports no change, where the paper's "
            "pseudo-code would fire.",
        ],
        tables=[
            Table(
                "Regret after 20,000 steps",
                ["policy", "asynchronous", "synchronous", "saved against LinUCB", "found"],
                [
                    ["LinUCB", "2,312 [2,190, 2,431]", "1,988 [1,871, 2,102]", "–", "–"],
                    [
                        "PSLinUCB",
                        "1,118 [1,040, 1,197]",
                        "1,301 [1,220, 1,385]",
                        "52 %",
                        "78 of 90",
                    ],
                    ["oracle", "431 [402, 460]", "428 [399, 457]", "81 %", "90 of 90"],
                ],
                caption="Means with 95 % bootstrap intervals over 100 runs.",
                highlight=[1],
            )
        ],
        figures=[regret_figure("Asynchronous changes"), regret_figure("Synchronous changes")],
        headline=[
            ("Regret saved by PSLinUCB, asynchronous", "53 %", "52 % [48, 55]"),
            ("Regret saved by PSLinUCB, synchronous", "38 %", "35 % [31, 39]"),
        ],
        targets=[("asynchronous: half of the regret saved", True), ("synchronous: 38 %", False)],
        seconds=214.3,
    )


def yahoo() -> ExperimentResult:
    hours = np.arange(0, 48, dtype=float)
    policies = ["Random", "LinUCB", "dLinUCB", "D-LinUCB", "PSLinUCB", "PSLinUCB hybrid"]
    bins = []
    for n, label in enumerate(policies):
        rate = 0.036 + 0.004 * n + 0.006 * np.sin(hours / 5 + n / 3)
        low, high = (rate - 0.002).tolist(), (rate + 0.002).tolist()
        bins.append(Curve(label, hours.tolist(), rate.tolist(), low, high))
    windows = [50.0, 100.0, 200.0, 500.0, 1000.0, 2000.0]
    sensitivity = [
        Curve(f"threshold {t}", windows, [0.05 + k / 900 - (n - 2.5) ** 2 / 2000 for n in range(6)])
        for k, t in enumerate((0.015, 0.025, 0.05, 0.1))
    ]
    rows = [
        ["Random", "0.0361", "0.0358 [0.0355, 0.0361]", "–"],
        ["LinUCB (Li et al., 2010)", "0.0502", "0.0497 [0.0491, 0.0503]", "+38.8 %"],
        ["dLinUCB (Wu, Iyer and Wang, 2018)", "0.0511", "0.0508 [0.0502, 0.0514]", "+41.9 %"],
        ["PSLinUCB, disjoint", "0.0533", "0.0526 [0.0520, 0.0532]", "+46.9 %"],
        ["PSLinUCB, hybrid", "0.0548", "0.0541 [0.0535, 0.0547]", "+51.1 %"],
        ["Oracle of a day", "n/a", "−", "-3.2 %"],
    ]
    return ExperimentResult(
        "yahoo/table-1",
        "Yahoo! front page, click-through rates",
        "By replay, PSLinUCB has the highest click-through rate of the policies compared.",
        "whim paper yahoo/table-1 --sample 0.1 --seed 0",
        {"sample": 0.1, "seed": 0, "log": "r6a.whim", "events": 4_587_423},
        differences=["A tenth of the events is replayed; the paper replays them all."],
        warning="A made-up stand-in replaced the Yahoo! log, which only its owner hands out: these "
        "numbers say nothing about the paper's.",
        tables=[
            Table(
                "Table 1: click-through rate",
                ["policy", "paper", "Whim [95 %]", "against Random"],
                rows,
                caption="By replay over matched events; intervals by bootstrap over hours.",
                highlight=[3, 4],
            )
        ],
        figures=[
            Figure(
                "Click-through rate by hour",
                "hour of the log",
                "click-through rate",
                bins,
                caption="Six policies on the same events.",
            ),
            Figure(
                "How much window and threshold matter",
                "window ω (plays)",
                "click-through rate",
                [*sensitivity, Curve("paper's choice", [1000.0], [0.0533], style="reference")],
                x_log=True,
                caption="One run for each pair.",
            ),
        ],
        headline=[
            ("Best click-through rate (PSLinUCB hybrid)", "0.0548", "0.0541 [0.0535, 0.0547]")
        ],
        seconds=8211,
    )


def theorem() -> ExperimentResult:
    horizons = np.array([1e3, 3e3, 1e4, 3e4, 1e5, 3e5, 1e6])
    regret = 3.1 * horizons**0.52
    slope = Curve("slope ½", [1e3, 1e6], [80, 80 * math.sqrt(1e3)], style="reference")
    measured = Curve(
        "PSLinUCB",
        horizons.tolist(),
        regret.tolist(),
        (0.8 * regret).tolist(),
        (1.25 * regret).tolist(),
        style="points",
    )
    lin = 0.4 * horizons**0.95
    other = Curve(
        "LinUCB",
        horizons.tolist(),
        lin.tolist(),
        (0.9 * lin).tolist(),
        (1.1 * lin).tolist(),
        "points",
    )
    return ExperimentResult(
        "beyond/theorem",
        "Beyond the paper: regret grows as the theorem says",
        "On log-log axes PSLinUCB's regret has a slope of 0.52 [0.49, 0.55]; the theorem says ½.",
        "whim paper beyond/theorem",
        {"seed": 7},
        figures=[
            Figure(
                "Regret against horizon",
                "horizon T (steps)",
                "regret at T",
                [measured, other, slope],
                x_log=True,
                y_log=True,
            )
        ],
        headline=[("Exponent of regret in T", "0.5 (Theorem 1)", "0.52 [0.49, 0.55]")],
        targets=[("an exponent of at most 0.55", True)],
        seconds=31.04,
    )


def odd() -> ExperimentResult:
    """Every odd case at once."""
    long = "A policy whose label is so long that nobody would want it in a legend, " * 2
    x = [1.0, 2.0, 3.0, 4.0, 5.0]
    many = [Curve(f"policy {n}", x, [n + v for v in x]) for n in range(10)]
    figures = [
        Figure("Ten curves", "x", "y", many),
        Figure(
            "Negative & missing <values>",
            "x",
            "y",
            [
                Curve(
                    "gaps",
                    x,
                    [-1.0, NAN, -3.0, math.inf, 2.5],
                    [-2.0, NAN, -4.0, NAN, 2.0],
                    [0.0, NAN, -2.0, NAN, 3.0],
                ),
                Curve("one point", [2.0], [-2.5]),
                Curve(long, x, [0.0] * 5),
                Curve("nothing but NaN", x, [NAN] * 5),
            ],
        ),
        Figure(
            "Log axes with zeros",
            "δ ($)",
            "$\\bad_{math$ 100 %",
            [
                Curve(
                    "zeros", [0.0, 1e-6, 1.0, 1e6], [0.0, 1e-3, 2.0, 4e8], [0.0] * 4, [1, 1, 3, 1e9]
                )
            ],
            x_log=True,
            y_log=True,
        ),
        Figure(
            "Log axes without a positive value",
            "x",
            "y",
            [Curve("gaps", [0.0, -1.0], [-1.0, -2.0])],
            True,
            True,
        ),
        Figure("No curves", "x", "y", []),
        Figure("Constant", "x", "y", [Curve("same", x, [1_234_567.0] * 5, style="points")]),
    ]
    return ExperimentResult(
        "Odd/<b>ünïcode</b> 日本",
        "<script>alert('title')</script> & “quotes”",
        "Text with <b>tags</b>, an & and ünïcode 日本語 🙂.",
        "whim paper 'a & b' > \"out\" <in",
        {
            "<key>": "<value>",
            "none": None,
            "nested": {"deep": {"list": [1, 2.5, "x"]}, "empty": {}},
        },
        differences=["<i>none</i>"],
        warning='Mind the <gap> & "quotes".',
        tables=[
            Table("Empty", ["a", "b"], []),
            Table("No columns at all", [], []),
            Table(
                "Ragged & <bold>", ["a"], [["1", "2"], ["<td>x</td>"]], "cap & <i>tion</i>", [0, 7]
            ),
        ],
        figures=figures,
        headline=[("<b>label</b> " + long, "–", "[0.1, 0.2] <i>")],
    )


def every() -> list[ExperimentResult]:
    return [synthetic(), yahoo(), theorem(), odd()]
