"""``python -m whim``: the command line."""

from whim.cli import main

main()
