"""``check_policy``: the contract as a suite that every policy passes, and yours can.

Each check is a function of a factory; a broken rule raises ``AssertionError`` that names it.
"""

from __future__ import annotations

from whim.policies import Policy
from whim.testing.driving import Factory
from whim.testing.list_rules import LIST_RULES
from whim.testing.rules import RULES

__all__ = ["check_policy"]

_CHECKS = (*RULES, *LIST_RULES)


def check_policy(factory: Factory, *, steps: int = 300) -> list[str]:
    """Hold a policy to the contract.

    Parameters
    ----------
    factory
        Makes a fresh policy with no arms, the same one each time.
    steps
        Plays in the checks that learn; a policy with windows should fill them in fewer.

    Returns
    -------
    list
        The names of the rules that were checked, all of which held.

    Examples
    --------
    >>> import whim
    >>> from whim.testing import check_policy
    >>> passed = check_policy(lambda: whim.LinUCBDisjoint(n_features=3))
    >>> "saving_continues_bit_for_bit" in passed
    True
    """
    policy = factory()
    assert isinstance(policy, Policy), f"factory must make a Policy, got {policy!r}"
    assert not policy.arms, "factory must make a policy with no arms"
    for check in _CHECKS:
        try:
            check(factory, steps)
        except AssertionError as error:
            raise AssertionError(f"{check.__name__}: {error}") from error
    return [check.__name__ for check in _CHECKS]
