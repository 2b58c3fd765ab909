"""Figures and one self-contained HTML page from stored findings."""
