"""The ``whim`` command: a module of its own, so that Ctrl-C is one line while whim is imported."""

import signal
import sys


def main() -> None:
    """Run the command line; bad input is one line and exit code 2, Ctrl-C is 130."""
    pressed = []

    def note(number: int, frame: object) -> None:
        pressed.append(number)
        raise KeyboardInterrupt

    try:
        signal.signal(signal.SIGINT, note)
        import numpy  # noqa: F401  # here, where what it makes of an interrupt is known

        from whim.cli import main as run

        signal.signal(signal.SIGINT, signal.default_int_handler)
        run()
    except KeyboardInterrupt:
        code: object = 130
    except ImportError:  # what a compiled package makes of an interrupt while it is imported
        if not pressed:
            raise
        code = 130
    except SystemExit as end:  # typer turns Ctrl-C within a verb into this
        code = end.code
    else:
        return
    if code == 130:
        sys.stderr.write("\nwhim: interrupted\n")
    sys.exit(code)  # type: ignore[arg-type]
