"""``python -m whim``: the command line."""

from whim_command import main

main()
