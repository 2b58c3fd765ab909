"""Problems as callers see them: one shape for every error, with the path of the bad field."""

from __future__ import annotations

import re

import msgspec
from msgspec import Struct

from whim.errors import WhimError
from whim.serve.log.reader import StoreError, UnavailableError
from whim.serve.log.store import QueueFullError
from whim.serve.state.limits import FullError, LimitError
from whim.serve.state.recovery import BusyError
from whim.serve.state.space import ConflictError, NotFoundError

_LONGEST = 600


class Problem(Struct):
    """What went wrong: a word for programs, a sentence for people, the field if there is one."""

    code: str
    message: str
    path: str | None = None


class Failure(Struct):
    """The body of every answer that is not a success."""

    error: Problem


class ProblemError(WhimError):
    """An answer that is not a success, from anywhere in a handler."""

    def __init__(
        self, status: int, code: str, message: str, path: str | None = None, **headers: str
    ) -> None:
        if len(message) > _LONGEST:  # it may quote what came
            message = message[: _LONGEST - 5] + " ...."
        super().__init__(message)
        self.status, self.problem = status, Problem(code, message, path and path[:_LONGEST])
        self.headers = {name.replace("_", "-"): value for name, value in headers.items()}


_AT = re.compile(r" - at `(?:key in )?(\$[^`]*)`$")
_FIRST = re.compile(r"^(\$[^\s]*?):? ")
_BY_TYPE: tuple[tuple[type[Exception], int, str], ...] = (
    (NotFoundError, 404, "not_found"),
    (ConflictError, 409, "conflict"),
    (BusyError, 409, "busy"),
    (QueueFullError, 503, "queue_full"),
    (UnavailableError, 503, "unavailable"),
    (FullError, 429, "busy"),
    (LimitError, 422, "limit"),
    (StoreError, 503, "store_failed"),
    (WhimError, 422, "invalid"),
)

_SOON = (QueueFullError, UnavailableError)  # it can be tried again after a second


def problem_of(error: Exception) -> ProblemError | None:
    """An error as an answer; None if it is a fault of ours."""
    if isinstance(error, ProblemError):
        return error
    text = str(error)
    if isinstance(error, msgspec.ValidationError):
        place = _AT.search(text)
        path = place.group(1) if place else "$"
        return ProblemError(422, "invalid", f"{path} is wrong: {_AT.sub('', text)}.", path)
    if isinstance(error, (msgspec.DecodeError, UnicodeDecodeError)):
        return ProblemError(400, "not_json", f"the body must be JSON: {text}.")
    if isinstance(error, RecursionError):
        return ProblemError(422, "invalid", "$ must not be nested so deeply.", "$")
    for kind, status, code in _BY_TYPE:
        if isinstance(error, kind):
            first = _FIRST.match(text)
            wait = {"retry_after": "1"} if status == 429 or kind in _SOON else {}
            return ProblemError(status, code, text, first.group(1) if first else None, **wait)
    return None
