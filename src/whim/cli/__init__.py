"""The command line: one module per verb; parses, calls, prints."""

from __future__ import annotations

import sys

__all__ = ["main"]


def main() -> None:
    """Run the command line; bad input is one line and exit code 2."""
    from whim.errors import WhimError
    from whim.extras import require

    try:
        require("typer", "cli", "The command line needs")
        from whim.cli.app import app

        app()
    except WhimError as error:
        sys.stderr.write(f"whim: {error}\n")
        sys.exit(2)
