"""``WaitingList``: a list whose rewards may still come, and what is learnt from it at the end."""

from __future__ import annotations

from typing import Any, NamedTuple

from msgspec import UNSET, Struct

from whim.checks import LARGEST
from whim.errors import InvalidInputError
from whim.policies import Policy
from whim.policies.base.contextfree import ContextFreePolicy
from whim.policies.base.lists import plays
from whim.serve.log.rows import ListPart
from whim.serve.wire import ListRules, RewardBody, SpaceConfig

CASCADE = ListRules()  # of a space that says nothing else


def list_rules(config: SpaceConfig) -> ListRules:
    """How lists of a space are learnt from."""
    return CASCADE if config.list is UNSET else config.list


def check_list_rules(config: SpaceConfig, policy: Policy) -> None:
    """Raise unless ``examine`` comes with the feedback that needs it, and only then."""
    rules = list_rules(config)
    free = isinstance(policy, ContextFreePolicy) or not (
        policy.n_features or policy.n_item_features
    )
    if rules.feedback == "positions" and free:
        raise InvalidInputError(
            "$.list.feedback must be cascade or semi: a chance of being seen scales features, and "
            f"{config.policy} learns from rewards alone, got positions."
        )
    if (rules.feedback == "positions") != bool(rules.examine):
        raise InvalidInputError(
            "$.list.examine must hold a probability for each position with the feedback "
            f"positions, and be left out with others, got {len(rules.examine)} with "
            f"{rules.feedback}."
        )


class Play(NamedTuple):
    """One item as it is learnt; ``seen`` is how likely it was seen."""

    item: int
    arm: str | int
    seen: float
    reward: float


class WaitingList(Struct, array_like=True):
    """Items of a list from the top: what they are, and what came for each so far.

    ``x`` has the context of all, or one for each slot where slots have features.
    """

    arms: list[str | int]
    slots: list[str | int] | None
    x: list[bytes]
    totals: list[float]
    counts: list[int]

    @classmethod
    def of(cls, part: ListPart, ids: list[str | int], x: list[bytes]) -> WaitingList:
        """As the row of a list says, with contexts as vectors."""
        n = len(part.places)
        arms = [ids[place] for place in part.places]
        return cls(arms, part.slots, x, [0.0] * n, [0] * n)

    def item_of(self, body: RewardBody) -> int:
        """Which item a reward is for."""
        if (body.slot is None) == (body.arm is None):
            raise InvalidInputError(
                "$.slot or $.arm must say which item of the list the reward is for, got "
                f"{'neither' if body.slot is None else 'both'}."
            )
        name, value = ("slot", body.slot) if body.arm is None else ("arm", body.arm)
        known: list[Any] = self.arms
        if name == "slot":
            known = list(range(len(self.arms))) if self.slots is None else self.slots
        if value not in known:
            raise InvalidInputError(f"$.{name} must be one of the list's, got {value!r}.")
        return known.index(value)

    def take(self, item: int, value: float) -> None:
        """A reward came."""
        self.totals[item] += value
        self.counts[item] += 1

    def with_reward(self, item: int, value: float) -> WaitingList:
        """As it will be once a reward was taken."""
        after = WaitingList(self.arms, self.slots, self.x, [*self.totals], [*self.counts])
        after.take(item, value)
        return after

    def clicked(self, item: int) -> bool:
        """Whether a reward above 0 came for an item."""
        return self.counts[item] > 0 and self.totals[item] > 0

    @property
    def any_clicked(self) -> bool:
        """Whether one came for any."""
        return any(map(self.clicked, range(len(self.arms))))

    def rewards(self, default: float) -> list[float]:
        """What is learnt of each item if it was seen; a sum knows no bound."""
        return [
            max(-LARGEST, min(LARGEST, total)) if count else default
            for total, count in zip(self.totals, self.counts, strict=True)
        ]

    def plays(self, rewards: list[float], rules: ListRules) -> list[Play]:
        """What a policy learns: the items that were seen."""
        n, examine = len(self.arms), None
        if rules.feedback == "positions":  # a list of another configuration may be longer
            examine = [*rules.examine, *[rules.examine[-1]] * n]
        # by what came: a default above 0 is no click
        learnt, _, scale = plays(rules.feedback, self.rewards(0.0), examine)
        seen = [1.0] * n if scale is None else scale.tolist()
        return [Play(i, self.arms[i], seen[i], rewards[i]) for i in range(learnt)]
