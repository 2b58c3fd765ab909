"""The dashboard: what a space does, refreshed in place; no request leaves the service."""

from whim.serve.dashboard.forms import here
from whim.serve.dashboard.routes import routes, trouble

__all__ = ["here", "routes", "trouble"]
