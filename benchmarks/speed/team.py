"""Our side's agents and environment, set up as ``comlrl train`` sets them up."""

from typing import Any

from benchmarks.speed.job import Job, formatters, items, pairs, reward
from benchmarks.speed.models import text
from benchmarks.speed.worker import Turns
from comlrl_agents.config import MADPOConfig, TeamConfig
from comlrl_agents.placement import tune
from comlrl_agents.policy import LLMPolicy
from comlrl_agents.team import load_team
from comlrl_env.functions import from_functions
from comlrl_env.types import Completion, JointTurn, PreferencePair

__all__ = ["MADPOConfig", "environment", "load", "settle", "settle_model", "stored_pairs", "text_pairs"]


def load(job: Job, agents: int, config: TeamConfig, turns: Turns) -> list[LLMPolicy]:
    """The saved agents as policies, in a process tuned for them."""
    policies = load_team([job.agent(index) for index in range(agents)], None, config)
    settle(policies, turns)
    return policies


def settle(policies: list[LLMPolicy], turns: Turns) -> None:
    """Choose threads, allocator and products as the command line does, and note the reasons."""
    settle_model(policies[0].model, turns)


def settle_model(model: Any, turns: Turns) -> None:
    """The same for one model."""
    turns.settings |= tune(next(model.parameters()).device, model)


def environment(job: Job) -> Any:
    """The dataset, formatters and reward function that the peer gets too."""
    return from_functions(items(job), reward, formatters())


def stored_pairs(job: Job, agents: int, *, closed: bool = False) -> list[PreferencePair]:
    """The pairs of the job as they come out of a round file."""
    return [
        PreferencePair(
            winner=(_turn([(own.prompt, own.winner) for own in pair]),),
            loser=(_turn([(own.prompt, own.loser) for own in pair]),),
            winner_reward=1.0,
            loser_reward=0.0,
            candidate_reward_mean=0.5,
            item_key=f"train/{index}",
        )
        for index, pair in enumerate(pairs(job, agents, closed=closed))
    ]


def text_pairs(job: Job, agents: int) -> list[PreferencePair]:
    """The pairs of the job as texts."""

    def side(prompts: list[list[int]], completions: list[list[int]]) -> tuple[JointTurn, ...]:
        return (JointTurn(tuple(map(text, prompts)), tuple(Completion(text(own)) for own in completions)),)

    return [
        PreferencePair(
            winner=side([own.prompt for own in pair], [own.winner for own in pair]),
            loser=side([own.prompt for own in pair], [own.loser for own in pair]),
            winner_reward=1.0,
            loser_reward=0.0,
            candidate_reward_mean=0.5,
            item_key=f"train/{index}",
        )
        for index, pair in enumerate(pairs(job, agents))
    ]


def _turn(sequences: list[tuple[list[int], list[int]]]) -> JointTurn:
    return JointTurn(
        prompts=tuple("" for _ in sequences),
        completions=tuple(Completion("", tuple(completion), False) for _, completion in sequences),
        prompt_ids=tuple(tuple(prompt) for prompt, _ in sequences),
    )
