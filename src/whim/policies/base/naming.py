"""``Naming``: the names of a policy's features, rows by name, its parameters and its repr."""

from __future__ import annotations

import copy
import functools
import inspect
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NoReturn, Self, SupportsIndex

import numpy as np

from whim.errors import InvalidInputError
from whim.features import Features
from whim.features.data import as_row, is_table
from whim.features.vector import named
from whim.types import F64, ChangeEvent

HISTORY = 1000  # changes that a policy remembers
_VECTORS = (np.ndarray, list, tuple)


class Naming:
    """A policy's parameters and features by name, and the changes that it has reported."""

    _params: dict[str, Any]
    _d: int | None
    _m: int
    _encoding: Features | None = None  # of contexts
    _item_encoding: Features | None = None
    _history: deque[ChangeEvent]

    def __new__(cls, *args: Any, **params: Any) -> Self:
        """Keep every constructor parameter: what ``repr`` shows and ``save`` stores."""
        policy = super().__new__(cls)
        policy._params = _parameters(cls, args, params)
        policy._history = deque(maxlen=HISTORY)
        return policy

    # -- parameters -----------------------------------------------------------------------------

    @property
    def params(self) -> dict[str, Any]:
        """The constructor's parameters."""
        return dict(self._params)

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The constructor's parameters, under the name that scikit-learn has for them."""
        return dict(self._params)

    def _in_force(self) -> dict[str, Any]:
        """What parameters that were left out come to."""
        return {}

    def __repr__(self) -> str:
        shown = ", ".join(f"{k}={v!r}" for k, v in (self._params | self._in_force()).items())
        text = f"{type(self).__name__}({shown})"
        if self._encoding is None and self._item_encoding is None:
            return text
        items = "" if self._item_encoding is None else f", items={self._item_encoding!r}"
        return f"{text}.with_features({self._encoding!r}{items})"

    def clone(self, **changes: Any) -> Self:
        """A new policy with the same parameters, but for ``changes``, and features; no arms.

        >>> import whim
        >>> whim.UCB(alpha=0.5, seed=3).clone(seed=4)
        UCB(bonus='ucb1', alpha=0.5, n_features=None, seed=4, ties='first')
        """
        for name in changes:
            if name not in self._params:
                raise InvalidInputError(
                    f"clone must be given parameters of {type(self).__name__} "
                    f"({', '.join(self._params)}), got {name!r}."
                )
        fresh = type(self)(**(self._params | changes))
        return fresh.with_features(self._encoding, items=self._item_encoding)

    def __sklearn_clone__(self) -> Self:
        return self.clone()

    # -- features by name -----------------------------------------------------------------------

    @property
    def features(self) -> Features | None:
        """How rows become contexts, if the policy was given that."""
        return self._encoding

    @property
    def feature_names(self) -> list[str] | None:
        """The names of a context's dimensions, if they have any."""
        return None if self._encoding is None else self._encoding.names

    def with_features(
        self,
        features: Features | Sequence[str] | None,
        *,
        items: Features | Sequence[str] | None = None,
    ) -> Self:
        """Take rows by name from now on, and name features where they are shown; returns itself.

        Contexts may then be dicts, rows of a data frame, or tables where there are many; each is
        checked by name. Vectors are taken as before. The features are saved with the policy, which
        has a copy of its own: ``policy.features.partial_fit`` changes that one.

        Parameters
        ----------
        features
            Of contexts: made by ``whim.features``, or a list of names for plain numbers. As many
            dimensions as ``n_features``.
        items
            The same for the arms' features.

        Examples
        --------
        >>> import whim
        >>> from whim.features import Features, choice, number
        >>> features = Features([number("age", mean=40, scale=10), choice("device", ["phone"])])
        >>> policy = whim.LinUCBDisjoint(n_features=features.size).with_features(features)
        >>> arms = policy.add_arms(["sport", "toys"])
        >>> policy.select({"age": 31, "device": "phone"}).arm
        'sport'
        >>> policy.update("sport", {"age": 31, "device": "phone"}, 1.0)
        >>> policy.coefficients("sport").to_dict().keys()
        dict_keys(['age', 'device=phone', 'constant'])
        >>> policy.select({"age": 31})
        Traceback (most recent call last):
          ...
        whim.errors.InvalidInputError: x must have 'device' (None where it is not known), got 'age'.
        """
        kind = type(self).__name__
        contexts = _checked("features", features, self._d, kind, "n_features")
        things = _checked("items", items, self._m, kind, "n_item_features")
        self._encoding, self._item_encoding = contexts, things
        return self

    def _by_name(self, x: Any) -> Any:
        """A context that came as a row, a sparse row or not at all, as a vector; others as is."""
        if x.__class__ in _VECTORS:
            return x
        if x is None:
            raise InvalidInputError(
                f"x must be a vector of length {self._d}, the context that {type(self).__name__} "
                "needs, got None."
            )
        if hasattr(x, "toarray"):
            return x.toarray().reshape(-1)
        if self._encoding is not None and as_row(x) is not None:
            return self._encoding(x)
        if isinstance(x, Mapping):
            if self._d is None:
                raise InvalidInputError(
                    f"x must be None: {type(self).__name__} was made without n_features, got a "
                    "dict."
                )
            raise InvalidInputError(
                f"x must be a vector of length {self._d}, got a dict: with_features lets "
                f"{type(self).__name__} take rows by name."
            )
        return x

    def _table_by_name(
        self, name: str, X: Any, encoding: Features | None, width: int | None
    ) -> Any:
        """The same for many rows."""
        if X.__class__ is np.ndarray or X is None:
            return X
        if hasattr(X, "toarray"):
            return X.toarray()
        if encoding is not None and isinstance(X, list) and not X:  # no rows, and so no names
            return encoding.many(X)
        if not isinstance(X, Mapping) and not is_table(X):
            return X
        if encoding is not None:
            return encoding._many(X, name)
        if isinstance(X, Mapping) or (isinstance(X, Sequence) and isinstance(X[0], Mapping)):
            if not width:
                raise InvalidInputError(
                    f"{name} must have no names: {type(self).__name__} was made without "
                    "n_features, got dicts."
                )
            raise InvalidInputError(
                f"{name} must be a matrix with {width} columns, got dicts: with_features lets "
                f"{type(self).__name__} take rows by name."
            )
        return X

    def _with_names(self, theta: F64) -> F64:
        """Coefficients of a context, with the names of its features if they have any."""
        encoding = self._encoding
        if encoding is None or len(theta) != encoding.size:
            return theta
        return named(theta, encoding.names)

    def _with_shared_names(self, theta: F64, *, crossed: bool) -> F64:
        """Coefficients of the arms' features, or of their products with those of contexts."""
        if self._item_encoding is None or (crossed and self._encoding is None):
            return theta
        names = self._item_encoding.names
        if crossed and self._encoding is not None:  # as z = kron(y, x) has them
            names = [f"{item} × {x}" for item in names for x in self._encoding.names]
        return named(theta, names) if len(theta) == len(names) else theta

    # -- changes --------------------------------------------------------------------------------

    @property
    def history(self) -> list[ChangeEvent]:
        """The last changes that this object has reported, at most 1000, oldest first; not saved."""
        return list(self._history)

    def _noted(self, event: ChangeEvent) -> ChangeEvent:
        """Remember a change, with the names of the features."""
        encoding = self._encoding
        if encoding is not None and len(event.theta_before) == encoding.size:
            event = replace(event, features=tuple(encoding.names))
        self._history.append(event)
        return event

    # -- copied and saved -----------------------------------------------------------------------

    def __copy__(self) -> Self:
        made = type(self).__new__(type(self))
        vars(made).update(self._copied())
        return made

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        made = memo[id(self)] = type(self).__new__(type(self))  # methods of it refer to it
        vars(made).update(copy.deepcopy(self._copied(), memo))
        return made

    def _copied(self) -> dict[str, Any]:
        """What a copy has."""
        state: Any = self.__getstate__()
        return dict(state)

    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn:
        """Refuse to be pickled: a pickle can run any code, and fits one version only."""
        raise TypeError(
            f"{type(self).__name__} cannot be pickled. Use save(path) and whim.load(path), or "
            "to_bytes() and whim.from_bytes(data), which keep its whole state; clone() makes a "
            "new one."
        )

    def _features_to_header(self) -> dict[str, Any]:
        """What a saved file says of features by name; nothing where there are none."""
        told = {"features": self._encoding, "item_features": self._item_encoding}
        return {name: one.to_dict() for name, one in told.items() if one is not None}

    def _features_from_header(self, header: Mapping[str, Any]) -> None:
        told = [header.get(name) for name in ("features", "item_features")]
        contexts, items = (None if one is None else Features.from_dict(one) for one in told)
        self.with_features(contexts, items=items)


def _checked(
    name: str,
    given: Features | Sequence[str] | None,
    size: int | None,
    kind: str,
    parameter: str,
) -> Features | None:
    if given is None:
        return None
    # a copy: what partial_fit does to the caller's, or to a clone's, must not move these scores
    features = copy.copy(given) if isinstance(given, Features) else Features.plain(given)
    if not size:
        raise InvalidInputError(
            f"{name} must be None: {kind} was made without {parameter}, got {features!r}."
        )
    if features.size != size:
        raise InvalidInputError(
            f"{name} must have {size} dimensions, which is {parameter}, got {features.size}."
        )
    return features


@functools.cache
def _signature(cls: type) -> inspect.Signature:
    return inspect.signature(cls.__init__)  # type: ignore[misc]


def _parameters(cls: type, args: tuple[Any, ...], given: dict[str, Any]) -> dict[str, Any]:
    """All parameters of a constructor by name; none if they do not fit, which it then says."""
    try:
        bound = _signature(cls).bind(None, *args, **given)
    except TypeError:
        return {}
    bound.apply_defaults()
    _, *params = bound.arguments.items()
    return {name: v.item() if isinstance(v, np.generic) else v for name, v in params}
