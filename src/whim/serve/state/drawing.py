"""Which candidate is shown where chance has a say, and how likely that was."""

from __future__ import annotations

import hashlib

from whim.serve import wire


def draws(seed: int, key: str) -> tuple[float, float, float]:
    """Three uniform numbers that belong to a decision: no stream, so no order to keep."""
    digest = hashlib.blake2b(f"{seed} {key}".encode("utf-8", "surrogatepass"), digest_size=24)
    data = digest.digest()
    a, b, c = (int.from_bytes(data[i : i + 8], "little") >> 11 for i in (0, 8, 16))
    return a * 2.0**-53, b * 2.0**-53, c * 2.0**-53


def seed_of(seed: int, key: str) -> int:
    """Of the draws that a policy makes for a decision, beside those of ``draws``."""
    data = f"policy {seed} {key}".encode("utf-8", "surrogatepass")
    return int.from_bytes(hashlib.blake2b(data, digest_size=16).digest(), "little")


def probability(
    config: wire.SpaceConfig, place: int, wanted: int, n: int, drawn: float | None = None
) -> float:
    """How likely the candidate at ``place`` of ``n`` is shown when the policy wants ``wanted``.

    ``drawn`` is how likely a policy that draws was to want the one at ``place``.

    >>> [probability(wire.SpaceConfig(explore=0.5, holdback=0.1), i, 1, 2) for i in (0, 1)]
    [0.325, 0.675]
    """
    by_base = 1.0 / n if config.baseline == "random" else float(place == 0)
    own = float(place == wanted) if drawn is None else drawn
    by_policy = config.explore / n + (1 - config.explore) * own
    share = 1.0 if config.shadow else config.holdback
    return share * by_base + (1 - share) * by_policy


def probabilities(
    config: wire.SpaceConfig, wanted: int, n: int, shown: int, chance: float, draws: bool
) -> list[float]:
    """Of all candidates, where that of the one shown is known.

    Of a policy that draws only that is logged: the others get even parts of the rest.
    """
    if draws and n > 1:
        p = [(1 - chance) / (n - 1)] * n
    else:
        p = [probability(config, i, wanted, n) for i in range(n)]
    p[shown] = chance
    return p
