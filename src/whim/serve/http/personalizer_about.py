"""What clients of Personalizer ask for at the start: its configuration, policy, model and status.

They can be read, and not changed: a space is changed by ``PUT /v1/spaces/{space}``.
"""

from __future__ import annotations

import json

from msgspec import Struct

from whim.serve.http.problems import ProblemError
from whim.serve.http.routes import Call, Route
from whim.serve.http.service import Service
from whim.serve.starter import personalizer_config
from whim.serve.state.views import moment
from whim.serve.wire import SpaceConfig


class ServiceConfiguration(Struct, rename="camel", kw_only=True):
    """The space's configuration in the words of the retired service.

    Whim learns at once, so nothing is exported at any frequency; -1 days: nothing is removed.
    """

    reward_wait_time: str
    default_reward: float
    reward_aggregation: str
    exploration_percentage: float
    model_export_frequency: str = "PT0S"
    log_mirror_enabled: bool = False
    log_retention_days: int
    learning_mode: str
    is_auto_optimization_enabled: bool = False


class PolicyContract(Struct):
    """The policy's name, and its parameters as JSON."""

    name: str
    arguments: str


class ModelProperties(Struct, rename="camel"):
    """When the space was made, and when its last row came."""

    creation_time: str
    last_modified_time: str


class ServiceStatus(Struct, rename="camel"):
    """Whether requests are served."""

    service: str
    api_status: str
    api_status_message: str


def _config(service: Service) -> SpaceConfig:
    """That of the space, or the one with which the first decision will make it."""
    name = service.settings.personalizer_space
    if name not in service.engine and not service.engine.was_retired(name):
        return personalizer_config()
    return service.engine.space(name).config


async def show_configuration(service: Service, call: Call) -> ServiceConfiguration:
    """Show the configuration, as the retired service did."""
    config, days = _config(service), service.settings.retention_days
    return ServiceConfiguration(
        reward_wait_time=f"PT{config.rewards.wait_seconds:.6f}".rstrip("0").rstrip(".") + "S",
        default_reward=config.rewards.default,
        reward_aggregation=config.rewards.combine,
        exploration_percentage=config.explore,
        log_retention_days=-1 if days is None else max(1, round(days)),
        learning_mode="Apprentice" if config.shadow else "Online",
    )


async def show_policy(service: Service, call: Call) -> PolicyContract:
    """Show the policy, as the retired service did."""
    config = _config(service)
    return PolicyContract(config.policy, json.dumps(config.params, sort_keys=True))


async def show_model(service: Service, call: Call) -> ModelProperties:
    """Show when the model was made and changed last, as the retired service did."""
    name = service.settings.personalizer_space
    if name not in service.engine:
        raise ProblemError(404, "not_found", "there is no model before the first decision.")
    made, last = service.engine.made_and_changed(name)
    return ModelProperties(moment(made), moment(last))


async def show_status(service: Service, call: Call) -> ServiceStatus:
    """Whether requests are served."""
    trouble = service.trouble
    if trouble is not None:
        return ServiceStatus("whim", "Invalid", trouble)
    return ServiceStatus("whim", "Valid", "Requests are served.")


_BASE = "/personalizer/v1.0"
ROUTES: list[Route] = [
    Route("GET", _BASE + "/configurations/service", show_configuration,
          gives=ServiceConfiguration, problems=(404,), tag="personalizer"),
    Route("GET", _BASE + "/configurations/policy", show_policy, gives=PolicyContract,
          problems=(404,), tag="personalizer"),
    Route("GET", _BASE + "/model/properties", show_model, gives=ModelProperties,
          problems=(404,), tag="personalizer"),
    Route("GET", _BASE + "/status", show_status, gives=ServiceStatus, tag="personalizer"),
]  # fmt: skip
