"""The first key of a new service, from a secret: for machines on which nobody types."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from whim.serve.http.keys import Keys
from whim.serve.settings import ConfigError, Settings

VARIABLE = "WHIM_FIRST_KEY"
_LEAST, _MOST = 32, 256


def make_first_key(settings: Settings, keys: Keys, environment: Mapping[str, str]) -> bool:
    """Make the key ``first``, of scope admin, from the secret if there is no key; whether it did.

    The secret is the value of ``WHIM_FIRST_KEY`` or what is in the file ``first_key_file``. Where
    there are keys it is not looked at, so that a key that was revoked does not come back.
    """
    name, token = VARIABLE, environment.get(VARIABLE, "").strip()
    if settings.first_key_file is not None:
        if token:
            raise ConfigError(f"first_key_file must not be set if {VARIABLE} is, got both.")
        name, token = "first_key_file", _read(Path(settings.first_key_file))
    if not token and name == VARIABLE:
        return False
    if not _LEAST <= len(token) <= _MOST or not token.isascii() or not token.isprintable():
        raise ConfigError(
            f"{name} must have {_LEAST} to {_MOST} printable ASCII characters, got {len(token)}."
        )
    if " " in token:
        raise ConfigError(f"{name} must have no spaces inside, got {token.count(' ')}.")
    return keys.make_first(token)


def _read(path: Path) -> str:
    try:
        return path.read_bytes().decode().strip()
    except OSError as error:
        raise ConfigError(
            f"first_key_file must be a file that can be read, got {path}: {error.strerror}."
        ) from None
    except UnicodeDecodeError:
        raise ConfigError(f"first_key_file must be text, got {path}.") from None
