"""API keys that replicas share: a document in the database, of which each has a file.

The document is the truth. A replica brings its own keys if the database has none, else it takes
what is there, and looks for changes several times in two seconds. It writes them to ``keys.json``,
which ``Keys`` reads as ever: while the database is away the last keys that it had count.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from whim.errors import WhimError
from whim.files import write_atomic
from whim.serve.http.first_key import VARIABLE, make_first_key
from whim.serve.http.guard import refuse_open
from whim.serve.http.keys import Keys, KeysError, StoredKeys, decode_keys, encode_keys
from whim.serve.logging import get
from whim.serve.settings import Settings

if TYPE_CHECKING:
    from whim.serve.http.service import Service

DOCUMENT = "keys"
_EVERY = 0.5  # seconds between looks at the document
_ATTEMPTS = 20  # at a change that others are faster with
_T = TypeVar("_T")


class _ChangedError(WhimError):
    """Another one has changed the keys meanwhile."""


class StoreKeys(Keys):
    """The keys of all replicas over one database, for those who make and revoke them."""

    def __init__(self, documents: Any) -> None:
        super().__init__(Path("keys of the store"))
        self._documents, self._version = documents, 0

    def make(
        self, name: str, scopes: Sequence[str], *, spaces: Sequence[str] = (),
        until: str | None = None,
    ) -> str:  # fmt: skip
        """A new key; its token is returned here and nowhere else."""
        return self._retry(lambda: Keys.make(self, name, scopes, spaces=spaces, until=until))

    def make_first(self, token: str) -> bool:
        """Make the key ``first``, if there is none at all: one of several who try does."""
        return self._retry(lambda: Keys.make_first(self, token))

    def revoke(self, name: str) -> None:
        """Revoke a key; its name stays taken."""
        self._retry(lambda: Keys.revoke(self, name))

    def _retry(self, act: Callable[[], _T]) -> _T:
        for _ in range(_ATTEMPTS):
            with contextlib.suppress(_ChangedError):
                return act()
        raise KeysError("the keys must not change all the time while one is made or revoked.")

    def _read(self) -> tuple[StoredKeys, None]:
        document = self._documents.document(DOCUMENT)
        if document is None:
            self._version = 0
            return [], None
        self._version, body = document
        return decode_keys(body, self.path.name), None

    def _write(self, kept: StoredKeys) -> None:
        if not self._documents.put_document(DOCUMENT, encode_keys(kept), self._version):
            raise _ChangedError("the keys have changed.")

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        yield  # versions see to it that nothing is lost


def open_shared(settings: Settings, documents: Any, path: Path) -> None:
    """Before a replica lets anybody in: its file of keys is up to date, with a first key if asked.

    Raises if others could connect and there is none.
    """
    settle(documents, path)
    if make_first_key(settings, StoreKeys(documents), os.environ):
        get("whim").info("the first key was made of the secret", key_name="first")
        settle(documents, path)
    refuse_open(settings, Keys(path))


def refuse_early(settings: Settings, documents: Any, path: Path) -> None:
    """Raise what ``open_shared`` would, as far as it is known before the log is read."""
    to_come = settings.first_key_file is not None or os.environ.get(VARIABLE)
    if not to_come and documents.document(DOCUMENT) is None:
        refuse_open(settings, Keys(path))


def settle(documents: Any, path: Path) -> bool:
    """Have the same keys in the file as in the database, which takes the file's if it has none.

    Whether the file was written.
    """
    document = documents.document(DOCUMENT)
    before = path.read_bytes() if path.exists() else None
    if document is None:
        if before is None:
            return False
        decode_keys(before, path.name)  # what is damaged must not spread
        documents.put_document(DOCUMENT, before, 0)
        document = documents.document(DOCUMENT)  # another replica may have been faster
    if document is None or document[1] == before:
        return False
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    try:
        write_atomic(path, document[1], mode=0o600)
    except OSError as error:
        raise KeysError(f"{path.name} must be writable: {error.strerror}.") from None
    return True


async def keep_settled(service: Service) -> None:
    """Follow the database's keys, until the service ends."""
    said = False
    while True:
        try:
            if await asyncio.to_thread(settle, service.engine.documents, service.keys.path):
                service.keys.look_again()
            said = False
        except (WhimError, OSError) as error:
            if not said:  # the last keys that were seen count on
                service.log.warning("keys are not followed", reason=str(error))
            said = True
        await asyncio.sleep(_EVERY)
