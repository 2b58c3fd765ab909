"""Structured logs on stderr: text for people, JSON lines for machines, and never a secret.

Everything goes one way, uvicorn's own lines included, so one processor sees all that is said.
"""

from __future__ import annotations

import logging
import re
import sys
from typing import Any

import structlog
from structlog.typing import EventDict

from whim.serve.settings import Settings

_HIDDEN = "***"
_SHOWN = frozenset(("key_name",))  # names that look like secrets and are none
_SECRET = re.compile(
    r"token|authori[sz]ation|secret|cookie|passw|credential|signature|apikey|^body$"
    r"|(?:^|[^a-z])keys?(?:$|[^a-z])",
    re.IGNORECASE,
)
_IN_TEXT = re.compile(r"whim_[A-Za-z0-9_-]{40,}|\b(?:bearer|basic)\s+[A-Za-z0-9+/=._~-]{8,}", re.I)


def _hide(value: Any, depth: int = 0) -> Any:
    """A value without secrets: by their names in objects, by their look in text."""
    if isinstance(value, str):
        return _IN_TEXT.sub(_HIDDEN, value)
    if isinstance(value, (bool, int, float)) or value is None:
        return value
    if depth > 5:
        return "..."
    if isinstance(value, dict):
        return {
            k: _HIDDEN if _SECRET.search(str(k)) else _hide(v, depth + 1) for k, v in value.items()
        }
    if isinstance(value, (list, tuple)):
        return [_hide(v, depth + 1) for v in value]
    return _IN_TEXT.sub(_HIDDEN, repr(value))


def _mask(_: Any, __: str, event: EventDict) -> EventDict:
    for name, value in event.items():
        if name == "exc_info" or name.startswith("_"):  # for the processors that come after
            continue
        secret = name not in _SHOWN and _SECRET.search(name)
        event[name] = _HIDDEN if secret else _hide(value)
    return event


def _uvicorn(_: Any, __: str, event: EventDict) -> EventDict:
    """An access line as fields; a query is left out, for it may hold anything."""
    args = event.pop("positional_args", None)
    if event["_record"].name == "uvicorn.access" and isinstance(args, tuple) and len(args) == 5:
        caller, method, path, _version, status = args
        event.update(event="request", caller=caller, method=method, status=status)
        event["path"] = str(path).partition("?")[0]
    return event


def _plain(value: Any) -> str:
    """On one line, and without what a terminal would obey."""
    text = value if isinstance(value, str) else repr(value)
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def _text(_: Any, __: str, event: EventDict) -> str:
    at, level = event.pop("timestamp", ""), event.pop("level", "")
    name, said = event.pop("logger", ""), event.pop("event", "")
    trace = event.pop("exception", None)
    parts = [f"{at} {level:<7} {_plain(said)}"]
    for key, value in event.items():
        shown = _plain(value)
        parts.append(f"{key}={shown if shown and ' ' not in shown else repr(shown)}")
    parts.append(f"[{name}]")
    lines = [" ".join(parts)]
    if trace:
        lines += ["  " + _plain(line) for line in str(trace).splitlines()]
    return "\n".join(lines)


class _Stderr(logging.Handler):
    """Writes to what stderr is now, not to what it was."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            sys.stderr.write(f"{self.format(record)}\n")
        except Exception:  # of whatever kind: a line that cannot be written must end nothing
            self.handleError(record)


_STAMPS: list[Any] = [
    structlog.stdlib.add_log_level,
    structlog.stdlib.add_logger_name,
    structlog.processors.TimeStamper(fmt="iso", utc=True),
]


def set_up(settings: Settings) -> None:
    """Send all logs to stderr as the settings ask. Run uvicorn with ``log_config=None``."""
    as_json = settings.log_format == "json"
    handler = _Stderr()
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[*_STAMPS, _uvicorn],
            pass_foreign_args=True,
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                structlog.processors.format_exc_info,
                _mask,
                structlog.processors.JSONRenderer() if as_json else _text,
            ],
        )
    )
    root = logging.getLogger()
    for old in [h for h in root.handlers if isinstance(h, _Stderr)]:
        root.removeHandler(old)
    root.addHandler(handler)
    level = settings.log_level.upper()
    # other packages say nothing below a warning: a client's lines hold whole addresses
    levels = {"whim": level, "uvicorn": level, "uvicorn.error": level, "httpx": "WARNING"}
    levels |= {"httpcore": "WARNING", "uvicorn.access": level if settings.access_log else "WARNING"}
    for name, wanted in levels.items():
        logger = logging.getLogger(name)
        logger.setLevel(wanted)
        if name.startswith(("uvicorn", "whim")):  # of whim: the command line's handler
            logger.handlers.clear()
            logger.propagate = True


def get(name: str) -> Any:
    """A logger: ``get("webhooks").warning("not delivered", status=500)``."""
    if name != "whim" and not name.startswith("whim."):
        name = f"whim.{name}"
    return structlog.wrap_logger(
        logging.getLogger(name),
        processors=[
            structlog.stdlib.filter_by_level,
            *_STAMPS,
            structlog.stdlib.PositionalArgumentsFormatter(),
            _mask,
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        wrapper_class=structlog.stdlib.BoundLogger,
    )
