"""``CompiledPolicy``: a policy whose arithmetic is compiled. It names its kernels and its state."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar

import numpy as np

from whim import checks
from whim.kernels.loops import Kernels
from whim.policies.base.policy import Policy
from whim.policies.base.scoring import Scoring
from whim.types import F64, I64

_NO_ROWS: F64 = np.zeros((0, 0))
_NO_NOISE: F64 = np.zeros(0)


class CompiledPolicy(Policy):
    """Live calls, batches and loops by the kernels of one model.

    A subclass has ``_kernels`` (a class attribute or a property) and ``_state``. A policy that
    draws names the method of the random stream in ``_draw``; a decision takes ``_each`` numbers
    from it, or one per candidate if that is negative.
    """

    _draw: ClassVar[str] = ""
    _each: int = 0
    _unused: tuple[str, ...] = ()  # what kernels need not have: see ``Kernels.without``
    _code: Kernels  # the policy's kernels without that

    @property
    @abstractmethod
    def _kernels(self) -> Kernels:
        """How the policy decides and learns, compiled."""

    @abstractmethod
    def _state(self) -> Any:
        """The arrays and numbers that the kernels work on, by name."""

    def _bind(self) -> Any:
        kernels, cls = self._kernels.without(*self._unused), type(self)
        decides = cls._score is CompiledPolicy._score and cls._choose is Policy._choose
        learns = cls._observe is CompiledPolicy._observe
        own = self._builds_cross  # else the caller must give cross features, see the error
        at_once = self._decides_at_once()
        # a subclass that changes how it decides or learns is run by live calls
        live = cls.select is Policy.select and cls.update is Policy.update
        same_noise = cls._noise is CompiledPolicy._noise
        self._list_loops = cls._ranked is Scoring._ranked or kernels.has_order
        self._loops = decides and learns and live and same_noise and not self._random_ties
        # in this order: another thread that sees one of them may use those before it
        self._code = kernels
        self._bound = self._state()
        self._choose_kernel = kernels.choose if decides and own and at_once else None
        at_once = self._choose_kernel is not None and self._list_loops
        self._list_kernel = kernels.choose_list if at_once else None
        self._observe_kernel = kernels.observe if learns and own else None
        return self._bound

    def _decides_at_once(self) -> bool:
        """Whether the best candidate can be found in one compiled step."""
        return not (self._draws or self._random_ties)

    def _current(self) -> Any:
        bound = self._bound
        if bound is None:
            with self._lock:
                bound = self._bind() if self._bound is None else self._bound
        return bound

    def _runs_compiled(self, lists: bool = False) -> bool:
        """Whether ``run_events``, or ``run_lists``, may use the compiled loop."""
        self._current()
        return self._loops and (self._list_loops or not lists)

    def _noise(self, rng: np.random.Generator, n: int) -> F64 | None:
        if not self._draw:
            return None
        numbers: F64 = getattr(rng, self._draw)(n if self._each < 0 else self._each)
        return numbers

    def _score(self, x: F64, slots: I64, cross: F64 | None, noise: F64 | None) -> int:
        z = _NO_ROWS if cross is None else cross
        draws = _NO_NOISE if noise is None else noise
        state = self._current()
        place: int = self._code.score.call(state, self._step, x, slots, z, draws, self._out)
        return place

    def _observe(self, slot: int, x: F64, cross: F64 | None, reward: float) -> int:
        if cross is None:
            state = self._current()
            status: int = self._code.observe.call(state, self._step, slot, x, reward)
            return status
        checks.vector("x", x, self._d)
        return self._observe_many(0, np.array([slot]), x[None], cross[None], np.array([reward]))[1]

    def _finish(self, slot: int) -> int:
        status: int = self._code.finish.call(self._bound, self._step, slot)
        return status

    def _warm_finish(self, slot: int) -> None:
        """Compile what an update rarely needs; on a copy that is thrown away."""
        if self._code.has_finish:
            self._finish(slot)

    def _observe_many(
        self, start: int, slots: I64, X: F64, cross: F64 | None, rewards: F64
    ) -> tuple[int, int]:
        z = _NO_ROWS if cross is None else cross
        state = self._current()
        stop: tuple[int, int] = self._code.observe_many(
            state, self._step, start, slots, X, z, rewards
        )
        return stop
