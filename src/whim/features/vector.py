"""``NamedVector``: numbers that know which feature each of them belongs to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from whim.errors import InvalidInputError


class NamedVector(np.ndarray[Any, np.dtype[np.float64]]):
    """An ordinary vector, and besides: entries by name, and a repr that shows them.

    >>> theta = named([0.25, -1.0], ["age", "device=phone"])
    >>> theta
    NamedVector(age=0.25, device=phone=-1.0)
    >>> float(theta["age"]), float(theta @ [4.0, 1.0])
    (0.25, 0.0)
    >>> theta.to_dict()
    {'age': 0.25, 'device=phone': -1.0}
    """

    names: tuple[str, ...]

    def __array_finalize__(self, of: Any) -> None:
        names = getattr(of, "names", ())
        self.names = names if self.ndim == 1 and len(names) == len(self) else ()

    def __getitem__(self, at: Any) -> Any:
        if isinstance(at, str):
            if at not in self.names:
                raise InvalidInputError(
                    f"the name must be one of {', '.join(self.names[:20])}, got {at!r}."
                )
            return super().__getitem__(self.names.index(at))
        picked = super().__getitem__(at)
        # a part of the vector has other dimensions: it is an ordinary array
        return picked.view(np.ndarray) if isinstance(picked, NamedVector) else picked

    def __reduce__(self) -> Any:
        return named, (self.tolist(), self.names)

    def __repr__(self) -> str:
        if len(self.names) != self.size:
            return repr(self.view(np.ndarray))
        parts = (f"{k}={v:.6g}" if v % 1 else f"{k}={v}" for k, v in self.to_dict().items())
        return f"NamedVector({', '.join(parts)})"

    def to_dict(self) -> dict[str, float]:
        """The numbers by name."""
        return dict(zip(self.names, self.tolist(), strict=True))


def named(numbers: npt.ArrayLike, names: Sequence[str]) -> NamedVector:
    """Numbers with a name for each."""
    vector = np.array(numbers, np.float64).view(NamedVector)
    vector.names = tuple(names)
    return vector
