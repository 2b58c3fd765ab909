"""Logged feedback in columns on disk, and readers of others' formats."""

from whim.logs.columns import Event, Log, Shown, open
from whim.logs.list_writer import ListWriter
from whim.logs.readers import FORMATS, convert
from whim.logs.writer import Writer

__all__ = ["FORMATS", "Event", "ListWriter", "Log", "Shown", "Writer", "convert", "open"]
