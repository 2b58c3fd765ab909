"""Yahoo's click logs, bytes to columns: one line an event, a block of whole lines at a time.

A line is ``time shown click |user features |article features |article features ...`` (R6A) or
has ``id-`` articles and bare feature numbers (R6B). Consecutive lines mostly share their pool,
and an article mostly keeps its features: text that equals remembered text is not parsed again.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from whim.kernels.jit import jit
from whim.logs.text_parser import NONE, SLOW, U8, after_blanks, blank, ends, number, same, whole
from whim.types import F64, I64

__all__ = [
    "BAD_CLICK", "BAD_HEADER", "BAD_POOL", "BAD_USER", "COUNTS", "EMPTY_LINE", "EMPTY_POOL",
    "FIRST_BAD", "LACKING", "LONG", "MOST_ARTICLES", "NOT_IN_POOL", "N_EVENTS", "N_ITEMS",
    "N_LINES", "N_MEMBERS", "N_POOLS", "N_SLOW", "REPEATED", "SHOWN_LACKS", "STRAY", "TOO_MANY",
    "USER_LACKS", "parse",
]  # fmt: skip

I32 = npt.NDArray[np.int32]

# why a line gives no event; also places in ``counts``
OK, BAD_HEADER, BAD_CLICK, BAD_USER, BAD_POOL, TOO_MANY, LONG = range(7)
REPEATED, EMPTY_POOL, NOT_IN_POOL, USER_LACKS, SHOWN_LACKS = range(7, 12)
# further places in ``counts``
EMPTY_LINE, STRAY, LACKING, N_LINES, N_EVENTS, N_POOLS, N_MEMBERS, N_ITEMS, N_SLOW = range(12, 21)
_N_IDS = 21
FIRST_BAD = 22  # line of the first malformed one, from 1, and its reason in the place after
COUNTS = 24

MOST_ARTICLES = 10_000  # of a line
_WIDTH = 6  # features of a user or an article in R6A; an id above it is stray
_ALL = (1 << _WIDTH) - 1
_TABLE = 1 << 16
_ROOM = _TABLE // 2  # ids in the table
# parts of the current pool
_SIZE, _LACK, _STRAYS, _TWICE = range(4)
# parts of a remembered article
_ID, _STAMP, _START, _LENGTH, _ITEM, _ODD = range(6)


@jit
def article(data: U8, i: int, named: bool) -> tuple[int, int]:
    """An article's number and the place after it, or -1; ``named`` ones start with ``id-``."""
    if named:
        if not (data[i] == 105 and data[i + 1] == 100 and data[i + 2] == 45):
            return 0, -1
        i += 3
    value, i = whole(data, i)
    if i < 0 or not ends(data, i):
        return 0, -1
    return value, i


@jit
def vector(data: U8, i: int, row: F64, slow: I32) -> tuple[int, int, int, int]:
    """The ``id:value`` tokens up to the next ``|`` or the line's end, put in order of their ids.

    Returns the place after them (-1 if one is malformed), a bit for each id that was there, how
    many ids were none of 1..6, and how many values are left for the slow way (their ids and
    places are in ``slow``).
    """
    seen = strays = later = 0
    i = after_blanks(data, i)
    while data[i] != 124 and data[i] != 10:
        feature, i = whole(data, i)
        if i < 0 or data[i] != 58:
            return -1, 0, 0, 0
        start = i + 1
        value, i, how = number(data, start)
        if how == NONE:
            return -1, 0, 0, 0
        if 1 <= feature <= _WIDTH:
            bit = 1 << (feature - 1)
            if seen & bit:
                return -1, 0, 0, 0
            seen |= bit
            row[feature - 1] = value
            if how == SLOW:
                slow[later, 0] = feature - 1
                slow[later, 1] = start
                slow[later, 2] = i
                later += 1
        else:
            strays += 1
        i = after_blanks(data, i)
    return i, seen, strays, later


@jit
def indicators(data: U8, i: int, row: U8) -> tuple[int, int]:
    """R6B's user: the numbers of the features that are 1; the place after (or -1) and strays."""
    strays = 0
    row[:] = 0
    i = after_blanks(data, i)
    while data[i] != 124 and data[i] != 10:
        feature, i = whole(data, i)
        if i < 0 or not ends(data, i):
            return -1, 0
        if 1 <= feature <= row.shape[0]:
            row[feature - 1] = 1
        else:
            strays += 1
        i = after_blanks(data, i)
    return i, strays


