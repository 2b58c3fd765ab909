"""What makes the site out of pages, code and notebooks; used by ``conf.py`` only."""
