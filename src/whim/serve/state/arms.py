"""``SpaceArms``: the arms of a space with their features, and what its policy thinks of them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import msgspec
import numpy as np

from whim.errors import InvalidInputError
from whim.features.encoder import Encoder
from whim.policies import Policy
from whim.policies.base.preview import Preview
from whim.serve.log.rows import FeatureValues
from whim.types import F64

_encode = msgspec.msgpack.encode


class SpaceArms:
    """What live decisions share with the log's; a subclass takes rows."""

    policy: Policy
    context: Encoder
    items: Encoder
    _contextual: bool

    def _start(self) -> None:
        self._arms: set[str | int] = set(self.policy.arms)  # type: ignore[arg-type]
        self._features: dict[str | int, bytes] = {}  # those that an arm came with last
        self._lists: dict[bytes, list[str | int]] = {}

    def _learn_updates(self) -> None:
        """Learn what was put off, before arms change."""

    def add_arms(
        self, ids: list[str | int], features: list[FeatureValues] | None, *, lenient: bool = False
    ) -> None:
        """Add arms that are new; features that came are those they have from now on."""
        new, rows, encoded = self._came(ids, features, lenient)
        if not self.items.size:
            if new:
                self._learn_updates()
                self.policy.add_arms(new)
                self._arms.update(new)
            return
        old = [arm for arm in rows if arm in self._arms]
        if new or old:
            self._learn_updates()
        if new:
            self.policy.add_arms(new, np.array([rows[arm] for arm in new]))
            self._arms.update(new)
        if old:
            self.policy.set_features(old, np.array([rows[arm] for arm in old]))
        for arm in rows:
            self._features[arm] = encoded[arm]

    def _came(
        self, ids: list[str | int], features: list[FeatureValues] | None, lenient: bool = False
    ) -> tuple[list[str | int], dict[str | int, F64], dict[str | int, bytes]]:
        """The arms that are new; the features that are, as vectors and as they are remembered."""
        new = [] if self._arms.issuperset(ids) else [a for a in ids if a not in self._arms]
        if not self.items.size:
            return new, {}, {}
        came = [(a, f) for a, f in zip(ids, features or (), strict=False) if f is not None]
        encoded = {arm: _encode(values) for arm, values in came}
        fresh = [(arm, values) for arm, values in came if self._features.get(arm) != encoded[arm]]
        rows = {arm: self.items(values, lenient=lenient) for arm, values in fresh}
        bare = [arm for arm in new if arm not in rows]
        if bare:
            raise InvalidInputError(
                f"$.candidates must come with features the first time, got {bare[0]!r} without."
            )
        return new, rows, encoded

    @property
    def n_arms(self) -> int:
        """How many arms are live."""
        return len(self._arms)

    def knows(self, candidates: list[Any]) -> bool:
        """Whether all of these are live arms, and come without features."""
        try:
            return not self.items.size and self._arms.issuperset(candidates)
        except TypeError:  # an arm and its features
            return False

    def new_among(self, ids: Collection[Any]) -> list[str | int]:
        """Those of these arms that are not live yet."""
        return [] if self._arms.issuperset(ids) else [arm for arm in ids if arm not in self._arms]

    def preview(
        self, x: F64, ids: list[str | int], features: list[FeatureValues] | None, seed: int
    ) -> Preview:
        """What the policy thinks of arms, new ones too; it draws by the seed, and all stays."""
        rows: Mapping[str | int, F64] = self._came(ids, features)[1] if self.items.size else {}
        return self.policy.preview(x if self._contextual else None, ids, rows, seed=seed)

    def rank_many(
        self, X: F64, lists: list[list[Any]]
    ) -> list[tuple[list[int], list[float]] | None]:
        """The same for many; None where a list is not of known arms, each once.

        None for all if arms come with features, or the policy draws.
        """
        if self.items.size or self.policy.randomised:
            return [None] * len(lists)
        return self.policy.ranked_many(X if self._contextual else None, lists)
