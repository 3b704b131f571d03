"""From the configuration to a back end with its critics, or to an error that says what is missing."""

import copy
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn

from comlrl_agents.config import PolicyFields
from comlrl_agents.critics import Critic, CriticType, own_head, saved_critic, separate_critic
from comlrl_agents.learners.actor_critic import ActorCritic
from comlrl_agents.learners.reinforce import Reinforce
from comlrl_agents.model_source import load_model, named_in
from comlrl_agents.optimisation import distinct_modules
from comlrl_agents.placement import float32_weights, per_agent, pick_device, pick_dtype
from comlrl_agents.policy import LLMPolicy
from comlrl_agents.scalar_model import HEAD
from comlrl_agents.streams import Streams
from comlrl_env.errors import ConfigError


def make_policy_learner(
    policies: Sequence[LLMPolicy],
    args: PolicyFields,
    streams: Streams,
    critics: Sequence[Any] | None = None,
    critic_model: Any = None,
) -> Reinforce | ActorCritic:
    """The back end that ``args.rl_algorithm`` names.

    Args:
        policies: the team.
        args: its configuration.
        streams: give fresh heads their seeds.
        critics: one name, folder or causal language model per critic, each with weights of its own. An object reads the
            tokens of its agent (maac: of the first); a name brings its tokenizer. The folder of a saved critic
            (``model/critic_0`` of a run) brings its head too.
        critic_model: one for all critics. Without both ``critic_model_name`` counts (a list: one for each), and without
            that the first agent's name.

    Raises:
        ConfigError: a critic is given and none is used, or in two ways, none is given and the agents have no name, the
            number of critics is not that of the back end, a source is missing, two would share weights, a device cannot
            be used.

    """
    given = critics if critics is not None else critic_model
    if args.rl_algorithm == "iac" or args.rl_algorithm == "maac":
        if not args.use_separate_critic:
            _refuse_critics(given, "use_separate_critic=False")
            made = _own_heads(policies, args, streams)
        else:
            made = _separate(policies, args, streams, critics, critic_model)
        return ActorCritic(
            policies,
            made,
            args.policy_rule,
            args.value_rule,
            args.optimisation,
            args.critic_optimisation,
            central=args.rl_algorithm == "maac",
            on_actor=not args.use_separate_critic,
        )
    _refuse_critics(given, f"rl_algorithm={args.rl_algorithm!r}")
    return Reinforce(policies, args.rl_algorithm, args.policy_rule, args.optimisation)


def _refuse_critics(given: Any, why: str) -> None:
    if given is not None:
        raise ConfigError(f"critics: {why} has no critics of its own, actually some were given; leave them out")


def _own_heads(policies: Sequence[LLMPolicy], args: PolicyFields, streams: Streams) -> list[Critic]:
    """One head per distinct model; agents that share a model share its head."""
    heads = {
        index: own_head(policies[index], args.critic_type, _seed(streams, index))
        for index in distinct_modules(policies)
    }
    owner = [next(i for i in heads if policies[i].model is policy.model) for policy in policies]
    return [heads[index] for index in owner]


def _separate(
    policies: Sequence[LLMPolicy],
    args: PolicyFields,
    streams: Streams,
    critics: Sequence[Any] | None,
    critic_model: Any,
) -> list[Critic]:
    count, named_sources = args.num_critics, args.critic_model_name
    ways = {"critics=": critics, "critic_model=": critic_model, "critic_model_name": named_sources}
    given = {way: source for way, source in ways.items() if source is not None}
    if len(given) > 1:
        raise ConfigError(f"critics: must be named in one way, actually in {len(given)} ({', '.join(given)}); keep one")
    source: Any = next(iter(given.values()), policies[0].name)
    several = critics is not None or isinstance(source, list)
    if several and (isinstance(source, str) or len(source) != count):
        raise ConfigError(
            f"critics: {args.rl_algorithm!r} needs a list of {count}, one for each critic, actually {source!r:.80}"
        )
    sources = list(source) if several else [source] * count
    if any(source is None for source in sources):
        raise ConfigError(
            "critic_model_name: is required when the first agent is an object that does not say where it came from, "
            'actually None; give a model id, a folder, "tiny", or critics='
        )
    named = per_agent(args.critic_devices, count, "critic_devices")
    central = args.rl_algorithm == "maac"
    made: list[Critic] = []
    for index, (source, device) in enumerate(zip(sources, named, strict=True)):
        policy = policies[index]
        where = policy.device if device is None else pick_device(device, "critic_devices").value
        critic = _critic(source, policy, args.critic_type, _seed(streams, index), copied=not several, central=central)
        _refuse_shared(critic, index, [*policies, *made])
        critic.model.to(where)
        critic.model.compute_dtype = pick_dtype(args.dtype, torch.device(where)).value
        made.append(critic)
    return made


def _critic(source: Any, policy: LLMPolicy, kind: CriticType, seed: int, *, copied: bool, central: bool) -> Critic:
    if isinstance(source, nn.Module):
        model: Any = copy.deepcopy(source) if copied else source
        float32_weights(model)
        known = model.get_input_embeddings().num_embeddings
        if known < len(policy.tokenizer):
            raise ConfigError(
                f"critics: an object reads the tokens of its agent and must know all {len(policy.tokenizer)} of its "
                f"tokenizer, actually {known}; name a model, which brings its own tokenizer"
            )
        return separate_critic(model, policy.tokenizer, kind, seed, central=central)
    if not isinstance(source, str | os.PathLike):
        raise ConfigError(f"critics: must be names, folders or model objects, actually {type(source).__name__}")
    folder = Path(source).expanduser()
    with named_in("critic_model_name" if copied else "critics"):
        if (folder / HEAD).is_file():
            return saved_critic(folder, kind, central=central)
        return separate_critic(*load_model(os.fspath(source)), kind, seed, central=central)


def _refuse_shared(critic: Critic, index: int, others: Sequence[LLMPolicy | Critic]) -> None:
    own = {id(parameter) for parameter in critic.model.parameters()}
    if any(id(parameter) in own for other in others for parameter in other.model.parameters()):
        raise ConfigError(
            f"critics: each must have weights of its own, actually critic {index} shares some with another critic or "
            "an agent; give copies (copy.deepcopy), or names"
        )


def _seed(streams: Streams, index: int) -> int:
    return int(streams.fresh(f"critic/{index}").integers(2**31))
