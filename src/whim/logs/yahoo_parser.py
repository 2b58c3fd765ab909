"""Yahoo's click logs, bytes to columns: one line an event, a block of whole lines at a time.

A line is ``time shown click |user features |article features |article features ...`` (R6A) or
has ``id-`` articles and bare feature numbers (R6B). Consecutive lines mostly share their pool,
and an article mostly keeps its features: text that equals remembered text is not parsed again.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from whim.kernels.jit import jit, part
from whim.logs.text_parser import U8, after_blanks, blank, ends, same, whole
from whim.logs.token_parser import ALL, WIDTH, article, indicators, vector
from whim.types import F64, I64

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
_TABLE = 1 << 16
_MOST_IDS = _TABLE // 2  # in the table
# parts of the current pool
_SIZE, _LACK, _STRAYS, _TWICE = range(4)
# parts of a remembered article
_ID, _STAMP, _START, _LENGTH, _ITEM, _ODD = range(6)
_NUMBER = _ITEM  # of a remembered pool


class Columns(NamedTuple):
    """Where events, pools and items are written; R6A's users go to ``context``, R6B's to ``flags``.

    ``slow`` lists the numbers that are left for the caller to read.
    """

    time: I64
    context: F64
    flags: U8
    pool: I32
    place: I32
    reward: F64
    offsets: I64
    members: I32
    item_id: I64
    features: F64
    slow: I32
    counts: I64


class Pool(NamedTuple):
    """The candidates of the current line, and the articles and the pool that are remembered."""

    used: U8
    table: I64
    items: I32
    ids: I64
    lacking: I64
    now: I64
    last: I64
    of_user: I32
    short: I32


@part
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


@part
def remembered(data: U8, i: int, table: I64, row: int) -> int:
    """The place after an article whose text is the one in the table; -1 if it is another."""
    length = table[row, _LENGTH]
    if length < 0 or i + length >= data.shape[0]:
        return -1
    if not ends(data, i + length) or not same(data, table[row, _START], i, length):
        return -1
    after = after_blanks(data, i + length)
    return after if data[after] == 124 or data[after] == 10 else -1


@part
def note(slow: I32, counts: I64, kind: int, row: int, short: I32, later: int) -> None:
    """Values left for the slow way: of an item (kind 1) or a context (kind 0), where, what text."""
    for k in range(later):
        n = counts[N_SLOW]
        slow[n, 0] = kind
        slow[n, 1] = row
        for c in range(3):
            slow[n, 2 + c] = short[k, c]
        counts[N_SLOW] = n + 1


@part
def candidates(data: U8, i: int, named: bool, out: Columns, pool: Pool) -> tuple[int, int]:
    """The articles of a line into ``pool``.

    Returns the place of the line's end, or of what stopped it, and a reason.
    """
    now, table, line = pool.now, pool.table, out.counts[N_LINES]
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
        row = find(pool.used, table, key, out.counts)
        if table[row, _STAMP] == line:
            now[_TWICE] = 1
        table[row, _STAMP] = line
        i = remembered(data, start, table, row)
        if i < 0:
            i = new_item(data, after, named, out, pool, row)
            if i < 0:
                return start, BAD_POOL
            end = i
            while ends(data, end - 1):
                end -= 1
            table[row, _START] = start
            table[row, _LENGTH] = end - start
        if table[row, _ITEM] < 0:
            pool.lacking[now[_LACK]] = key
            now[_LACK] += 1
        else:
            pool.ids[now[_SIZE]] = key
            pool.items[now[_SIZE]] = table[row, _ITEM]
            now[_SIZE] += 1
        now[_STRAYS] += table[row, _ODD]
    return i, OK


@part
def new_item(data: U8, i: int, named: bool, out: Columns, pool: Pool, row: int) -> int:
    """An article's features as a new item, if they are complete; the place after, or -1."""
    n = out.counts[N_ITEMS]
    seen, strays, later = ALL, 0, 0
    if named:
        i = after_blanks(data, i)
    else:
        i, seen, strays, later = vector(data, i, out.features[n], pool.short)
        if i < 0:
            return -1
    pool.table[row, _ODD] = strays
    pool.table[row, _ITEM] = -1
    if seen == ALL:
        pool.table[row, _ITEM] = n
        out.item_id[n] = pool.table[row, _ID]
        out.counts[N_ITEMS] = n + 1
        note(out.slow, out.counts, 1, n, pool.short, later)
    return i


@part
def place_of(ids: I64, size: int, key: int) -> int:
    """Where an article stands in a list, or -1."""
    for k in range(size):
        if ids[k] == key:
            return k
    return -1


@part
def verdict(seen: int, now: I64, ids: I64, lacking: I64, shown: int) -> tuple[int, int]:
    """Of a well-formed line: the place shown, or the reason why it gives no event."""
    if seen != ALL:
        return -1, USER_LACKS
    if now[_TWICE]:
        return -1, REPEATED
    if place_of(lacking, now[_LACK], shown) >= 0:
        return -1, SHOWN_LACKS
    if now[_SIZE] == 0:
        return -1, EMPTY_POOL
    place = place_of(ids, now[_SIZE], shown)
    return place, (OK if place >= 0 else NOT_IN_POOL)


