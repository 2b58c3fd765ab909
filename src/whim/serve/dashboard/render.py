"""Templates, the words they use for numbers and times, and pages that say what is wrong."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from starlette.responses import HTMLResponse, Response

from whim.serve.dashboard import views
from whim.serve.dashboard.words import policy_words
from whim.serve.http.problems import problem_of
from whim.serve.state.stats import MICRO
from whim.version import __version__

NO_STORE = {"cache-control": "no-store"}
STATIC = Path(__file__).parent / "static"
_TITLES = {
    403: "Not allowed", 404: "Not found", 429: "Too many requests",
    503: "The service cannot answer now",
}  # fmt: skip


def _known(value: float | None) -> bool:
    return value is not None and math.isfinite(value)


def _rate(value: float | None, digits: int = 3) -> str:
    """A number of a size that nobody knows beforehand."""
    if value is None or not math.isfinite(value):
        return "–"
    size = abs(value)
    text = f"{value:.{digits}g}" if size >= 1e6 or 0 < size < 1e-3 else f"{value:.{digits}f}"
    if size >= 100:
        text = f"{value:.4g}"
    return text.replace("-", "−")


def _signed(value: float | None) -> str:
    if value is None or not math.isfinite(value):
        return "–"
    return f"{'+' if value >= 0 else ''}{views.percent(value)}"


def _count(value: float | None) -> str:
    return "–" if value is None else f"{round(value):,}".replace(",", "\u202f")


def _stamp(at: int) -> str:
    return datetime.fromtimestamp(at / MICRO, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _clock(at: int) -> str:
    return datetime.fromtimestamp(at / MICRO, UTC).strftime("%d %b %Y, %H:%M:%S UTC")


_environment = Environment(
    loader=PackageLoader("whim.serve.dashboard"), autoescape=True, undefined=StrictUndefined,
    trim_blocks=True, lstrip_blocks=True,
)  # fmt: skip
_environment.filters.update(
    rate=_rate, signed=_signed, count=_count, percent=views.percent, duration=views.duration,
    known=_known, stamp=_stamp, clock=_clock, p_value=lambda value: f"{value:.2g}",
    px=lambda value: f"{value:.4g}", policy_words=policy_words,
)  # fmt: skip
_environment.globals["version"] = __version__


def render(template: str, /, **values: Any) -> str:
    """A template as text, everything in it escaped."""
    return _environment.get_template(template).render(**values)


def error_page(status: int, title: str, message: str, path: str = "") -> Response:
    """A page that says what is wrong; one that may pass loads itself again."""
    again = status == 503
    text = render(
        "error.html", title=title, message=message, logged_in=False, again=again,
        back=path if again else "/",
    )  # fmt: skip
    return HTMLResponse(text, status, NO_STORE | ({"refresh": "3"} if again else {}))


def problem_page(error: Exception) -> Response:
    """A page that says why no other can be shown."""
    problem = problem_of(error)
    if problem is None:
        message = "The fault is in the service; its log has the details."
        return error_page(500, "Something went wrong", message)
    title = _TITLES.get(problem.status, "This cannot be shown")
    return error_page(problem.status, title, problem.problem.message)
