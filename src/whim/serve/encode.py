"""``Encoder`` under its former path; it lives in ``whim.serve.state.encode``."""

from whim.serve.state.encode import Encoder

__all__ = ["Encoder"]
