"""Decision-service JSON of several slots, CCB's and slates', read into logs of lists."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import whim
from whim.cli.app import app
from whim.errors import InvalidInputError, LogFileError
from whim.evaluate import estimate_lists
from whim.logs import Log
from whim.logs.dsjson import BAD_LINE, EXPECTED
from whim.logs.dsjson_lists import SLATES, UNSEEN

ACTIONS = [
    {"_tag": "mocha", "i": {"constant": 1, "id": "mocha"}, "j": [{"roast": "light"}]},
    {"_tag": "latte", "i": {"constant": 1, "id": "latte"}, "j": [{"roast": "dark"}]},
    {"_tag": "tea", "i": {"constant": 1, "id": "tea"}, "j": [{"leaves": 2}]},
]
CCB: dict[str, Any] = {
    "Timestamp": "2026-04-26T17:23:28.1726275", "Version": "1", "EventId": "e",
    "c": {
        "weather": [{"sky": "sunny", "degrees": 21}], "_multi": ACTIONS,
        "_slots": [{"_id": "main"}, {"_id": "side"}],
    },
    "_outcomes": [
        {"_label_cost": -0.5, "_id": "main", "_a": [2, 0, 1], "_p": [0.5, 0.25, 0.25],
         "_o": [{"v": 0.5, "EventId": "e", "Index": "main", "ActionTaken": False}],
         "_original_label_cost": -0.5},
        {"_label_cost": 0.0, "_id": "side", "_a": [0, 1], "_p": [0.75, 0.25], "_o": []},
    ],
    "_ba": [1, 2], "VWState": {"m": "N/A"},
}  # fmt: skip
ONE: dict[str, Any] = {
    "_label_cost": -1, "_label_probability": 0.8, "_label_Action": 2, "_labelIndex": 1,
    "Timestamp": "2026-04-26T17:23:30Z", "EventId": "f", "a": [2, 1, 3], "p": [0.8, 0.1, 0.1],
    "c": {"weather": {"sky": "rainy"}, "_multi": ACTIONS},
}  # fmt: skip
SLATE: dict[str, Any] = {
    "_label_cost": -3.0, "Timestamp": "2026-04-26T17:23:31Z", "EventId": "g",
    "c": {
        "weather": {"sky": "sunny"},
        "_multi": [
            {"_tag": "red", "_slot_id": 0}, {"_tag": "square", "_slot_id": 1},
            {"_tag": "blue", "_slot_id": 0}, {"_tag": "circle", "_slot_id": 1},
        ],
        "_slots": [{"_id": "colour"}, {"_id": "shape"}],
    },
    "_outcomes": [
        {"_id": "colour", "_a": [1, 0], "_p": [0.5, 0.5]},
        {"_id": "shape", "_a": 0, "_p": 0.25},
    ],
}  # fmt: skip


def read(folder: Path, *lines: Any, **options: Any) -> Log:
    text = "\n".join(each if isinstance(each, str) else json.dumps(each) for each in lines)
    (folder / "day.dsjson").write_text(text + "\n")
    return whim.logs.convert(folder / "day.dsjson", folder / "day.whim", overwrite=True, **options)


def but(line: dict[str, Any], *changes: tuple[str, Any]) -> dict[str, Any]:
    """A line with other values at paths such as ``_outcomes.1._p``; ``...`` takes one away."""
    found = json.loads(json.dumps(line))
    for path, value in changes:
        *way, last = (int(name) if name.isdecimal() else name for name in path.split("."))
        inner = found
        for name in way:
            inner = inner[name]
        if value is ...:
            del inner[last]
        else:
            inner[last] = value
    return found


def test_a_ccb_line_is_a_list(tmp_path: Path) -> None:
    log = read(tmp_path, CCB)
    assert (log.has_lists, log.n_events, log.logging) == (True, 1, "propensity")
    shown = log.shown_list(0)
    assert shown.arms == log.arms == ["mocha", "latte", "tea"]
    assert (shown.shown, shown.rewards, shown.reward) == (["tea", "mocha"], [0.5, 0.0], 0.5)
    assert shown.time == 1777224208
    assert log.meta["context_names"] == ["weather.sky=sunny", "weather.degrees"]
    assert shown.x.tolist() == [1.0, 21.0]
    assert log.meta["item_names"] == ["j.roast=light", "j.roast=dark", "j.leaves"]
    assert shown.features.tolist() == [[1, 0, 0], [0, 1, 0], [0, 0, 2]]
    assert shown.prefix_probabilities == [0.5, 0.375]
    # that of the side slot is given the main one: over all lists only the top's is known
    assert shown.probabilities is not None
    assert shown.probabilities[0] == 0.5
    assert math.isnan(shown.probabilities[1])
    assert log.meta["warnings"] == {}


def test_single_decisions_among_lists_are_lists_of_one(tmp_path: Path) -> None:
    log = read(tmp_path, ONE, CCB, ONE)
    one = log.shown_list(2)
    assert (log.n_events, one.shown, one.rewards) == (3, ["latte"], [1.0])
    assert (one.probabilities, one.prefix_probabilities) == ([0.8], [0.8])
    assert not read(tmp_path, ONE, ONE).has_lists


@pytest.mark.parametrize("as_text", [False, True])
def test_lists_are_found_where_features_are_hashed(tmp_path: Path, as_text: bool) -> None:
    line = json.dumps(CCB)
    if as_text:  # the same JSON
        line = line.replace('"_outcomes"', '"\\u005foutcomes"')
    log = read(tmp_path, ONE, line, size=8, item_size=4)
    assert log.has_lists
    assert log.shown_list(1).shown == ["tea", "mocha"]
    assert not read(tmp_path, ONE, size=8, item_size=4).has_lists


def test_what_whims_own_export_says_besides_is_taken(tmp_path: Path) -> None:
    own = but(
        CCB, ("_outcomes.0._probability", 0.5), ("_outcomes.0._prefix_probability", 0.5),
        ("_outcomes.1._probability", 0.6), ("_outcomes.1._prefix_probability", 0.3750001),
    )  # fmt: skip
    shown = read(tmp_path, own).shown_list(0)
    assert shown.probabilities == [0.5, 0.6]
    assert shown.prefix_probabilities == [0.5, 0.3750001]


def test_a_slot_without_a_cost_earned_nothing_and_is_counted(tmp_path: Path) -> None:
    log = read(tmp_path, but(CCB, ("_outcomes.1._label_cost", ...)))
    assert log.shown_list(0).rewards == [0.5, 0.0]
    assert log.meta["warnings"] == {UNSEEN: 1}


def test_slots_drawn_evenly_need_no_probabilities(tmp_path: Path) -> None:
    line = but(CCB, ("_outcomes.0._p", ...), ("_outcomes.1._p", ...))
    log = read(tmp_path, line, logging="uniform")
    assert (log.logging, log.list_probability) == ("uniform", None)
    with pytest.raises(LogFileError, match="no event could be read"):
        read(tmp_path, line)


# -- what differs between slots -----------------------------------------------------------------

LARGE = [("c._slots.0.size", "large"), ("c._slots.1.size", "small")]


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        (LARGE, "slot_features"),
        ([("c._slots.1._inc", [0, 1])], "slot_candidates"),
        ([("c._slots.1._inc", "0")], "slot_candidates"),
    ],
)
def test_what_a_log_does_not_hold_is_left_out_unless_ignored(
    tmp_path: Path, changes: list[tuple[str, Any]], reason: str
) -> None:
    line = but(CCB, *changes)
    log = read(tmp_path, CCB, line, strict=True)
    assert (log.n_events, log.meta["dropped"]) == (1, {EXPECTED[reason]: 1})
    log = read(tmp_path, CCB, line, ignore_slots=True)
    assert (log.n_events, log.meta["dropped"]) == (2, {})
    one, other = log.shown_list(0), log.shown_list(1)
    assert (one.shown, one.arms, one.x.tolist()) == (other.shown, other.arms, other.x.tolist())
    with pytest.raises(LogFileError, match=r"1 × slots with .* \(ignore_slots=true"):
        read(tmp_path, line)


@pytest.mark.parametrize("included", [[], [2, 1, 0]])
def test_all_actions_are_no_exclusion(tmp_path: Path, included: list[int]) -> None:
    assert read(tmp_path, but(CCB, ("c._slots.0._inc", included))).n_events == 1


def test_features_of_an_only_slot_join_the_context(tmp_path: Path) -> None:
    line = but(
        CCB, ("c._slots", [{"_id": "main", "size": "large"}]), ("_outcomes", CCB["_outcomes"][:1])
    )
    log = read(tmp_path, line)
    assert log.meta["context_names"][-1] == "size=large"
    assert (log.shown_list(0).shown, log.context.tolist()) == (["tea"], [[1.0, 21.0, 1.0]])


def test_slates_have_the_reward_of_the_whole_list(tmp_path: Path) -> None:
    log = read(tmp_path, SLATE)
    shown = log.shown_list(0)
    assert shown.arms == ["red", "square", "blue", "circle"]
    assert (shown.shown, shown.reward) == (["blue", "square"], 3.0)
    assert np.isnan(shown.rewards).all()
    assert (shown.probabilities, shown.prefix_probabilities) == ([0.5, 0.25], [0.5, 0.125])
    assert log.meta["warnings"] == {SLATES: 1}
    with pytest.raises(InvalidInputError, match="estimate_lists"):
        whim.replay(log, {"random": whim.Random()})


# -- damage -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (but(CCB, ("_outcomes", ...)), "outcomes"),
        (but(CCB, ("_outcomes", [])), "outcomes"),
        (but(CCB, ("_outcomes", CCB["_outcomes"][:1])), "outcomes"),
        (but(CCB, ("_outcomes.1", 7)), "outcomes"),
        (but(CCB, ("_outcomes.1._id", "main")), "outcomes"),
        (but(CCB, ("c._slots", ...)), "outcomes"),
        (but(ONE, ("c._slots", [])), "outcomes"),
        (but(CCB, ("_outcomes.0._a", [3, 0])), "action"),
        (but(CCB, ("_outcomes.0._a", [])), "action"),
        (but(CCB, ("_outcomes.0._a", True)), "action"),
        (but(CCB, ("_outcomes.1._a", [2])), "twice"),
        (but(CCB, ("_outcomes.0._label_cost", "1")), "cost"),
        (but(CCB, ("_outcomes.0._label_cost", ...), ("_outcomes.1._label_cost", ...)), "cost"),
        (but(CCB, ("_outcomes.1._p", [0.0])), "propensity"),
        (but(CCB, ("_outcomes.1._p", ...)), "propensity"),
        (but(CCB, ("_outcomes.1._prefix_probability", 2)), "propensity"),
        (but(CCB, ("_outcomes.1._prefix_probability", 0.6)), "prefix"),
        (but(CCB, ("_outcomes.1._probability", 0.3)), "prefix"),
        (but(CCB, ("c._slots.0.size", 1e11)), "features"),
        (but(SLATE, ("c._multi.1._slot_id", ...)), "slot_id"),
        (but(SLATE, ("c._multi.1._slot_id", 2)), "slot_id"),
        (but(SLATE, ("_outcomes.0._a", [2])), "action"),
        (but(SLATE, ("_label_cost", ...)), "cost"),
    ],
)
def test_each_kind_of_bad_line(tmp_path: Path, line: dict[str, Any], reason: str) -> None:
    log = read(tmp_path, CCB, line, CCB)
    assert (log.n_events, log.meta["dropped"]) == (2, {BAD_LINE[reason]: 1})
    with pytest.raises(LogFileError, match=r"day\.dsjson, line 2: "):
        read(tmp_path, CCB, line, CCB, strict=True)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ({"RewardValue": 1.0, "EventId": "e", "EnqueuedTimeUtc": "2026"}, "dangling"),
        (but(CCB, ("_skipLearn", True)), "skipped"),
        (but(CCB, ("pdrop", 1)), "dropped"),
    ],
)
def test_what_a_sound_log_holds_besides(tmp_path: Path, line: dict[str, Any], reason: str) -> None:
    log = read(tmp_path, CCB, line, CCB, strict=True)
    assert (log.n_events, log.meta["dropped"]) == (2, {EXPECTED[reason]: 1})


# -- estimates ----------------------------------------------------------------------------------

RATES = {"a": 0.7, "b": 0.4, "c": 0.2}


def drawn_one_after_another(n: int) -> list[dict[str, Any]]:
    """Visits in which what stands in the second slot depends on the first one's."""
    rng, rates = np.random.default_rng(0), list(RATES.values())
    multi, strength, lines = [{"_tag": arm} for arm in RATES], np.array([2.0, 1.5, 1.0]), []
    for _ in range(n):
        left, outcomes, clicked = [0, 1, 2], [], False
        for _slot in range(2):
            chances = strength[left] / strength[left].sum()
            first = int(rng.choice(len(left), p=chances))
            order = [first, *(i for i in range(len(left)) if i != first)]
            click = not clicked and bool(rng.random() < rates[left[first]])  # stops at a click
            clicked = clicked or click
            outcomes.append({
                "_label_cost": -float(click), "_a": [left[i] for i in order],
                "_p": chances[order].tolist(),
            })  # fmt: skip
            del left[first]
        lines.append({"c": {"_multi": multi, "_slots": [{}, {}]}, "_outcomes": outcomes})
    return lines


