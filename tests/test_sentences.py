"""A change in one sentence: who, which way, and nothing that the coefficients do not say."""

from __future__ import annotations

import math

import pytest

from tests.made_changes import POLICIES, counted
from whim.serve import wire
from whim.serve.dashboard.changes import change_view
from whim.serve.dashboard.sentences import Known, change_sentence
from whim.serve.state.space_state import SpaceState
from whim.serve.state.stats import ArmCounts
from whim.serve.wire import Features, Field

DEVICE = Field(name="device", kind="choice", values=["phone", "desktop"])
COUNTRY = Field(name="country", kind="choice", values=["DE", "FR", "it-south"])
HOUR = Field(name="hour", kind="number", mean=12.0, scale=6.0)
AGE = Field(name="age", kind="number")
MEMBER = Field(name="membership", kind="flag")
TAGS = Field(name="tags", kind="hash", size=2)
# as ``whim convert`` makes them
GAPPY = Field(name="device", kind="choice", values=["phone", "desktop"], missing=True)
LISTED = Field(name="country", kind="choice", values=["DE", "FR"], other=True, missing=True)
CLOCK = Field(name="hour", kind="cyclic", period=24.0)
WAVES = Field(name="hour", kind="cyclic", period=24.0, harmonics=2)
MONTH = Field(name="month", kind="cyclic", period=12.0)
PHASE = Field(name="phase", kind="cyclic", period=29.53)
OLD = Field(name="age", kind="number", mean=40.0, scale=10.0, missing=True)


@pytest.mark.parametrize(
    ("fields", "constant", "direction", "said"),
    [
        ([DEVICE], False, [0.0, 1.0], "Desktop readers now like travel more."),
        ([DEVICE], False, [-0.9, -0.1], "Phone readers now like travel less."),
        ([DEVICE], False, [0.7, 0.6], "Readers now like travel more."),
        ([DEVICE], True, [0.4, 0.4, -0.8], "Readers now like travel less."),  # less for both
        ([DEVICE], False, [0.7, -0.7], "Phone readers now like travel more, desktop readers less."),
        ([COUNTRY], True, [0.9, 0, 0, 0], "Readers whose country is DE now like travel more."),
        ([HOUR], True, [-1.0, 0.1],
         "Readers whose hour is low now like travel more, those whose hour is high less."),
        ([AGE], True, [1.0, 0.1], "Readers whose age is high now like travel more."),
        ([MEMBER], True, [0.9, 0.0], "Readers marked “membership” now like travel more."),
        ([TAGS], True, [0.9, 0.1, 0.2], "Readers now like travel differently, depending on tags."),
    ],
)  # fmt: skip
def test_named_features(
    fields: list[Field], constant: bool, direction: list[float], said: str
) -> None:
    lead, rest = change_sentence(direction, Features(fields=fields, constant=constant))
    assert f"{lead} travel {rest}." == said


@pytest.mark.parametrize(
    ("fields", "constant", "direction", "said"),
    [
        ([GAPPY], True, [0.9, 0.0, 0.0, 0.0], "Phone readers now like travel more."),
        ([GAPPY], True, [0.1, 0.0, 0.0, 0.9], "Readers now like travel more."),
        ([GAPPY], False, [0.7, 0.6, 0.0], "Readers now like travel more."),  # few are unknown
        ([GAPPY], False, [0.0, 0.1, -0.9], "Readers whose device is unknown now like travel less."),
        ([GAPPY], False, [0.7, 0.0, -0.7],
         "Phone readers now like travel more."),  # nothing is told of the few
        ([LISTED], True, [0.0, 0.1, 0.9, 0.0, 0.0],
         "Readers whose country is not listed now like travel more."),
        ([CLOCK], True, [0.9, 0.0, 0.0],
         "Readers whose hour is around 6 now like travel more, those whose hour is around 18 "
         "less."),
        ([CLOCK], True, [0.0, -0.9, 0.9], "Readers whose hour is around 12 now like travel more."),
        ([CLOCK], True, [0.1, -0.1, 0.9], "Readers now like travel more."),
        ([WAVES], True, [0.0, -0.5, 0.0, 0.5, 0.3],
         "Readers whose hour is around 12 now like travel more."),
        ([MONTH], True, [0.0, 0.5, 0.5], "Readers whose month is around 12 now like travel more."),
        ([PHASE], True, [0.5, 0.0, 0.5],
         "Readers whose phase is around 7.38 now like travel more."),
        ([OLD], True, [0.1, 0.0, 0.9], "Readers now like travel more."),
        ([OLD], True, [0.0, -0.9, 0.0], "Readers whose age is unknown now like travel less."),
        ([WAVES, GAPPY, OLD], True, [0.0] * 4 + [0.0, -0.9, 0.0] + [0.1, 0.0] + [0.1],
         "Desktop readers now like travel less."),
    ],
)  # fmt: skip
def test_fields_as_a_converted_log_has_them(
    fields: list[Field], constant: bool, direction: list[float], said: str
) -> None:
    features = Features(fields=fields, constant=constant)
    lead, rest = change_sentence(direction, features)
    assert f"{lead} travel {rest}." == said


