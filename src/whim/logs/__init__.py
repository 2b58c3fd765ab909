"""Logged feedback in columns on disk, and readers of others' formats."""

from whim.logs.columns import Event, Log, open
from whim.logs.readers import FORMATS, convert
from whim.logs.writer import Writer

__all__ = ["FORMATS", "Event", "Log", "Writer", "convert", "open"]
