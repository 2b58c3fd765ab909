"""``signature`` under its former path; it lives in ``whim.serve.jobs.webhooks``."""