@part
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


@part
def user(data: U8, i: int, named: bool, out: Columns, short: I32) -> tuple[int, int, int, int]:
    """A user's features into the next event's row; returns what ``vector`` does."""
    e = out.counts[N_EVENTS]
    if named:
        i, strays = indicators(data, i, out.flags[e])
        return i, ALL, strays, 0
    return vector(data, i, out.context[e], short)


@part
def pool_at(data: U8, i: int, named: bool, out: Columns, pool: Pool) -> tuple[int, int]:
    """The candidates from here to the line's end; text equal to the last pool's is not parsed."""
    last = pool.last
    end = i + last[_LENGTH]
    if (
        last[_LENGTH] >= 0 and end < data.shape[0] and data[end] == 10
        and same(data, last[_START], i, last[_LENGTH])
    ):  # fmt: skip
        return end, OK
    last[_START], last[_LENGTH], last[_NUMBER] = i, -1, -1
    end, why = candidates(data, i, named, out, pool)
    if why == OK:
        last[_LENGTH] = end - i
    return end, why


@part
def pool_number(out: Columns, pool: Pool) -> int:
    """The number of the current pool, which is written when its first event is kept."""
    if pool.last[_NUMBER] < 0:
        number, start, size = out.counts[N_POOLS], out.counts[N_MEMBERS], pool.now[_SIZE]
        for k in range(size):
            out.members[start + k] = pool.items[k]
        out.offsets[number + 1] = start + size
        out.counts[N_POOLS] = number + 1
        out.counts[N_MEMBERS] = start + size
        pool.last[_NUMBER] = number
    return int(pool.last[_NUMBER])


@part
def line(data: U8, start: int, named: bool, limit: int, out: Columns, pool: Pool) -> int:
    """One line: an event, or a count of why it is none. Returns where the next one starts."""
    counts = out.counts
    counts[N_LINES] += 1
    i = after_blanks(data, start)
    if data[i] == 10 and i - start <= limit:
        counts[EMPTY_LINE] += 1
        return i + 1
    when, shown, click, after, why = header(data, i, named)
    seen, strays, later = 0, 0, 0
    if why == OK:
        i = after
        after, seen, strays, later = user(data, i, named, out, pool.of_user)
        if after < 0:
            why = BAD_USER
    if why == OK:
        i, why = pool_at(data, after, named, out, pool)
    while data[i] != 10:
        i += 1
    if i - start > limit:
        why = LONG
    place = -1
    if why == OK:
        place, why = verdict(seen, pool.now, pool.ids, pool.lacking, shown)
    if why != OK:
        counts[why] += 1
        if why < USER_LACKS and counts[FIRST_BAD] == 0:
            counts[FIRST_BAD] = counts[N_LINES]
            counts[FIRST_BAD + 1] = why
        return i + 1
    e = counts[N_EVENTS]
    out.time[e] = when
    out.pool[e] = pool_number(out, pool)
    out.place[e] = place
    out.reward[e] = click
    note(out.slow, counts, 0, e, pool.of_user, later)
    counts[STRAY] += strays + pool.now[_STRAYS]
    counts[LACKING] += pool.now[_LACK]
    counts[N_EVENTS] = e + 1
    return i + 1


@part
def full(out: Columns) -> bool:
    """Whether another line might not fit into the columns."""
    counts = out.counts
    return bool(
        counts[N_EVENTS] >= out.time.shape[0]
        or counts[N_MEMBERS] + MOST_ARTICLES > out.members.shape[0]
        or counts[N_POOLS] + 2 > out.offsets.shape[0]
        or counts[_N_IDS] + MOST_ARTICLES > _MOST_IDS
        or counts[N_ITEMS] + MOST_ARTICLES > out.item_id.shape[0]
        or counts[N_SLOW] + (MOST_ARTICLES + 1) * WIDTH > out.slow.shape[0]
    )


@jit
def parse(data: U8, start: int, named: bool, limit: int, out: Columns) -> int:
    """Lines from ``start`` on into the columns, until the block ends or a column may be full.

    ``data`` ends with a line feed. Returns where the next call goes on. Pools, items and events
    are numbered from 0 in each call.
    """
    out.counts[:] = 0
    out.offsets[0] = 0
    pool = Pool(
        np.zeros(_TABLE, np.uint8), np.empty((_TABLE, 6), np.int64),
        np.empty(MOST_ARTICLES, np.int32), np.empty(MOST_ARTICLES, np.int64),
        np.empty(MOST_ARTICLES, np.int64), np.zeros(4, np.int64), np.full(5, -1, np.int64),
        np.empty((WIDTH, 3), np.int32), np.empty((WIDTH, 3), np.int32),
    )  # fmt: skip
    i = start
    while i < data.shape[0] and not full(out):
        i = line(data, i, named, limit, out, pool)
    return i
