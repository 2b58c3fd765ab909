"""A change in one sentence: who, which way, and nothing that the coefficients do not say."""

from __future__ import annotations

import math

import pytest

from whim.serve.dashboard.sentences import change_sentence
from whim.serve.wire import Features, Field

DEVICE = Field(name="device", kind="choice", values=["phone", "desktop"])
COUNTRY = Field(name="country", kind="choice", values=["DE", "FR", "it-south"])
HOUR = Field(name="hour", kind="number", mean=12.0, scale=6.0)
AGE = Field(name="age", kind="number")
MEMBER = Field(name="membership", kind="flag")
TAGS = Field(name="tags", kind="hash", size=2)


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


def test_long_names_are_cut() -> None:
    lead, _ = change_sentence([1.0], Features(fields=[Field(name="x" * 500, kind="number")]))
    assert len(lead) < 100
