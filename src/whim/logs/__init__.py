"""Logged feedback in columns on disk, and readers of others' formats."""

from whim.logs.columns import Event, Log, open
from whim.logs.writer import Writer

__all__ = ["Event", "Log", "Writer", "open"]
