"""Logged feedback in columns on disk, and readers of others' formats."""
