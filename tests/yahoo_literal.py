"""Yahoo's formats read slowly and obviously: what the compiled parser is held against."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any, NamedTuple

from whim.logs import yahoo_parser as p
from whim.logs.yahoo import DROPPED, EMPTY_FILE, WARNINGS

DECIMAL = re.compile(rb"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
LIMIT = 1 << 20


class Literal(NamedTuple):
    events: list[tuple[Any, ...]]
    dropped: Counter[str]
    warnings: Counter[str]
    lines: int


class BadError(Exception):
    pass


def whole(token: bytes) -> int:
    if not re.fullmatch(rb"\d{1,18}", token):
        raise BadError
    return int(token)


def article(token: bytes, named: bool) -> int | str:
    if not named:
        return whole(token)
    if not token.startswith(b"id-"):
        raise BadError
    return f"id-{whole(token[3:])}"


def vector(tokens: list[bytes]) -> tuple[dict[int, float], int]:
    """Values by feature number, and how many numbers are none of 1..6."""
    values: dict[int, float] = {}
    strays = 0
    for token in tokens:
        feature, colon, value = token.partition(b":")
        number = whole(feature)
        if not colon or not DECIMAL.fullmatch(value) or abs(float(value)) > 1e10:
            raise BadError
        if 1 <= number <= 6:
            if number in values:
                raise BadError
            values[number] = float(value)
        else:
            strays += 1
    return values, strays


def read(text: bytes, named: bool = False) -> Literal:
    found = Literal([], Counter(), Counter(), text.count(b"\n") + (text[-1:] not in (b"\n", b"")))
    for line in text.split(b"\n"):
        if not line.strip():
            continue
        reason = read_line(line, named, found)
        if reason is not None:
            found.dropped[DROPPED[reason]] += 1
    blank = sum(not line.strip() for line in text.split(b"\n"))
    found.warnings[WARNINGS[p.EMPTY_LINE]] = blank - (text[-1:] in (b"\n", b""))
    found.warnings[EMPTY_FILE] = int(not text)
    return found


def groups(tokens: list[bytes]) -> list[list[bytes]]:
    """Tokens cut before each one that starts with a bar."""
    cut: list[list[bytes]] = []
    for token in tokens:
        if token.startswith(b"|"):
            cut.append([token[1:]])
        else:
            cut[-1].append(token)
    return cut


def read_line(line: bytes, named: bool, found: Literal) -> int | None:
    if len(line) > LIMIT:
        return p.LONG
    tokens = line.split()
    try:
        when, shown = whole(tokens[0]), article(tokens[1], named)
        if tokens[2].startswith(b"|"):
            raise BadError
    except (BadError, IndexError):
        return p.BAD_HEADER
    if tokens[2] not in (b"0", b"1"):
        return p.BAD_CLICK
    if len(tokens) < 4 or tokens[3] != b"|user":
        return p.BAD_USER
    user, *articles = groups(tokens[3:])
    try:
        if named:
            on = [whole(token) for token in user[1:]]
            x = [float(i + 1 in on) for i in range(136)]
            strays = sum(not 1 <= i <= 136 for i in on)
            complete = True
        else:
            values, strays = vector(user[1:])
            x = [values.get(i + 1, 0.0) for i in range(6)]
            complete = len(values) == 6
    except BadError:
        return p.BAD_USER
    pool: list[tuple[Any, list[float]]] = []
    lacking = []
    for place, (name, *features) in enumerate(articles):
        if place >= p.MOST_ARTICLES:
            return p.TOO_MANY
        try:
            arm = article(name, named)
            if named and features:
                raise BadError
            values, more = vector(features)
        except BadError:
            return p.BAD_POOL
        strays += more
        if named or len(values) == 6:
            pool.append((arm, [values[i + 1] for i in range(0 if named else 6)]))
        else:
            lacking.append(arm)
    arms = [arm for arm, _ in pool]
    if not complete:
        return p.USER_LACKS
    if len(set(arms + lacking)) < len(arms + lacking):
        return p.REPEATED
    if shown in lacking:
        return p.SHOWN_LACKS
    if not arms:
        return p.EMPTY_POOL
    if shown not in arms:
        return p.NOT_IN_POOL
    found.events.append((when, x, arms, [y for _, y in pool], shown, float(tokens[2])))
    found.warnings[WARNINGS[p.STRAY]] += strays
    found.warnings[WARNINGS[p.LACKING]] += len(lacking)
    return None
