"""The rules of the contract for lists of several arms."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import numpy as np

from whim.errors import InvalidInputError
from whim.testing.driving import ARMS, Factory, contexts, cross_rows, made, refused

_K = 3


def a_list_of_one_is_a_decision(factory: Factory, steps: int) -> None:
    lists, single = made(factory), made(factory)
    rng = np.random.default_rng(19)
    for t, x in enumerate(contexts(single, steps // 5, 6)):
        Z = cross_rows(single, len(ARMS), rng)
        one = single.select(x, cross=Z)
        shown = lists.select_list(x, k=1, cross=Z)
        numbers = ([one.arm], [one.score], [one.mean], [one.width])
        assert shown == numbers, f"k = 1 shows what select chooses, got {shown} for {one}"
        place = ARMS.index(one.arm)
        reward = math.sin(place + t // 20) + 0.1 * float(rng.normal())
        event = single.update(one.arm, x, reward, cross=None if Z is None else Z[place])
        row = None if Z is None else Z[[place]]
        events = lists.update_list([one.arm], x, [reward], cross=row)
        assert events == ([] if event is None else [event]), "and reports the same changes"
    assert lists.to_bytes() == single.to_bytes(), "the same state, to the last bit"


def a_list_is_learnt_as_it_was_seen(factory: Factory, steps: int) -> None:
    for feedback in ("semi", "cascade"):
        whole, loop = made(factory), made(factory)
        rng = np.random.default_rng(23)
        for t, x in enumerate(contexts(whole, steps // 5, 7)):
            Z = cross_rows(whole, len(ARMS), rng)
            shown = whole.select_list(x, k=_K, cross=Z)
            assert shown == loop.select_list(x, k=_K, cross=Z), "the same lists are shown"
            assert len(set(shown.arms)) == _K, "k different arms"
            assert shown.scores == sorted(shown.scores, reverse=True), "the best at the top"
            places = [ARMS.index(arm) for arm in shown.arms]
            level = 0.5 + 0.4 * np.sin(np.array(places) + t // 20)
            clicks = (rng.random(_K) < level).astype(float)
            rows = None if Z is None else Z[places]
            events = whole.update_list(shown.arms, x, clicks, feedback=feedback, cross=rows)
            expected = []
            for i, arm in enumerate(shown.arms):
                row = None if rows is None else rows[i]
                event = loop.update(arm, x, float(clicks[i]), cross=row)
                expected += [] if event is None else [event]
                if feedback == "cascade" and clicks[i] > 0:
                    break
            assert events == expected, f"{feedback}: the changes of a loop of update"
        assert whole.to_bytes() == loop.to_bytes(), f"{feedback}: its state, to the last bit"


def bad_lists_are_refused_and_harmless(factory: Factory, steps: int) -> None:
    policy = made(factory)
    x = contexts(policy, 1, 8)[0]
    rng = np.random.default_rng(29)
    Z = cross_rows(policy, len(ARMS), rng)
    two = None if Z is None else Z[:2]
    policy.update_list(ARMS[:2], x, [0.0, 1.0], cross=two)
    bad_sizes: list[Any] = [0, -1, 1.5, "2", None, True]
    for k in bad_sizes:
        choose = partial(policy.select_list, x, k=k, cross=Z)
        refused(policy, choose, InvalidInputError, f"k = {k!r}")
    assert len(policy.select_list(x, k=99, cross=Z).arms) == len(ARMS), "k may exceed the arms"
    learn = partial(policy.update_list, x=x, cross=two)
    others: dict[str, Any] = {
        "no items": partial(policy.update_list, [], x, []),
        "an arm twice": partial(learn, ["a", "a"], rewards=[0.0, 1.0]),
        "fewer rewards than items": partial(learn, ["a", "b"], rewards=[1.0]),
        "a reward of nan": partial(learn, ["a", "b"], rewards=[0.0, math.nan]),
        "another feedback": partial(learn, ["a", "b"], rewards=[0, 1], feedback="clicks"),
        "no chances of being seen": partial(
            learn, ["a", "b"], rewards=[0, 1], feedback="positions"
        ),
    }
    for what, call in others.items():
        refused(policy, call, InvalidInputError, what)


LIST_RULES = (
    a_list_of_one_is_a_decision,
    a_list_is_learnt_as_it_was_seen,
    bad_lists_are_refused_and_harmless,
)
