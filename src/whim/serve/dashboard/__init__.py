"""The dashboard: what a space does, refreshed in place; no request leaves the service."""

from whim.serve.dashboard.access import guarded_routes

__all__ = ["guarded_routes"]