def test_flags_and_hashes_with_missing_values() -> None:
    fields = [
        Field(name="member", kind="flag", missing=True),
        Field(name="query", kind="hash", size=2, missing=True),
    ]
    features = Features(fields=fields, constant=True)
    lead, rest = change_sentence([0.9, 0.0, 0.0, 0.1, 0.0, 0.0], features)
    assert (lead, rest) == ("Readers marked “member” now like", "more")
    assert change_sentence([0.0, 0.0, 0.1, -0.9, 0.1, 0.0], features) == (
        "Readers now like", "differently, depending on query",
    )  # fmt: skip
    assert change_sentence([0.0, 0.0, 0.0, 0.0, -0.9, 0.1], features) == (
        "Readers whose query is unknown now like", "less",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("features", "direction", "rest"),
    [
        (Features(size=1), [-1.0], "less"),
        (None, [0.3], "more"),  # a mean reward
        (Features(size=2), [0.1, -0.9], "differently, depending on x[1]"),
        (Features(size=2, constant=True), [0.1, 0.2, 0.9], "more"),
        (Features(rest=2), [0.8, 0.1], "differently, depending on other features"),
        (Features(size=3), [0.1, 0.2], "differently"),
        (None, [0.1, 0.2], "differently"),
        (Features(size=2), [math.nan, 0.2], "differently"),
        (Features(size=2), [None, 0.2], "differently"),
        (Features(size=2), [0.0, 0.0], "differently"),
        (Features(size=2), [], "differently"),
    ],
)  # fmt: skip
def test_features_without_names(
    features: Features | None, direction: list[float | None], rest: str
) -> None:
    assert change_sentence(direction, features) == ("Readers now like", rest)


@pytest.mark.parametrize(
    ("fields", "constant", "moved", "noise", "said"),
    [
        ([DEVICE], True, [-0.5, 0.5, 0.9], 0.1, ("Readers now like", "more")),
        ([DEVICE], True, [-0.5, 0.5, 0.9], 0.01, ("Desktop readers now like", "more")),
        ([DEVICE], True, [-0.5, 0.5, 0.0], 0.1, ("Readers now like", "differently")),
        ([CLOCK], True, [0.9, 0.3, -1.8], 0.1, ("Readers now like", "less")),
        ([CLOCK], True, [1.9, 0.3, -1.8], 0.1,
         ("Readers whose hour is around 17 now like", "less")),
        ([MEMBER], True, [0.9, -0.6], 0.1, ("Readers now like", "differently")),
        ([MEMBER], True, [1.9, 0.6], 0.1, ("Readers marked “membership” now like", "more")),
        ([HOUR], True, [0.5, 0.8], 0.1, ("Readers now like", "more")),
        ([HOUR], True, [1.5, 0.8], 0.1, ("Readers whose hour is high now like", "more")),
        ([TAGS], True, [0.5, 0.5, 0.8], 0.1, ("Readers now like", "more")),
        ([TAGS], True, [1.5, 0.5, 0.8], 0.1,
         ("Readers now like", "differently, depending on tags")),
        ([GAPPY], True, [0.0, 0.0, 2.0, 0.8], 0.1, ("Readers now like", "more")),
        ([GAPPY], True, [0.0, 0.0, 9.0, 0.8], 0.1,
         ("Readers whose device is unknown now like", "more")),
        ([GAPPY], True, [0.0, 0.0, 9.0, 0.8], math.inf, ("Readers now like", "differently")),
    ],
)  # fmt: skip
def test_who_is_named_only_if_chance_would_not_look_like_it(
    fields: list[Field], constant: bool, moved: list[float], noise: float, said: tuple[str, str]
) -> None:
    features = Features(fields=fields, constant=constant)
    lead, rest = change_sentence(moved, features, Known(noise, 50))
    assert (lead, rest.split(",")[0] if "depending" not in rest else rest) == said


@pytest.mark.parametrize(
    ("features", "moved", "said"),
    [
        (Features(size=2, constant=True), [0.4, 0.4, 0.8], "more"),
        (Features(size=2, constant=True), [0.4, 1.4, 0.8], "differently, depending on x[1]"),
        (Features(rest=2, constant=True), [0.6, 0.5, 0.8], "more"),
        (Features(rest=2, constant=True), [1.9, 0.5, 0.8],
         "differently, depending on other features"),
        (Features(size=2), [0.1, 0.2], "differently"),
    ],
)  # fmt: skip
def test_features_without_names_and_chance(
    features: Features, moved: list[float], said: str
) -> None:
    assert change_sentence(moved, features, Known(0.1, 50)) == ("Readers now like", said)


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("places", [4, 12])
def test_the_right_readers_are_named(policy: str, places: int) -> None:
    """Of changes of all readers up to 38 % named somebody; ``tests.slow.sentences`` counts more."""
    everybody = counted(5, policy, places, group=False, runs=30)
    assert everybody.total() >= 20
    assert everybody["wrong"] <= 1
    kind = counted(5, policy, places, group=True, runs=30)
    assert kind["wrong"] <= 1
    assert kind["right"] >= (0.5 if policy == "pslinucb-disjoint" else 0.2) * kind.total()


def test_the_page_counts_observations() -> None:
    config = wire.SpaceConfig(context=Features(fields=[DEVICE], constant=True))
    state = SpaceState(config)
    state.stats.arms["a"] = ArmCounts(decisions=600, closed=600, total=300.0, squares=300.0)
    event = {
        "arm": "a", "theta_before": [0.1, 0.2, 0.2], "theta_after": [0.0, 0.5, 0.4],
        "direction": [-0.27, 0.8, 0.53], "plays": 600, "group": None, "p_value": 1e-6,
    }  # fmt: skip
    few, many, none = (
        change_view(1, 1, {**event, "window": window}, state) for window in (22, 300, 0)
    )
    assert (few["lead"], few["rest"]) == ("Readers now like", "more")
    assert many["lead"] == "Desktop readers now like"
    assert (none["lead"], none["rest"]) == ("Readers now like", "differently")
    gone = change_view(1, 1, {**event, "window": 300, "arm": "b"}, state)
    assert (gone["lead"], gone["rest"]) == ("Readers now like", "differently")


def test_long_names_are_cut() -> None:
    lead, _ = change_sentence([1.0], Features(fields=[Field(name="x" * 500, kind="number")]))
    assert len(lead) < 100
