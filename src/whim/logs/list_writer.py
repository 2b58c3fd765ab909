"""``ListWriter``: makes a log of lists, list by list or block by block.

What each column means is said in ``whim.logs.columns``.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from whim.checks import LARGEST, real, vector
from whim.errors import InvalidInputError
from whim.logs.columns import COLUMNS, LIST_COLUMNS, LIST_FORMAT
from whim.logs.numbering import plain_id
from whim.logs.writer import Writer
from whim.logs.writer_checks import check_block, different, int64
from whim.types import F64, ArmId

_ROWS = 4096  # lists kept by ``add_list`` before they become a block


class ListWriter(Writer):
    """Write a log of lists; under its name it appears whole, when the ``with`` block ends.

    Parameters
    ----------
    path, n_features, n_item_features, source, context_dtype, context_names, item_names, overwrite
        As those of ``Writer``.
    logging
        How lists were chosen: ``"uniform"``, item by item at random from those left of the pool;
        ``"propensity"``, with the probabilities in the log; ``None`` if unknown.
    propensities
        Whether items come with their probability and that of the list up to them.
    wanted
        Whether lists come with the one that the logging policy had made itself, and with the
        probability with which a uniform draw replaced it.

    Examples
    --------
    >>> import tempfile, whim.logs
    >>> path = tempfile.mkdtemp() + "/lists.whim"
    >>> with whim.logs.ListWriter(path, n_features=1, logging="propensity", propensities=True) as w:
    ...     w.add_list(time=0, x=[1.0], arms=["a", "b", "c"], shown=["c", "a"], rewards=[0, 1],
    ...            probabilities=[0.5, 0.4], prefix_probabilities=[0.5, 0.25])
    >>> log = whim.logs.open(path)
    >>> log.has_lists, log.shown_list(0).shown, log.reward[0]
    (True, ['c', 'a'], np.float64(1.0))
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        n_features: int,
        logging: str | None = None,
        wanted: bool = False,
        **options: Any,
    ) -> None:
        if logging == "full":
            raise InvalidInputError("logging must not be 'full' in a log of lists.")
        self._has_wanted = bool(wanted)
        self._lists: list[dict[str, Any]] = []
        self.n_shown = 0
        super().__init__(path, n_features=n_features, logging=logging, **options)

    # -- the lists --------------------------------------------------------------------------

    def event(self, **event: Any) -> None:
        """Not of a log of lists."""
        raise InvalidInputError("event must not be called on a writer of lists: add_list is.")

    def add_list(
        self,
        *,
        time: int,
        x: Any,
        arms: Sequence[ArmId],
        shown: Sequence[ArmId],
        rewards: Sequence[float] | None = None,
        reward: float | None = None,
        features: Any = None,
        probabilities: Sequence[float | None] | None = None,
        prefix_probabilities: Sequence[float] | None = None,
        wanted: Sequence[ArmId] | None = None,
        explore: float | None = None,
    ) -> None:
        """One list: the candidates, those of them that were shown, from the top, and the rewards.

        ``rewards`` has one per item; ``reward`` is that of the list, by default their sum. With
        ``rewards`` left out only the list as a whole is known. ``features`` has a row per
        candidate. ``probabilities`` may have None where only the prefix's is known.
        """
        places = different(arms)
        row: dict[str, Any] = {"place": _places("shown", shown, places)}
        k = len(row["place"])
        if rewards is None and reward is None:
            raise InvalidInputError("rewards or reward must be given, got neither.")
        each = np.full(k, np.nan) if rewards is None else _rewards(rewards, k)
        row["rewards"] = each
        row["reward"] = float(each.sum()) if reward is None else real("reward", reward)
        self._expected("probabilities", probabilities, self._has_propensity)
        self._expected("prefix_probabilities", prefix_probabilities, self._has_propensity)
        row["probabilities"] = None if probabilities is None else _known(probabilities, k)
        row["prefixes"] = (
            None if prefix_probabilities is None
            else vector("prefix_probabilities", prefix_probabilities, k)
        )  # fmt: skip
        self._expected("wanted", wanted, self._has_wanted)
        self._expected("explore", explore, self._has_wanted)
        row["wanted"] = None if wanted is None else _places("wanted", wanted, places, k)
        row["explore"] = None if explore is None else real("explore", explore)
        _check_chances(row["probabilities"], row["prefixes"], np.array([0, k]))
        _check_explore(row["explore"])
        row["time"] = int64(time)
        row["x"] = self._context(vector("x", x, self._d)[None])[0]
        Y = self._features(features, len(places))
        row["pool"] = self._pool(places, Y)
        self._lists.append(row)
        self.n_events += 1
        if len(self._lists) >= _ROWS:
            self._flush_rows()

    def block(  # type: ignore[override]
        self,
        *,
        time: npt.NDArray[Any],
        context: npt.NDArray[Any],
        pool: npt.NDArray[Any],
        reward: npt.NDArray[Any],
        list_offsets: npt.NDArray[Any],
        list_place: npt.NDArray[Any],
        list_reward: npt.NDArray[Any],
        pool_offsets: npt.NDArray[Any],
        pool_items: npt.NDArray[Any],
        item_arm: Sequence[ArmId],
        item_features: F64 | None = None,
        list_probability: F64 | None = None,
        list_prefix_probability: F64 | None = None,
        list_wanted: npt.NDArray[Any] | None = None,
        explore: F64 | None = None,
    ) -> None:
        """Many lists at once; pools and items are numbered within the block, as in ``Writer``."""
        n = len(time)
        Y = np.zeros((len(item_arm), 0)) if item_features is None else item_features
        x = self._context(np.asarray(context))
        first = np.zeros(n, np.int64)
        check_block(n, x, pool, first, reward, pool_offsets, pool_items, item_arm, Y, self._m)
        for name, given, expected in (
            ("list_probability", list_probability, self._has_propensity),
            ("list_prefix_probability", list_prefix_probability, self._has_propensity),
            ("list_wanted", list_wanted, self._has_wanted),
            ("explore", explore, self._has_wanted),
        ):
            self._expected(name, given, expected)
        columns = (list_reward, list_probability, list_prefix_probability, list_wanted)
        _check_offsets(n, list_offsets, (list_place, *columns))
        sizes = np.diff(pool_offsets)[pool]
        _check_places("list_place", list_place, list_offsets, sizes)
        if list_wanted is not None:
            _check_places("list_wanted", list_wanted, list_offsets, sizes)
        _check_rewards(list_reward, list_offsets)
        _check_chances(list_probability, list_prefix_probability, list_offsets)
        _check_explore(explore)
        ids = [plain_id(arm) for arm in item_arm]
        if not n:
            return
        self._flush_rows()
        numbers = self._numbers.block(
            np.asarray(pool), np.asarray(pool_offsets), np.asarray(pool_items), ids,
            np.ascontiguousarray(Y, "<f8"), self.n_events,
        )  # fmt: skip
        self._append_lists(
            {"time": time, "context": x, "pool": numbers, "reward": reward, "explore": explore},
            np.asarray(list_offsets),
            dict(zip(_SHOWN, (list_place, *columns), strict=True)),
        )
        self.n_events += n

    # -- inside -----------------------------------------------------------------------------

    def _expected(self, name: str, value: object, expected: bool) -> None:
        if (value is not None) != expected:
            raise InvalidInputError(f"{name} must {'' if expected else 'not '}be given here.")

    def _columns(self) -> list[str]:
        left_out = {"logged", "propensity"}
        if not self._has_propensity:
            left_out |= {"list_probability", "list_prefix_probability"}
        if not self._has_wanted:
            left_out |= {"list_wanted", "explore"}
        return [name for name in COLUMNS | LIST_COLUMNS if name not in left_out]

    def _begin(self) -> None:
        super()._begin()
        self._write("list_offsets", np.zeros(1, np.int64))

    def _flush_rows(self) -> None:
        if not self._lists:
            return
        rows, self._lists = self._lists, []

        def column(name: str) -> Any:
            return None if rows[0][name] is None else np.array([row[name] for row in rows])

        def joined(name: str) -> Any:
            return None if rows[0][name] is None else np.concatenate([row[name] for row in rows])

        events = {"time": "time", "context": "x"} | {n: n for n in ("pool", "reward", "explore")}
        keys = ("place", "rewards", "probabilities", "prefixes", "wanted")
        self._append_lists(
            {name: column(key) for name, key in events.items()},
            np.cumsum([0, *(len(row["place"]) for row in rows)]),
            {name: joined(key) for name, key in zip(_SHOWN, keys, strict=True)},
        )

    def _append_lists(
        self, events: dict[str, Any], offsets: npt.NDArray[Any], shown: dict[str, Any]
    ) -> None:
        for name, values in (events | shown).items():
            if values is not None:
                self._write(name, values)
        self._write("list_offsets", offsets[1:] + self.n_shown)
        self.n_shown += int(offsets[-1])
        self._notice(np.asarray(events["time"]))

    def _meta(self) -> dict[str, Any]:
        about = super()._meta() | {"format": LIST_FORMAT}
        return about | {"lists": True, "n_shown": self.n_shown, "wanted": self._has_wanted}