@jit
def find(used: U8, table: I64, key: int, counts: I64) -> int:
    """The row of an article in the table, made if it is new."""
    row = (key * -7046029254386353131 >> 40) & (_TABLE - 1)  # 2^64 / golden ratio
    while used[row] and table[row, _ID] != key:
        row = (row + 1) & (_TABLE - 1)
    if not used[row]:
        used[row] = 1
        counts[_N_IDS] += 1
        table[row, _ID] = key
        table[row, _STAMP] = -1
        table[row, _LENGTH] = -1
    return row


@jit
def remembered(data: U8, i: int, table: I64, row: int) -> int:
    """The place after an article whose text is the one in the table; -1 if it is another."""
    length = table[row, _LENGTH]
    if length < 0 or i + length >= data.shape[0]:
        return -1
    if not ends(data, i + length) or not same(data, table[row, _START], i, length):
        return -1
    after = after_blanks(data, i + length)
    return after if data[after] == 124 or data[after] == 10 else -1


@jit
def note(slow: I32, counts: I64, kind: int, row: int, short: I32, later: int) -> None:
    """Values left for the slow way: of an item (kind 1) or a context (kind 0), where, what text."""
    for k in range(later):
        n = counts[N_SLOW]
        slow[n, 0] = kind
        slow[n, 1] = row
        slow[n, 2:5] = short[k, 0:3]
        counts[N_SLOW] = n + 1


@jit
def candidates(
    data: U8, i: int, named: bool, line: int, used: U8, table: I64, items: I32, ids: I64,
    lacking: I64, now: I64, item_id: I64, features: F64, slow: I32, counts: I64, short: I32,
) -> tuple[int, int]:  # fmt: skip
    """The articles of a line into ``items``, ``ids``, ``lacking`` and ``now``.

    Returns the place of the line's end, or of what stopped it, and a reason.
    """
    now[:] = 0
    while data[i] != 10:
        if data[i] != 124:
            return i, BAD_POOL
        if now[_SIZE] + now[_LACK] >= MOST_ARTICLES:
            return i, TOO_MANY
        start = i + 1
        key, after = article(data, start, named)
        if after < 0:
            return i, BAD_POOL
        row = find(used, table, key, counts)
        if table[row, _STAMP] == line:
            now[_TWICE] = 1
        table[row, _STAMP] = line
        i = remembered(data, start, table, row)
        if i < 0:
            n = counts[N_ITEMS]
            seen, strays, later = _ALL, 0, 0
            if named:
                i = after_blanks(data, after)
            else:
                i, seen, strays, later = vector(data, after, features[n], short)
                if i < 0:
                    return start, BAD_POOL
            end = i
            while ends(data, end - 1):
                end -= 1
            table[row, _START] = start
            table[row, _LENGTH] = end - start
            table[row, _ODD] = strays
            table[row, _ITEM] = -1
            if seen == _ALL:
                table[row, _ITEM] = n
                item_id[n] = key
                counts[N_ITEMS] = n + 1
                note(slow, counts, 1, n, short, later)
        if table[row, _ITEM] < 0:
            lacking[now[_LACK]] = key
            now[_LACK] += 1
        else:
            ids[now[_SIZE]] = key
            items[now[_SIZE]] = table[row, _ITEM]
            now[_SIZE] += 1
        now[_STRAYS] += table[row, _ODD]
    return i, OK


@jit
def place_of(ids: I64, size: int, key: int) -> int:
    """Where an article stands in a list, or -1."""
    for k in range(size):
        if ids[k] == key:
            return k
    return -1


@jit
def verdict(seen: int, now: I64, ids: I64, lacking: I64, shown: int) -> tuple[int, int]:
    """Of a well-formed line: the place shown, or the reason why it gives no event."""
    if seen != _ALL:
        return -1, USER_LACKS
    if now[_TWICE]:
        return -1, REPEATED
    if place_of(lacking, now[_LACK], shown) >= 0:
        return -1, SHOWN_LACKS
    if now[_SIZE] == 0:
        return -1, EMPTY_POOL
    place = place_of(ids, now[_SIZE], shown)
    return place, (OK if place >= 0 else NOT_IN_POOL)


