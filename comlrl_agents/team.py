"""From what a user passes as ``agents`` to one policy per agent."""

import copy
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from torch import nn

from comlrl_agents.config import TeamConfig
from comlrl_agents.model_source import MODEL_FILES, check_source, load_tokenizer, named_in
from comlrl_agents.optimisation import distinct_modules
from comlrl_agents.placement import checkpoint_gradients, float32_weights, per_agent, pick_device, pick_dtype
from comlrl_agents.player_policy import PREFIX
from comlrl_agents.policy import LLMPolicy, load_policy
from comlrl_agents.scalar_model import HEAD
from comlrl_agents.types import Policy
from comlrl_env.errors import ConfigError


def load_team(agents: Any, tokenizer: Any, config: TeamConfig) -> list[LLMPolicy]:
    """One policy per agent.

    Args:
        agents: a name (``"tiny"``, a model id, a folder) for all agents, each getting weights of its own; a folder that
            holds ``agent_0``, ``agent_1``, … (from ``save_model``); or a list with one name, model object or policy per
            agent. The same object twice means shared parameters. A policy lends its model and its tokenizer: sampling
            is the configuration's (and the chat setting, unless the configuration leaves it open).
        tokenizer: None (each model's own), one for all agents, or a list with one per agent; an object or a name.
        config: gives the number of agents, devices, sampling and the chat setting.

    Raises:
        ConfigError: the number of models or tokenizers is not ``num_agents``, a source is missing, or two different
            objects share weights that learn.

    """
    # All folders are looked for before the first model is loaded.
    named = enumerate(per_agent(agents, config.num_actors, "agents"))
    sources = [_found(source, index, "agents", config.num_actors) for index, source in named]
    with named_in("tokenizer"):
        named_tokenizers = per_agent(tokenizer, config.num_actors, "tokenizer")
        tokenizers = [load_tokenizer(one) if isinstance(one, str) else one for one in named_tokenizers]
    devices = _devices(config.agent_devices, config, "agent_devices")
    made: dict[int, LLMPolicy] = {}
    team = []
    for index, (source, own_tokenizer) in enumerate(zip(sources, tokenizers, strict=True)):
        if isinstance(source, str) or id(source) not in made:
            made[id(source)] = _policy(source, own_tokenizer, devices[index], config, "agents")
        team.append(made[id(source)])
    _refuse_two_owners(team)
    for policy in team:
        policy.compute_dtype = pick_dtype(config.dtype, policy.device).value
        if config.gradient_checkpointing:
            checkpoint_gradients(policy.model)
    return team


def _refuse_two_owners(team: Sequence[LLMPolicy]) -> None:
    owner: dict[int, int] = {}
    for index, module in distinct_modules(team).items():
        for parameter in module.parameters():
            first = owner.setdefault(id(parameter), index)
            if first != index and parameter.requires_grad:
                raise ConfigError(
                    "agents: different model objects must not share weights that learn, which would be stepped twice, "
                    f"actually those of agents {first} and {index} do; give one object for both, or a copy "
                    "(copy.deepcopy)"
                )


def load_frozen(models: Any, devices: Any, config: TeamConfig, field: str = "comparator_agents") -> list[Policy]:
    """The policies of a comparator that are models of their own: one for all, or one per agent, without gradients.

    Args:
        models: a name for all (loaded once), or a list with one name, model object or policy of any kind per agent.
            Objects stay where they are.
        devices: one for all, one per agent, or None for those of the team.
        config: gives the number of agents, sampling and the chat setting.
        field: where the models were named, for errors.

    Raises:
        ConfigError: a source is missing or of no use, or the numbers do not fit.

    """
    sources = per_agent(models, config.num_actors, field)
    if devices is None:
        places = _devices(config.agent_devices, config, "agent_devices")
    else:
        places = _devices(devices, config, "comparator_devices")
    made: dict[Any, Policy] = {}
    loaded: list[Policy] = []
    for index, (source, device) in enumerate(zip(sources, places, strict=True)):
        source = _found(source, index, field, config.num_actors)  # noqa: PLW2901
        if not isinstance(source, str | nn.Module):
            loaded.append(source)  # a policy of whatever kind
            continue
        key = (source, device) if isinstance(source, str) else id(source)
        if key not in made:
            policy = _policy(source, None, device, config, field)
            policy.compute_dtype = pick_dtype(config.dtype, policy.device).value
            policy.model.requires_grad_(False)
            made[key] = policy
        loaded.append(made[key])
    return loaded


