"""From what a user passes as ``agents`` to one policy per agent."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from torch import nn

from comlrl_agents.config import TeamConfig
from comlrl_agents.placement import checkpoint_gradients, float32_weights, pick_device, pick_dtype
from comlrl_agents.policy import LLMPolicy, load_policy
from comlrl_env.errors import ConfigError


def load_team(agents: Any, tokenizer: Any, config: TeamConfig) -> list[LLMPolicy]:
    """One policy per agent.

    Args:
        agents: a name (``"tiny"``, a model id, a folder) for all agents, each getting weights of its own; a folder that
            holds ``agent_0``, ``agent_1``, … (from ``save_model``); or a list with one name, model object or policy per
            agent. The same object twice means shared parameters.
        tokenizer: None (each model's own), one for all agents, or a list with one per agent.
        config: gives the number of agents, devices, sampling and the chat setting.

    Raises:
        ConfigError: the number of models or tokenizers is not ``num_agents``, or a source is missing.

    """
    sources = _per_agent("agents", agents, config.num_agents)
    tokenizers = _per_agent("tokenizer", tokenizer, config.num_agents)
    devices = _per_agent("agent_devices", config.agent_devices, config.num_agents)
    made: dict[int, LLMPolicy] = {}
    team = []
    for index, (source, own_tokenizer) in enumerate(zip(sources, tokenizers, strict=True)):
        if isinstance(source, LLMPolicy):
            team.append(source)
            continue
        if isinstance(source, str | os.PathLike) or id(source) not in made:
            made[id(source)] = _policy(source, own_tokenizer, index, devices[index], config)
        team.append(made[id(source)])
    for policy in team:
        policy.compute_dtype = pick_dtype(config.dtype, policy.device).value
        if config.gradient_checkpointing:
            checkpoint_gradients(policy.model)
    return team


def _policy(source: Any, tokenizer: Any, index: int, device: str | None, config: TeamConfig) -> LLMPolicy:
    if isinstance(source, str | os.PathLike):
        return load_policy(
            _saved_agent(os.fspath(source), index),
            tokenizer,
            sampling=config.sampling,
            chat=config.use_chat_template,
            device=device,
        )
    if not isinstance(source, nn.Module):
        raise ConfigError(
            f"agents: must be names, folders, model objects or LLMPolicy objects, actually {type(source).__name__}"
        )
    float32_weights(source)
    if device is not None:
        source.to(pick_device(device).value)
    return LLMPolicy(source, tokenizer, sampling=config.sampling, chat=config.use_chat_template)


def _per_agent(name: str, value: Any, num_agents: int) -> list[Any]:
    if not isinstance(value, Sequence) or isinstance(value, str):
        return [value] * num_agents
    entries = list(value)
    if len(entries) == 1 and isinstance(entries[0], str):
        return entries * num_agents
    if len(entries) != num_agents:
        raise ConfigError(
            f"{name}: must hold one entry per agent (num_agents={num_agents}), actually {len(entries)}; give one for "
            "all or the right number"
        )
    return entries


def _saved_agent(source: str, index: int) -> str:
    own = Path(source).expanduser() / f"agent_{index}"
    return str(own) if own.is_dir() else source
