"""``Encoder`` under its former path; it lives in ``whim.features``."""

from whim.features.encoder import Encoder

__all__ = ["Encoder"]
