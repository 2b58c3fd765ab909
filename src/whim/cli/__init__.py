"""The command line: one module per verb; parses, calls, prints."""

from __future__ import annotations

import logging
import sys

__all__ = ["main"]


def main() -> None:
    """Run the command line; bad input, or what the system refuses, is one line and exit code 2."""
    from whim.errors import WhimError
    from whim.extras import require

    show_notices()
    try:
        require("typer", "cli", "The command line needs")
        from whim.cli.app import app

        app()
    except WhimError as error:
        sys.stderr.write(f"whim: {error}\n")
        sys.exit(2)
    except OSError as error:  # a full disk, a file that is another's
        where = "" if error.filename is None else f"{error.filename}: "
        sys.stderr.write(f"whim: {where}{error.strerror or error}\n")
        sys.exit(2)


class _Notices(logging.Handler):
    """Writes to what stderr is now: a progress bar may have put itself in between."""

    def emit(self, record: logging.LogRecord) -> None:
        sys.stderr.write(f"whim: {record.getMessage()}\n")


def show_notices() -> None:
    """Show on stderr what the library logs, such as that kernels are being compiled."""
    logger = logging.getLogger("whim")
    logger.handlers[:] = [_Notices()]  # not a second one if it is called again
    logger.setLevel(logging.INFO)