_SHOWN = (
    "list_place", "list_reward", "list_probability", "list_prefix_probability", "list_wanted",
)  # fmt: skip


def _places(
    name: str, arms: Sequence[ArmId], places: dict[ArmId, int], k: int | None = None
) -> npt.NDArray[np.int64]:
    """The places of the arms of a list."""
    ids = [plain_id(arm) for arm in arms]
    if not ids or len(set(ids)) < len(ids) or not set(ids) <= set(places):
        raise InvalidInputError(
            f"{name} must be different ones of the arms, at least one, got {ids!r}."
        )
    if k is not None and len(ids) != k:
        raise InvalidInputError(f"{name} must be {k} arms, as many as were shown, got {len(ids)}.")
    return np.array([places[arm] for arm in ids])


def _known(probabilities: Sequence[float | None], k: int) -> F64:
    """The probabilities of the items of a list, nan where there is None."""
    unknown = np.array([each is None for each in probabilities], bool)
    filled = [1.0 if each is None else each for each in probabilities]
    return np.where(unknown, np.nan, vector("probabilities", filled, k))


def _check_offsets(n: int, offsets: npt.NDArray[Any], columns: Sequence[Any]) -> None:
    if len(offsets) != n + 1 or offsets[0] != 0 or (np.diff(offsets) < 1).any():
        raise InvalidInputError(f"list_offsets must be {n + 1} numbers that rise from 0.")
    if any(column is not None and len(column) != offsets[-1] for column in columns):
        raise InvalidInputError(f"the columns of shown items must have {offsets[-1]} entries.")


