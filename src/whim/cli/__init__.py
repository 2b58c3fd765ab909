"""The command line: one module a verb; parses, calls, prints."""

from __future__ import annotations

import sys

__all__ = ["main"]


def main() -> None:
    """Run the command line; bad input is one line and exit code 2, Ctrl-C is 130."""
    from whim.cli.app import app
    from whim.errors import WhimError

    try:
        app()
    except WhimError as error:
        sys.stderr.write(f"whim: {error}\n")
        sys.exit(2)
    except KeyboardInterrupt:
        sys.stderr.write("\nwhim: interrupted\n")
        sys.exit(130)
