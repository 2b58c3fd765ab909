"""Figures and one self-contained HTML page from stored findings."""

from whim.report.figures import draw, save_figure
from whim.report.page import write_report
from whim.report.saved import read_folder
from whim.report.terminal import headline_table

__all__ = ["draw", "headline_table", "read_folder", "save_figure", "write_report"]