def test_estimates_that_need_more_than_prefixes_are_unknown(tmp_path: Path) -> None:
    log = read(tmp_path, *drawn_one_after_another(1500))
    found = estimate_lists(log, lambda event: ["b", "a"])
    truth = RATES["b"] + (1 - RATES["b"]) * RATES["a"]
    for name in ("rips", "cdr", "ips"):
        assert found[name].interval.low < truth < found[name].interval.high, name
    assert found["slots"].support.problem == (
        "the log does not have all probabilities of items at their positions"
    )
    assert "how whole lists were drawn" in str(found["pi"].support.problem)
    top = estimate_lists(log, lambda event: ["b", "a"], k=1)["slots"]
    assert top.interval.low < RATES["b"] < top.interval.high
    [run] = whim.replay(log, {"ucb": whim.UCB()}).runs["ucb"]
    assert set(run.estimates()) == {"rips", "cdr", "ips"}


def test_slates_are_estimated_by_the_pseudo_inverse(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    worth, lines = [[0.0, 1.0], [2.0, 0.5]], []
    for _ in range(800):
        shown = [int(rng.random() < 0.6), int(rng.random() < 0.3)]
        reward = worth[0][shown[0]] + worth[1][shown[1]] + rng.normal(scale=0.1)
        chances = [[0.4, 0.6][shown[0]], [0.7, 0.3][shown[1]]]
        outcomes = [{"_a": [a], "_p": [p]} for a, p in zip(shown, chances, strict=True)]
        lines.append(but(SLATE, ("_label_cost", -reward), ("_outcomes", outcomes)))
    log = read(tmp_path, *lines)
    found = estimate_lists(log, lambda event: ["blue", "square"])  # colour 1, shape 0
    for name in ("pi", "ips"):
        assert found[name].interval.low < 3.0 < found[name].interval.high, name
    assert found["rips"].support.problem == "the log has rewards of whole lists alone"


# -- on the command line ------------------------------------------------------------------------


def test_convert_on_the_command_line(tmp_path: Path) -> None:
    text = "\n".join(map(json.dumps, [CCB, ONE, but(CCB, *LARGE)])) + "\n"
    (tmp_path / "ccb.dsjson").write_text(text)
    asked = ["convert", str(tmp_path / "ccb.dsjson"), "--to", str(tmp_path / "x.whim")]
    made = CliRunner().invoke(app, asked)
    assert made.exit_code == 0, made.output
    assert "2 lists of 3 items, 3 arms" in made.stdout
    assert f"1  {EXPECTED['slot_features']}" in made.stdout
    again = [*asked, "--overwrite", "--json", "--option", "ignore-slots=true"]
    told = json.loads(CliRunner().invoke(app, again).stdout)
    assert (told["reader"], told["events"], told["shown_items"]) == ("dsjson", 3, 5)
    wrong = CliRunner().invoke(app, [*asked, "--overwrite", "--list", "visit"])
    assert str(wrong.exception) == "list is no option of format dsjson."


SHOWN = """visit,rank,item,click,age,p,prefix,pool
1,2,b,1,0.5,0.4,0.2,a|b|c
1,1,c,0,0.5,0.5,0.5,a|b|c
2,1,a,1,0.7,0.5,0.5,a|b
"""


def test_a_table_of_shown_items_on_the_command_line(tmp_path: Path) -> None:
    (tmp_path / "shown.csv").write_text(SHOWN)
    asked = ["convert", str(tmp_path / "shown.csv"), "--to", str(tmp_path / "shown.whim")]
    columns = ["--list", "visit", "--position", "rank", "--arm", "item", "--reward", "click"]
    columns += ["--context", "age", "--candidates", "pool"]
    chances = ["--propensity", "p", "--prefix-propensity", "prefix"]
    made = CliRunner().invoke(app, [*asked, *columns, *chances])
    assert made.exit_code == 0, made.output
    assert "2 lists of 3 items, 3 arms, 2 pools; logging propensity" in made.stdout
    first = whim.logs.open(tmp_path / "shown.whim").shown_list(0)
    assert (first.shown, first.arms, first.rewards) == (["c", "b"], ["a", "b", "c"], [0.0, 1.0])
    assert (first.probabilities, first.prefix_probabilities) == ([0.5, 0.4], [0.5, 0.2])
    half = CliRunner().invoke(app, [*asked, "--overwrite", *columns, *chances[:2]])
    assert str(half.exception) == "propensity and prefix_propensity must be given both or neither."
    missing = CliRunner().invoke(app, [*asked, "--overwrite", "--list", "visit", "--arm", "item"])
    assert str(missing.exception) == "format csv needs reward, context, or label."
