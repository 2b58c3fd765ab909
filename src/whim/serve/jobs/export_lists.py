"""Decisions and lists in the terms of the log that ``whim replay`` reads; what it cannot hold."""

from __future__ import annotations

from typing import Any

from whim.serve.jobs.history import Decision
from whim.serve.state.policy import draws
from whim.serve.wire import SpaceConfig

UNLOGGED = "was drawn by the policy with a probability that was not logged then"
DRAWN = "is a list of a policy that draws, whose probability is not known"
TINY = "is a list whose probability is too small for a number"
LIST = "is a list whose slots have features or exclusions, which the log's columns do not hold"


def unlogged(d: Decision) -> bool:
    """Whether the logged probability leaves out that the policy drew."""
    return d.body.items is None and d.body.drawn is None and draws(d.config)


def not_in_columns(d: Decision) -> str | None:
    """Why the log that replay reads has no place for a decision, if it has none."""
    part = d.body.items
    if part is None:
        return UNLOGGED if unlogged(d) else None
    if any(x.size for x in d.contexts or ()) or any(part.exclude or ()):
        return LIST
    return unknown_list(d)


def unknown_list(d: Decision) -> str | None:
    """Why the probability of a list is not known, if it is not."""
    part = d.body.items
    if part is None or all(part.prefixes):
        return None
    return DRAWN if draws(d.config) else TINY


def as_list(d: Decision) -> dict[str, Any]:
    """What was shown, with probabilities; an item that was not seen has earned nothing."""
    part, arms = d.body.items, d.body.arms
    if part is None:
        chance = [d.body.probability]
        return {"shown": [arms[d.body.place]], "rewards": [d.reward or 0.0],
                "probabilities": chance, "prefix_probabilities": chance}  # fmt: skip
    return {
        "shown": [arms[place] for place in part.places],
        "rewards": [reward or 0.0 for reward in d.items or ()],
        "probabilities": part.probabilities,
        "prefix_probabilities": part.prefixes,
    }


def draws_uniformly(config: SpaceConfig) -> bool:
    """Whether all that is not the policy's own list is a uniform draw."""
    aside = config.shadow or config.holdback > 0
    return not draws(config) and (config.baseline == "random" or not aside)


def drawn_from(d: Decision) -> dict[str, Any]:
    """The policy's own list, and how likely a uniform draw was to take its place."""
    config, body = d.config, d.body
    own = [body.wanted] if body.items is None else body.order
    aside = 1.0 if config.shadow else config.holdback
    share = aside + (1 - aside) * config.explore
    return {"wanted": [body.arms[place] for place in own], "explore": share}
