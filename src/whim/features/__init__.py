"""Data as people have it become vectors with names: numbers, categories, text, missing values.

``fit`` looks at a table, ``Features`` declares; both give an object that turns a row, or a table,
into vectors. ``policy.with_features`` lets a policy take such rows; a space of the service declares
the same (``Features.config``), and ``whim convert`` stores in a log what it did (``load``).
"""

from whim.features.features import Features, load
from whim.features.fields import Field, choice, cyclic, flag, number, text
from whim.features.fit import fit
from whim.features.vector import NamedVector

__all__ = [
    "Features", "Field", "NamedVector", "choice", "cyclic", "fit", "flag", "load", "number", "text",
]  # fmt: skip
