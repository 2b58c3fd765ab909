"""The page: what a space does, rendered here, refreshed in place; no request leaves the host."""

from whim.serve.page.forms import here
from whim.serve.page.routes import routes, trouble

__all__ = ["here", "routes", "trouble"]
