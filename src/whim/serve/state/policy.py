"""What a configuration asks for: its policy and encoders, or what is wrong; its kernels."""

from __future__ import annotations

import inspect
import re

import msgspec

from whim.errors import InvalidInputError
from whim.evaluate.warm import warm_policy
from whim.features.encoder import Encoder
from whim.kernels.jit import NotCachedError, cached_only
from whim.policies import POLICIES, Policy
from whim.policies import policy as make_policy
from whim.policies.registry import meant
from whim.serve.state.reward_rules import check_range
from whim.serve.state.waiting import check_list_rules
from whim.serve.wire import SpaceConfig

_LARGEST_PRODUCT = 4096  # what the hybrids share has its square
SERVED = sorted(POLICIES.keys() - {"oracle-restart"})  # which needs a truth that no service knows


def build(config: SpaceConfig) -> tuple[Policy, Encoder, Encoder]:
    """The policy of a configuration, with sizes filled in, and its two encoders."""
    if config.policy not in SERVED:
        raise InvalidInputError(
            f"$.policy must be one of {', '.join(SERVED)}, got {config.policy!r}"
            f"{meant(config.policy, SERVED)}"
        )
    check_range(config.rewards)
    context, items = Encoder(config.context, "$.context"), Encoder(config.items, "$.features")
    if context.size * items.size > _LARGEST_PRODUCT:
        raise InvalidInputError(
            f"$.items must have at most {_LARGEST_PRODUCT} places times those of the context, got "
            f"{items.size} times {context.size}."
        )
    takes = inspect.signature(POLICIES[config.policy]).parameters
    params = {"seed": config.seed, **config.params}
    for name, encoder in (("n_features", context), ("n_item_features", items)):
        if name in takes and encoder.size:
            params.setdefault(name, encoder.size)
        if name in params and params[name] not in (None, encoder.size):
            raise InvalidInputError(
                f"$.params.{name} must be left out or {encoder.size}, as the features make it, "
                f"got {params[name]!r}."
            )
    if params.get("n_cross_features"):
        raise InvalidInputError(
            "$.params.n_cross_features must be left out: callers send item features."
        )
    if "seed" not in takes:
        del params["seed"]
    try:
        policy = make_policy(config.policy, **params)
    except InvalidInputError as error:
        for name, encoder, what in (
            ("n_features", context, "context"), ("n_item_features", items, "items")
        ):  # fmt: skip
            if not encoder.size and re.search(rf"\b{name}\b", str(error)):
                raise InvalidInputError(
                    f"$.{what} must describe the features that {config.policy} needs, got none."
                ) from None
        named = str(error).partition(" ")[0] in takes
        raise InvalidInputError(f"$.params{'.' if named else ': '}{error}") from None
    if items.size and not policy.n_item_features:
        raise InvalidInputError(
            f"$.items must be empty: {config.policy} takes no item features, got {items.size}."
        )
    if policy.n_item_features and not items.size:
        raise InvalidInputError(
            f"$.items must describe the features that {config.policy} needs, got none."
        )
    check_list_rules(config, policy)
    return policy, context, items


def draws(config: SpaceConfig) -> bool:
    """Whether what is shown depends on draws of the policy itself."""
    return not config.shadow and config.policy in SERVED and POLICIES[config.policy]._draws


def as_logged(config: SpaceConfig) -> SpaceConfig:
    """A configuration as it will be read from the log, numbers of the declared kinds included."""
    return msgspec.msgpack.decode(msgspec.msgpack.encode(config), type=SpaceConfig)


def compile_for(config: SpaceConfig) -> None:
    """Compile or load its kernels before a request needs them: live calls and batches."""
    warm_policy(build(config)[0], ("live", "batch"))


def load_for(config: SpaceConfig) -> bool:
    """As ``compile_for``, if the cache has all that it takes; whether it has."""
    try:
        with cached_only():
            compile_for(config)
    except NotCachedError:
        return False
    return True


def kernels_of(config: SpaceConfig) -> tuple[object, ...]:
    """What decides which kernels a configuration needs: its numbers do not."""
    options = {
        name: value
        for name, value in config.params.items()
        if isinstance(value, (bool, str)) or value is None
    }
    return config.policy, repr(sorted(options.items()))
