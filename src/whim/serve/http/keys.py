"""``Keys``: API keys in a file of the data directory; only their hashes are kept.

A running service sees within a second or so that the file was replaced. A file that cannot be
read closes the service, it never opens it.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Literal

import msgspec
from msgspec import Meta, Struct

from whim.errors import InvalidInputError, WhimError
from whim.files import write_atomic
from whim.serve.http.limits import Attempts
from whim.serve.wire import Name

if sys.platform != "win32":
    import fcntl

SCOPES = ("decide", "reward", "read", "admin")
Scope = Literal["decide", "reward", "read", "admin"]
_EVERY = 1.0  # seconds between looks at the file


class KeysError(WhimError):
    """The file of keys cannot be read or written."""


class Key(Struct, frozen=True):
    """A key as it is listed: never the token, nor its hash.

    It is for ``spaces`` only, for all if there are none, and ends after ``until``, a time in UTC.
    """

    name: Name
    scopes: Annotated[list[Scope], Meta(min_length=1)]
    made: str
    revoked: bool = False
    spaces: list[Name] = []
    until: str | None = None

    def allows(self, scope: str) -> bool:
        """Whether it may be used for ``scope``; admin covers all."""
        return not self.revoked and (scope in self.scopes or "admin" in self.scopes)

    def reaches(self, space: str) -> bool:
        """Whether it may be used for a space."""
        return not self.spaces or space in self.spaces

    def ended(self, now: float) -> bool:
        """Whether its time is over; ``now`` in seconds since 1970."""
        return self.until is not None and _stamp(datetime.fromtimestamp(now, UTC)) > self.until


# what has its default is left out: a file without limited keys is as it always was, and an older
# Whim, which would not keep to them, refuses one with them
class StoredKey(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A key as it is kept."""

    name: Name
    scopes: Annotated[list[Scope], Meta(min_length=1)]
    made: str
    revoked: bool
    sha256: Annotated[str, Meta(pattern="^[0-9a-f]{64}$")]
    spaces: list[Name] = []
    until: Annotated[str, Meta(pattern=r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$")] | None = None

    def listed(self) -> Key:
        """What may be shown of it."""
        return Key(
            self.name, list(self.scopes), self.made, self.revoked, list(self.spaces), self.until
        )


class _File(Struct, forbid_unknown_fields=True):
    format: Literal[1]
    keys: list[StoredKey]


_Listed = list[Key]
_Mark = tuple[int, int, int, int]


def _stamp(moment: datetime) -> str:
    """A time in UTC, so that the later one is the greater text."""
    return moment.astimezone(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def _end(until: str) -> str:
    """When a key ends: a time, or the end of a day."""
    try:
        moment = datetime.fromisoformat(until)
    except ValueError:
        raise InvalidInputError(
            f"until must be a day or a time, as 2027-01-31 or 2027-01-31T12:00:00Z, got {until!r}."
        ) from None
    if len(until) <= len("2027-01-31"):
        moment = moment.replace(hour=23, minute=59, second=59)
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return _stamp(moment)


def _hash(token: str) -> str:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()


class Keys:
    """The keys of a service, in ``keys.json``; the file is made with the first key."""

    def __init__(
        self, path: Path, clock: Callable[[], float] = time.monotonic, *,
        wall: Callable[[], float] = time.time, wrong: int = 1000,
    ) -> None:  # fmt: skip
        self.path = path
        self.attempts = Attempts(wrong, clock)
        self._wall = wall
        self.problem: str | None = None  # why nothing is accepted, while that is so
        self._clock = clock
        self._next = -float("inf")
        self._mark: _Mark | None = None
        self._by_hash: dict[str, Key] = {}
        self._reported: tuple[_Mark | None, str | None] = (None, None)
        self._seen = False  # there were keys: a file that goes away must not open anything

    # -- for the service ----------------------------------------------------------------------

    @property
    def any(self) -> bool:
        """Whether a key is required: one was ever made, or the file cannot be read."""
        self._refresh()
        return self._seen or self.problem is not None

    def check(self, token: str) -> Key | None:
        """The key of a token; None if it is unknown or revoked, or its time is over."""
        self._refresh()
        if self.problem is not None:
            return None
        # looked up by hash: what its timing reveals is about the hash, which no caller can steer
        key = self._by_hash.get(_hash(token))
        if key is None or key.revoked or (key.until is not None and key.ended(self._wall())):
            return None
        return key

    def still_allows(self, key: Key | None, scope: str, space: str) -> bool:
        """Whether a request that came with ``key`` a while ago, or with none, would pass now."""
        if not self.any:
            return True
        return key is not None and any(
            now.name == key.name
            and now.allows(scope)
            and now.reaches(space)
            and not now.ended(self._wall())
            for now in self._by_hash.values()
        )

    def changed(self) -> bool:
        """Whether the keys are others than at the last call."""
        self._refresh()
        before, self._reported = self._reported, (self._mark, self.problem)
        return before != self._reported

    def look_again(self) -> None:
        """Look at the file at the next call: it was replaced."""
        self._next = -float("inf")

    def _refresh(self) -> None:
        now = self._clock()
        if now < self._next:
            return
        self._next = now + _EVERY
        try:
            mark = _marked(self.path.stat())
        except FileNotFoundError:
            mark = None
        except OSError as error:
            self._fail(f"{self.path.name} must be readable: {error.strerror}.")
            return
        if mark is not None and mark == self._mark:
            return
        try:
            kept, self._mark = self._read()
        except KeysError as error:
            self._fail(str(error), mark)
            return
        self._by_hash = {k.sha256: k.listed() for k in kept}
        self._seen = self._seen or bool(kept)
        self.problem = None

    def _fail(self, problem: str, mark: _Mark | None = None) -> None:
        self.problem, self._mark, self._by_hash = problem, mark, {}

    # -- for the operator ---------------------------------------------------------------------

    def make(
        self, name: str, scopes: Sequence[str], *, spaces: Sequence[str] = (),
        until: str | None = None,
    ) -> str:  # fmt: skip
        """A new key; its token is returned here and nowhere else."""
        _check_name("name", name)
        for space in spaces:
            _check_name("spaces", space)
        wrong = [scope for scope in scopes if scope not in SCOPES]
        if wrong or not scopes or isinstance(scopes, str):
            came = scopes if isinstance(scopes, str) else wrong[0] if wrong else "none"
            raise InvalidInputError(f"scopes must be among {', '.join(SCOPES)}, got {came!r}.")
        token = "whim_" + secrets.token_urlsafe(32)
        made = _stamp(datetime.now(UTC))
        end = None if until is None else _end(until)
        if end is not None and end < made:
            raise InvalidInputError(f"until must be in the future, got {until!r}.")
        ordered = [scope for scope in SCOPES if scope in scopes]
        with self._locked():
            kept, _ = self._read()
            if any(k.name == name for k in kept):
                raise InvalidInputError(f"name must be new, got {name!r} which exists.")
            limited = [*dict.fromkeys(spaces)]
            new = StoredKey(name, ordered, made, False, _hash(token), limited, end)  # type: ignore[arg-type]
            self._write([*kept, new])
        return token

    def make_first(self, token: str) -> bool:
        """Make the key ``first`` with a token that is known already, if there is none at all."""
        with self._locked():
            kept, _ = self._read()
            if not kept:
                self._write(
                    [StoredKey("first", ["admin"], _stamp(datetime.now(UTC)), False, _hash(token))]
                )
        return not kept

    def revoke(self, name: str) -> None:
        """Revoke a key; its name stays taken."""
        with self._locked():
            kept, _ = self._read()
            if all(k.name != name for k in kept):
                raise InvalidInputError(f"name must be that of a key, got {name!r}.")
            self._write([
                msgspec.structs.replace(k, revoked=True) if k.name == name else k for k in kept
            ])  # fmt: skip

    def list(self) -> _Listed:
        """All keys, in the order in which they were made, revoked ones included."""
        return [k.listed() for k in self._read()[0]]

    # -- the file -----------------------------------------------------------------------------

    def _read(self) -> tuple[StoredKeys, _Mark | None]:
        name = self.path.name
        try:
            with self.path.open("rb") as file:
                mark = _marked(os.fstat(file.fileno()))
                data = file.read()
        except FileNotFoundError:
            if self._seen:
                raise KeysError(f"{name} must stay where it was: it is gone.") from None
            return [], None
        except OSError as error:
            raise KeysError(f"{name} must be readable: {error.strerror}.") from None
        return decode_keys(data, name), mark

    def _write(self, kept: StoredKeys) -> None:
        try:
            write_atomic(self.path, encode_keys(kept), mode=0o600)
        except OSError as error:
            raise KeysError(f"{self.path} must be writable: {error.strerror}.") from None
        self.look_again()

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        """One writer at a time, among processes too."""
        try:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            handle = os.open(
                self.path.with_name(f"{self.path.name}.lock"), os.O_RDWR | os.O_CREAT, 0o600
            )
        except OSError as error:
            raise KeysError(f"{self.path} must be writable: {error.strerror}.") from None
        try:
            if sys.platform != "win32":
                fcntl.flock(handle, fcntl.LOCK_EX)
            yield
        finally:
            os.close(handle)


StoredKeys = list[StoredKey]


def decode_keys(data: bytes, name: str) -> StoredKeys:
    """Keys as they are kept; ``name`` is what errors call it."""
    try:
        kept = msgspec.json.decode(data, type=_File).keys
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise KeysError(f"{name} must be as `whim keys` wrote it: it was altered.") from None
    if len({k.name for k in kept}) < len(kept) or len({k.sha256 for k in kept}) < len(kept):
        raise KeysError(f"{name} must hold every key once: it was altered.")
    return kept


def encode_keys(kept: StoredKeys) -> bytes:
    """The other way round."""
    return msgspec.json.format(msgspec.json.encode(_File(1, kept))) + b"\n"


def _check_name(what: str, name: str) -> None:
    try:
        msgspec.convert(name, Name)
    except msgspec.ValidationError:
        raise InvalidInputError(
            f"{what} must be 1 to 64 letters, digits, dots, dashes and underscores, and begin "
            f"with a letter or digit, got {name!r}."
        ) from None


def _marked(status: os.stat_result) -> _Mark:
    return status.st_mtime_ns, status.st_ctime_ns, status.st_size, status.st_ino