@jit
def header(data: U8, i: int, named: bool) -> tuple[int, int, int, int, int]:
    """Time, shown article, click, the place after ``|user`` and a reason."""
    when, i = whole(data, i)
    if i < 0 or not blank(data[i]):
        return 0, 0, 0, -1, BAD_HEADER
    shown, i = article(data, after_blanks(data, i), named)
    if i < 0:
        return 0, 0, 0, -1, BAD_HEADER
    i = after_blanks(data, i)
    click = data[i] - 48
    if data[i] == 10 or data[i] == 124:
        return 0, 0, 0, -1, BAD_HEADER
    if not (0 <= click <= 1 and ends(data, i + 1)):
        return 0, 0, 0, -1, BAD_CLICK
    i = after_blanks(data, i + 1)
    if not (data[i] == 124 and i + 5 < data.shape[0]):
        return 0, 0, 0, -1, BAD_USER
    user = data[i + 1] == 117 and data[i + 2] == 115 and data[i + 3] == 101 and data[i + 4] == 114
    if not (user and ends(data, i + 5)):
        return 0, 0, 0, -1, BAD_USER
    return when, shown, click, i + 5, OK


@jit
def parse(
    data: U8, start: int, named: bool, limit: int, time: I64, context: F64, flags: U8,
    pool: I32, place: I32, reward: F64, offsets: I64, members: I32, item_id: I64,
    features: F64, slow: I32, counts: I64,
) -> int:  # fmt: skip
    """Lines from ``start`` on into the columns, until the block ends or a column may be full.

    ``data`` ends with a line feed. R6A's users go to ``context``, R6B's to ``flags``. Returns
    where the next call goes on. Pools, items and events are numbered from 0 in each call;
    ``counts`` is set to 0 first.
    """
    counts[:] = 0
    used = np.zeros(_TABLE, np.uint8)
    table = np.empty((_TABLE, 6), np.int64)
    items = np.empty(MOST_ARTICLES, np.int32)
    ids = np.empty(MOST_ARTICLES, np.int64)
    lacking = np.empty(MOST_ARTICLES, np.int64)
    now = np.zeros(4, np.int64)
    of_user = np.empty((_WIDTH, 3), np.int32)
    of_article = np.empty((_WIDTH, 3), np.int32)
    pool_start, pool_length, number_of_pool = 0, -1, -1  # the pool that is remembered
    offsets[0] = 0
    i = start
    while i < data.shape[0]:
        e, n_pools, n_members = counts[N_EVENTS], counts[N_POOLS], counts[N_MEMBERS]
        if (
            e >= time.shape[0] or n_members + MOST_ARTICLES > members.shape[0]
            or n_pools + 2 > offsets.shape[0] or counts[_N_IDS] + MOST_ARTICLES > _ROOM
            or counts[N_ITEMS] + MOST_ARTICLES > item_id.shape[0]
            or counts[N_SLOW] + (MOST_ARTICLES + 1) * _WIDTH > slow.shape[0]
        ):  # fmt: skip
            break
        counts[N_LINES] += 1
        line = i
        i = after_blanks(data, i)
        if data[i] == 10 and i - line <= limit:
            counts[EMPTY_LINE] += 1
            i += 1
            continue
        strays = later = shown = 0
        seen = _ALL
        when, shown, click, after, why = header(data, i, named)
        if why == OK:
            i = after
            if named:
                after, strays = indicators(data, i, flags[e])
            else:
                after, seen, strays, later = vector(data, i, context[e], of_user)
            if after < 0:
                why = BAD_USER
        if why == OK:
            i = after
            end = i + pool_length
            if (
                pool_length >= 0 and end < data.shape[0] and data[end] == 10
                and same(data, pool_start, i, pool_length)
            ):  # fmt: skip
                i = end
            else:
                pool_start, pool_length, number_of_pool = i, -1, -1
                i, why = candidates(
                    data, i, named, counts[N_LINES], used, table, items, ids, lacking, now,
                    item_id, features, slow, counts, of_article,
                )  # fmt: skip
                if why == OK:
                    pool_length = i - pool_start
        while data[i] != 10:
            i += 1
        if i - line > limit:
            why = LONG
        where = -1
        if why == OK:
            where, why = verdict(seen, now, ids, lacking, shown)
        i += 1
        if why != OK:
            counts[why] += 1
            if why < USER_LACKS and counts[FIRST_BAD] == 0:
                counts[FIRST_BAD] = counts[N_LINES]
                counts[FIRST_BAD + 1] = why
            continue
        if number_of_pool < 0:
            number_of_pool = n_pools
            size = now[_SIZE]
            members[n_members : n_members + size] = items[:size]
            offsets[n_pools + 1] = n_members + size
            counts[N_POOLS] = n_pools + 1
            counts[N_MEMBERS] = n_members + size
        time[e] = when
        pool[e] = number_of_pool
        place[e] = where
        reward[e] = click
        note(slow, counts, 0, e, of_user, later)
        counts[STRAY] += strays + now[_STRAYS]
        counts[LACKING] += now[_LACK]
        counts[N_EVENTS] = e + 1
    return i