def _check_places(
    name: str, places: npt.NDArray[Any], offsets: npt.NDArray[Any], sizes: npt.NDArray[Any]
) -> None:
    """Places within the pool, none of them twice in a list."""
    lengths = np.diff(offsets)
    if ((places < 0) | (places >= np.repeat(sizes, lengths))).any():
        raise InvalidInputError(f"{name} must be places within the event's pool.")
    events = np.repeat(np.arange(len(lengths)), lengths)
    order = np.lexsort((places, events))
    same = (np.diff(places[order]) == 0) & (np.diff(events[order]) == 0)
    if same.any():
        raise InvalidInputError(f"{name} must not hold an item twice in a list.")


def _check_rewards(rewards: npt.NDArray[Any], offsets: npt.NDArray[Any]) -> None:
    unknown = np.isnan(rewards)
    if not (np.abs(rewards[~unknown]) <= LARGEST).all():
        raise InvalidInputError(f"rewards must be finite, at most {LARGEST:g} in size.")
    lists = np.add.reduceat(unknown, offsets[:-1]) if len(offsets) > 1 else unknown
    if (
        not np.isin(lists, [0]).all()
        and not (lists[lists > 0] == np.diff(offsets)[lists > 0]).all()
    ):
        raise InvalidInputError("rewards must be known of all items of a list, or of none.")


def _check_chances(
    probabilities: F64 | None, prefixes: F64 | None, offsets: npt.NDArray[Any]
) -> None:
    """Both in (0, 1]; the prefixes' fall along a list, and none is above the item's own."""
    if probabilities is None or prefixes is None:
        return
    known = probabilities[~np.isnan(probabilities)]
    for name, values in (("probabilities", known), ("prefix_probabilities", prefixes)):
        if not ((values > 0) & (values <= 1)).all():
            raise InvalidInputError(f"{name} must lie in (0, 1].")
    if (prefixes > probabilities * (1 + 1e-9)).any():
        raise InvalidInputError("prefix_probabilities must be at most the probabilities.")
    rising = np.diff(prefixes) > 1e-9 * prefixes[1:]
    rising[np.asarray(offsets[1:-1]) - 1] = False  # between two lists
    if rising.any():
        raise InvalidInputError("prefix_probabilities must not rise along a list.")


def _check_explore(explore: Any) -> None:
    if explore is not None and not ((np.asarray(explore) >= 0) & (np.asarray(explore) <= 1)).all():
        raise InvalidInputError("explore must lie in [0, 1].")


def _rewards(rewards: Sequence[float], k: int) -> F64:
    """One per item; bools count as 0 and 1."""
    r = np.asarray(rewards)
    return vector("rewards", r.astype(np.float64) if r.dtype == bool else r, k)
