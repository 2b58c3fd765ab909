"""The errors that Whim raises, all below ``WhimError``.

Messages follow one grammar: the parameter, the constraint, what came instead.
"""

from __future__ import annotations

__all__ = [
    "InvalidInputError", "LogFileError", "StateFileError", "UnknownArmError", "WhimError",
]  # fmt: skip


class WhimError(Exception):
    """Base of every error that Whim raises on purpose."""


class InvalidInputError(WhimError, ValueError):
    """A parameter breaks its constraint; nothing was changed."""


class UnknownArmError(WhimError, LookupError):
    """An arm id was never added or has been retired; nothing was changed."""


class StateFileError(WhimError):
    """A saved policy cannot be read: cut short, altered, too new, or of another class."""


class LogFileError(WhimError):
    """A log or its source cannot be read or written: cut short, altered, or of another format."""