def check_frozen(models: Any, config: TeamConfig, field: str) -> None:
    """Raise ConfigError when :func:`load_frozen` would find no model of a name; loads nothing."""
    for index, source in enumerate(per_agent(models, config.num_actors, field)):
        found = _found(source, index, field, config.num_actors)
        if isinstance(found, str):
            with named_in(field):
                check_source(found)


def refuse_shared(models: Any, team: Sequence[LLMPolicy], config: TeamConfig, field: str) -> None:
    """Raise ConfigError when :func:`load_frozen` would freeze weights that the team learns."""
    learned = {id(own) for policy in team for own in policy.model.parameters() if own.requires_grad}
    for index, source in enumerate(per_agent(models, config.num_actors, field)):
        if isinstance(source, nn.Module) and any(id(parameter) in learned for parameter in source.parameters()):
            raise ConfigError(
                f"{field}: is frozen, so it must have weights of its own, actually number {index} shares some with the "
                "team; give a copy (copy.deepcopy), or set comparator_policy='current' to compare with the live team"
            )


def _policy(source: Any, tokenizer: Any, device: str | None, config: TeamConfig, field: str) -> LLMPolicy:
    chat = config.use_chat_template
    if isinstance(source, str):
        with named_in(field):
            return load_policy(source, tokenizer, sampling=config.sampling, chat=chat, device=device)
    if isinstance(source, LLMPolicy):
        _ready(source.model, device)
        policy = copy.copy(source)  # the user's keeps its own ways, on the same model
        policy.sampling = config.sampling
        policy.chat = source.chat if chat is None else chat
        return policy
    if not isinstance(source, nn.Module):
        raise ConfigError(
            f"{field}: must be names, folders, model objects or LLMPolicy objects, actually {type(source).__name__}"
        )
    _ready(source, device)
    return LLMPolicy(source, tokenizer, sampling=config.sampling, chat=chat)


def _ready(model: nn.Module, device: str | None) -> None:
    """A model that came as an object, in place: float32 weights, on its device where one is asked for."""
    float32_weights(model)
    if device is not None:
        model.to(pick_device(device).value)


def _devices(given: Any, config: TeamConfig, field: str) -> list[Any]:
    """One device name per agent, or None; one that cannot be used is refused before a model is loaded."""
    names = per_agent(given, config.num_actors, field)
    for name in names:
        pick_device(name, field)
    return names


def _found(source: Any, index: int, field: str, count: int) -> Any:
    """The folder of this agent inside one that holds a saved team; anything else as it is, a name as text.

    Raises ConfigError for what is no language model: a player, a run's whole folder, a reward model or critic.
    """
    if not isinstance(source, str | os.PathLike):
        return source
    if str(source).startswith(PREFIX):
        raise ConfigError(
            f"{field}: {source} is a scripted player, which cannot learn; give a model (players answer as "
            "comparator_model_name= and in `comlrl eval`)"
        )
    folder = Path(source).expanduser()
    own = folder / f"agent_{index}"
    if own.is_dir():
        if (folder / f"agent_{count}").is_dir():
            raise ConfigError(
                f"{field}: {folder} must hold a team of {count}, actually it holds agent_{count} too; give the folder "
                "of a team of that size, or a list with one source per agent"
            )
        return str(own)
    if source == "tiny":
        return source
    if (folder / HEAD).is_file():
        raise ConfigError(
            f"{field}: {folder} holds a reward model or a critic, which gives a number to texts and writes none; give "
            "the folder of a language model"
        )
    if any((folder / name).is_file() for name in MODEL_FILES):
        return os.fspath(source)
    if (folder / "model" / "agent_0").is_dir():
        raise ConfigError(f"{field}: {folder} is the folder of a run; give its trained team, {folder / 'model'}")
    saved = sorted(path.name for path in folder.glob("agent_*") if path.is_dir())
    if saved:
        raise ConfigError(
            f"{field}: {folder} must hold a folder agent_{index} for agent number {index}, actually it holds "
            f"{', '.join(saved)}; give the folder of a team that is as large, or a list with one source per agent"
        )
    return os.fspath(source)
