"""The documentation as a site: ``make docs``.

Pages are Markdown that also reads well where it lies. What cannot be written by hand is appended
while the site is built: the reference of policies, commands and HTTP calls, from the code itself.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

from _site import notebooks, reference  # noqa: E402

import whim  # noqa: E402

REPOSITORY = "https://github.com/whim-bandits/whim"

project = "Whim"
author = "The Whim authors"
copyright = "The Whim authors, Apache-2.0"
version = release = whim.__version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
]
exclude_patterns = ["_site"]
source_suffix = {".md": "markdown", ".ipynb": "markdown"}
myst_enable_extensions = ["deflist", "dollarmath"]
myst_heading_anchors = 4
# a session that is longer than a line is coloured less; that is all
suppress_warnings = ["misc.highlighting_failure", "toc.empty_glob"]
# types in signatures are named, not linked; links of the text are all checked
nitpick_ignore_regex = [("py:.*", ".*")]

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_preserve_defaults = True
# by the names that the code has for them, and not by what NumPy makes of those
autodoc_type_aliases = {
    "npt.ArrayLike": "ArrayLike", "F64": "ndarray", "I64": "ndarray",
    "Groups": "Groups", "Limits": "Limits",
}  # fmt: skip
napoleon_google_docstring = False
napoleon_use_rtype = False
python_use_unqualified_type_names = True

html_theme = "furo"
html_title = f"Whim {release}"
html_static_path = ["_site/static"]
html_css_files = ["site.css"]
html_js_files = [("focus.js", {"defer": "defer"})]
html_theme_options = {
    "source_repository": f"{REPOSITORY}/",
    "source_branch": "main",
    "source_directory": "docs/",
}
copybutton_prompt_text = "$ "
copybutton_only_copy_prompt_lines = True
copybutton_exclude = ".linenos, .gp, .go"
# outside of the site, what answers strangers with an error is no broken link
linkcheck_timeout = 20
linkcheck_ignore = [rf"{REPOSITORY}/(?:blob|tree|security)/.*"]

_OUTSIDE = re.compile(r"\]\(((?:\.\./)+)([^)#\s]+)(#[^)\s]*)?\)")


def _links(text: str, depth: int) -> str:
    """Links to files that are not part of the site lead to the repository."""

    def linked(match: re.Match[str]) -> str:
        up, path, anchor = match[1].count("../"), match[2], match[3] or ""
        if up <= depth:
            return match[0]
        kind = "tree" if (HERE.parent / path).is_dir() else "blob"
        return f"]({REPOSITORY}/{kind}/main/{path}{anchor})"

    return _OUTSIDE.sub(linked, text)


def _read(app: Any, page: str, source: list[str]) -> None:
    """A page as Sphinx gets it: notebooks as Markdown, generated parts appended."""
    if page.startswith("notebooks/") and page != "notebooks/index":
        source[0] = notebooks.markdown(source[0])
    if page in reference.PARTS:
        source[0] += "\n" + reference.PARTS[page]()
    source[0] = _links(source[0], page.count("/"))


def _skip(app: Any, what: str, name: str, member: Any, skipped: bool, options: Any) -> bool | None:
    """Fields of a named tuple are in its signature; "Alias for field number 0" says nothing."""
    alias = (getattr(member, "__doc__", None) or "").startswith("Alias for field number")
    return True if alias else None


def _named(
    app: Any, what: str, name: str, one: Any, options: Any, signature: str, returns: str
) -> tuple[str | None, str | None]:
    """Aliases within unions and lists by their names, which Sphinx leaves wrapped."""
    wrapped = re.compile(r"TypeAliasForwardRef\('([\w.]+)'\)")
    plain = [text and wrapped.sub(r"\1", text) for text in (signature, returns)]
    return plain[0], plain[1]


def setup(app: Any) -> None:
    """Called by Sphinx."""
    app.connect("source-read", _read)
    app.connect("autodoc-skip-member", _skip)
    app.connect("autodoc-process-signature", _named)
