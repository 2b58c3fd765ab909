"""``compile_for``: a configuration's kernels, compiled or loaded before a request needs them."""

from __future__ import annotations

from whim.evaluate.warm import warm_policy
from whim.serve.state.policy import build
from whim.serve.wire import SpaceConfig


def compile_for(config: SpaceConfig) -> None:
    """Take every path that a space takes: live and in batches."""
    warm_policy(build(config)[0], ("live", "batch"))


def kernels_of(config: SpaceConfig) -> tuple[object, ...]:
    """What decides which kernels a configuration needs: its numbers do not."""
    options = {
        name: value
        for name, value in config.params.items()
        if isinstance(value, (bool, str)) or value is None
    }
    return config.policy, repr(sorted(options.items()))
