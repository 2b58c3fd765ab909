"""``Encoder`` under its former path; it lives in ``whim.serve.state.encode``."""
