"""Contexts become vectors as their schema says, and what does not fit is named by its path."""

import numpy as np
import pytest

from whim.errors import InvalidInputError
from whim.features.encoder import Encoder
from whim.serve.wire import Features, Field

SCHEMA = Features(
    fields=[
        Field(name="age", kind="number", mean=40.0, scale=10.0),
        Field(name="device", kind="choice", values=["phone", "desk"]),
        Field(name="member", kind="flag"),
        Field(name="tags", kind="hash", size=8),
    ],
    constant=True,
)


def test_each_kind_has_its_places_and_its_names():
    encoder = Encoder(SCHEMA, "$.context")
    x = encoder({"age": 45, "device": "desk", "member": True, "tags": ["a", "b"]})
    assert x[:4].tolist() == [0.5, 0.0, 1.0, 1.0]
    assert x[-1] == 1.0
    assert np.abs(x[4:12]).sum() in (0.0, 2.0)  # two texts may share a place and cancel
    assert encoder.names[:4] == ["age", "device=phone", "device=desk", "member"]
    assert len(encoder.names) == encoder.size == len(x) == 13


def test_what_is_missing_is_nothing_and_an_unknown_choice_is_none_of_them():
    encoder = Encoder(SCHEMA, "$.context")
    assert encoder({}).tolist() == [0.0] * 12 + [1.0]
    assert encoder({"device": "fridge"}).tolist() == [0.0] * 12 + [1.0]


def test_hashing_does_not_depend_on_the_process():
    encoder = Encoder(Features(rest=16), "$.context")
    x = encoder({"colour": "red", "size": 2.5, "likes": ["tea", "jazz"], "new": True, "no": None})
    assert (
        x.tolist()
        == encoder({"likes": ["tea", "jazz"], "new": True, "size": 2.5, "colour": "red"}).tolist()
    )
    assert np.flatnonzero(x).tolist() == [5, 6, 8, 13]  # on any machine, in any process
    assert np.abs(x[np.flatnonzero(x)]).tolist().count(1.0) == 3


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"age": "old"}, r"\$\.context\.age must be a number"),
        ({"age": True}, r"\$\.context\.age must be a number"),
        ({"age": float("nan")}, r"\$\.context\.age must be a number"),
        ({"age": 10**400}, r"\$\.context\.age must be a number"),
        ({"device": 3}, r"\$\.context\.device must be a text"),
        ({"member": 1}, r"\$\.context\.member must be true or false"),
        ({"tags": [1]}, r"\$\.context\.tags must be a text or a list"),
        (
            {"wealth": 1},
            r"\$\.context must be made of known features \(age, device, member, tags\)",
        ),
        ([1.0], r"\$\.context must be an object"),
    ],
)
def test_what_does_not_fit_is_named(given, said):
    with pytest.raises(InvalidInputError, match=said):
        Encoder(SCHEMA, "$.context")(given)


@pytest.mark.parametrize(
    "given", [[1.0], [1.0, 2.0, 3.0], "xy", {"a": 1}, [1.0, 1e11], [1.0, None]]
)
def test_vectors_have_their_length_and_size(given):
    encoder = Encoder(Features(size=2, constant=True), "$.context")
    assert encoder([3, 4.5]).tolist() == [3.0, 4.5, 1.0]
    with pytest.raises(InvalidInputError, match=r"\$\.context must be"):
        encoder(given)


def test_a_rebuild_leaves_out_what_no_field_names_any_more():
    assert Encoder(SCHEMA, "$.context")({"age": 40, "gone": 1}, lenient=True)[0] == 0.0


@pytest.mark.parametrize(
    "features",
    [
        Features(size=2, rest=3),
        Features(fields=[Field(name="a", kind="flag"), Field(name="a", kind="number")]),
        Features(fields=[Field(name="a", kind="choice")]),
        Features(fields=[Field(name="a", kind="choice", values=["x", "x"])]),
    ],
)
def test_schemas_that_mean_nothing_are_refused(features):
    with pytest.raises(InvalidInputError):
        Encoder(features, "$.context")


@pytest.mark.parametrize(
    ("schema", "given"),
    [
        (SCHEMA, [{"age": 45, "tags": ["a"]}, {"age": "x"}, [1.0], {"device": "desk"}, {"no": 1}]),
        (Features(rest=3), [{"a": 1e10}, {"a": [1e10, 1e10]}, {"b": True, "c": "x"}, {}]),
        (Features(rest=300), [{"a": 1.5}, {"a": {}}]),
        (Features(size=2, constant=True), [[1.0, 2.0], [3, 4.5]]),
        (Features(size=2), [[1.0, 2.0], [1.0], {}, [2e10, 0.0], [7e9, 7e9], [float("nan"), 0.0]]),
        (Features(size=2), [[1.0], [2.0]]),
        (Features(), [[], []]),
        (Features(size=2), []),
    ],
)
@pytest.mark.parametrize("lenient", [False, True])
def test_many_at_once_are_the_same_as_one_by_one(schema, given, lenient):
    encoder = Encoder(schema, "$.context")
    x, fits = encoder.many(given, lenient=lenient)
    assert x.shape == (len(given), encoder.size)
    for one, row, fit in zip(given, x, fits, strict=True):
        try:
            expected = encoder(one, lenient=lenient)
        except InvalidInputError:
            assert not fit
        else:
            assert fit
            assert row.tobytes() == expected.tobytes()
