"""The log on disk: its rows, the process that writes them, and readers; it knows no policy."""
