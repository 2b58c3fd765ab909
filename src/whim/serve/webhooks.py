"""``signature`` under its former path; it lives in ``whim.serve.jobs.webhooks``."""

from whim.serve.jobs.webhooks import signature

__all__ = ["signature"]
