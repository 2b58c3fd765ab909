"""Notebooks as Markdown: cells in order, text output below its cell, figures as pictures."""

from __future__ import annotations

import json
from typing import Any


def markdown(text: str) -> str:
    """The page of a notebook.

    >>> cells = [{"cell_type": "markdown", "source": ["# Hello"]},
    ...          {"cell_type": "code", "source": ["1 + 1"], "outputs": []}]
    >>> print(markdown(json.dumps({"cells": cells})))
    # Hello
    <BLANKLINE>
    ```python
    1 + 1
    ```
    """
    return "\n\n".join(part for cell in json.loads(text)["cells"] for part in _cell(cell))


def _cell(cell: dict[str, Any]) -> list[str]:
    source = "".join(cell["source"])
    if cell["cell_type"] != "code":
        return [source]
    return [f"```python\n{source}\n```", *filter(None, map(_output, cell["outputs"]))]


def _output(output: dict[str, Any]) -> str:
    data = output.get("data", {})
    if "image/png" in data:
        words = "".join(data.get("text/plain", "figure")).strip()
        return (
            f'<img alt="{words}" src="data:image/png;base64,{"".join(data["image/png"]).strip()}">'
        )
    said = "".join(output.get("text", data.get("text/plain", ""))).rstrip()
    return f"```text\n{said}\n```" if said else ""
