"""Files saved before this version are loaded and continued with the same bits."""

from __future__ import annotations

import json

import pytest

import whim
from tests.saved_policies import FOLDER, NAMES, continued

EXPECTED = json.loads((FOLDER / "expected.json").read_text())


@pytest.mark.parametrize("name", NAMES)
def test_a_policy_saved_by_earlier_code_goes_on_as_it_did(name: str) -> None:
    policy, expected = whim.load(FOLDER / f"{name}.policy"), EXPECTED[name]
    assert continued(policy, expected.get("same")) == expected
