"""What a service starts with when nothing is configured: a space to try, and Personalizer's."""

from __future__ import annotations

from whim.serve import wire

DEMO = "demo"


def demo_config() -> wire.SpaceConfig:
    """Readers with a device and a time of day; articles are added when they first appear."""
    return wire.SpaceConfig(
        policy="pslinucb-disjoint",
        context=wire.Features(
            fields=[
                wire.Field(name="device", kind="choice", values=["phone", "desktop"]),
                wire.Field(name="hour", kind="number", mean=12.0, scale=6.0),
            ],
            constant=True,
        ),
        explore=0.05,
        holdback=0.05,
        baseline="random",
    )


def personalizer_config() -> wire.SpaceConfig:
    """Any features, hashed, of the context and of the actions; exploration as that service had."""
    return wire.SpaceConfig(
        policy="pslinucb-hybrid",
        context=wire.Features(rest=16, constant=True),
        items=wire.Features(rest=8, constant=True),
        explore=0.2,
        list=wire.ListRules(feedback="semi"),  # each slot had a reward of its own, or the default
    )
