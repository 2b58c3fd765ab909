"""Run the notebooks in this process, and store what their cells print and draw.

``python docs/_site/execute.py`` renews the stored output; the tests call ``run`` and compare. No
kernel is started, so that a notebook takes as long as its code. A last line that is an expression
is shown, as Jupyter does.
"""

from __future__ import annotations

import ast
import base64
import contextlib
import io
import json
from pathlib import Path
from typing import Any

NOTEBOOKS = Path(__file__).parent.parent / "notebooks"


def run(notebook: dict[str, Any]) -> dict[str, Any]:
    """The notebook with the output of every cell."""
    names: dict[str, Any] = {"__name__": "__main__"}
    cells = [
        cell if cell["cell_type"] != "code" else {**cell, **_ran(cell, number, names)}
        for number, cell in enumerate(notebook["cells"], 1)
    ]
    return {**notebook, "cells": cells}


def printed(notebook: dict[str, Any]) -> list[str]:
    """What its cells print, as text; figures are left out."""
    outputs = [out for cell in notebook["cells"] for out in cell.get("outputs", ())]
    return [
        "".join(out.get("text", out.get("data", {}).get("text/plain", "")))
        for out in outputs
        if "image/png" not in out.get("data", {})
    ]


def _ran(cell: dict[str, Any], number: int, names: dict[str, Any]) -> dict[str, Any]:
    tree = ast.parse("".join(cell["source"]))
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    said, value = io.StringIO(), None
    with contextlib.redirect_stdout(said):
        exec(compile(tree, f"cell {number}", "exec"), names)
        if isinstance(last, ast.Expr):
            value = eval(compile(ast.Expression(last.value), f"cell {number}", "eval"), names)
    outputs: list[dict[str, Any]] = []
    if said.getvalue():
        outputs.append({"output_type": "stream", "name": "stdout", "text": _lines(said.getvalue())})
    picture = _drawn(value)
    if picture is not None:
        outputs.append(picture)
    elif value is not None:
        data = {"text/plain": _lines(repr(value))}
        outputs.append(
            {"output_type": "execute_result", "execution_count": None, "metadata": {}, "data": data}
        )
    return {"outputs": outputs, "execution_count": None}


def _drawn(value: Any) -> dict[str, Any] | None:
    """A figure as a picture; its title is what a reader hears who cannot see it."""
    if not hasattr(value, "savefig"):
        return None
    from matplotlib import pyplot

    title = "figure: " + "; ".join(filter(None, (axes.get_title() for axes in value.axes)))
    kept = io.BytesIO()
    value.savefig(kept, format="png", dpi=110, metadata={"Software": None})
    pyplot.close(value)
    data = {"image/png": base64.b64encode(kept.getvalue()).decode(), "text/plain": _lines(title)}
    return {"output_type": "display_data", "metadata": {}, "data": data}


def _lines(text: str) -> list[str]:
    return text.splitlines(keepends=True)


def main() -> None:
    """Renew the output of all notebooks."""
    import os
    import tempfile

    for path in sorted(NOTEBOOKS.glob("*.ipynb")):
        notebook = json.loads(path.read_text("utf-8"))
        with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
            os.environ["MPLBACKEND"] = "agg"
            done = run(notebook)
        path.write_text(
            json.dumps(done, indent=1, ensure_ascii=False, sort_keys=True) + "\n", "utf-8"
        )


if __name__ == "__main__":
    main()
