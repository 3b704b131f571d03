"""The other side of each comparison in iterative training (ALGORITHMS 5)."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, TypeVar

import torch

from comlrl_agents.placement import per_agent, pick_device
from comlrl_agents.policy import LLMPolicy
from comlrl_agents.policy_history import PolicyHistory, frozen_copies
from comlrl_agents.remote import Endpoint, remote_team
from comlrl_agents.sides import CandidateSource, CentralSide, Side
from comlrl_agents.streams import Streams
from comlrl_agents.types import Policy
from comlrl_env.joint_text import JointAdapter

Used = TypeVar("Used")
ComparatorName = Literal["current", "current_copy", "model", "history", "api"]
OpenComparator = Callable[[int], Sequence[Policy]]
"""Gives the policies of a round (1-based), one per agent or one for all."""


@dataclass(frozen=True, slots=True)
class ComparatorRule:
    """Who answers on the other side, how many candidates it gives per item, and whether one model writes all roles.

    ``models``: a name for all agents or one per agent. ``endpoint``: the remote model. ``devices``: None for those of
    the team.
    """

    policy: ComparatorName = "current"
    num_candidates: int = 20
    models: str | Sequence[str] | None = None
    endpoint: Endpoint | None = None
    history_k: int = 1
    devices: str | Sequence[str] | None = None
    centralized: bool = False
    centralized_agent_index: int = 0
    concurrent: bool = False


class Comparator:
    """Opens the other side for a round; what it loads, it loads once per round, and lets go of it after.

    ``open_policies``: where the policies of a round come from. The samples come from streams of their own
    (``comparator/<agent>``), so the team's samples are the same whatever the comparator, up to rounding: where both
    sides are the same models, they are sampled in one batch.
    """

    def __init__(
        self, rule: ComparatorRule, team: Sequence[LLMPolicy], open_policies: OpenComparator, adapter: JointAdapter
    ) -> None:
        self.rule = rule
        self._team = team
        self._open = open_policies
        self._adapter = adapter

    def during(
        self, iteration: int, agents: Sequence[str], streams: Streams, use: Callable[[CandidateSource], Used]
    ) -> Used:
        """``use(side)`` with the comparator's side of round ``iteration`` (1-based); nothing of it stays loaded."""
        used = use(self._side(self._open(iteration), agents, streams))
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
        return used

    def _side(self, policies: Sequence[Policy], agents: Sequence[str], streams: Streams) -> CandidateSource:
        rule = self.rule
        if rule.centralized:
            return CentralSide(
                policies[rule.centralized_agent_index if len(policies) > 1 else 0],
                streams["comparator/joint"],
                rule.num_candidates,
                self._adapter,
                self._team[0].sampling,
            )
        everyone = list(policies) * len(agents) if len(policies) == 1 else list(policies)
        return Side(
            everyone,
            [streams[f"comparator/{agent}"] for agent in agents],
            rule.num_candidates,
            [same_tokenizer(policy, own) for policy, own in zip(everyone, self._team, strict=True)],
            rule.concurrent,
        )


def open_comparator(
    rule: ComparatorRule, team: Sequence[LLMPolicy], history: PolicyHistory, load: Callable[[], Sequence[Policy]]
) -> OpenComparator:
    """Where the policies come from.

    ``current``: the live team. ``current_copy``: a frozen copy of it on ``devices``, where those are others than the
    team's. ``model``: what ``load`` gives. ``history``: the policies that the team had ``history_k`` rounds ago; after
    round ν−1 the live policy is number ν−1, so this is number ν−1−k, and the initial policy (number 0) until it exists.
    ``api``: the remote model, over one client for the whole run.
    """
    named = per_agent(rule.devices, len(team), "comparator_devices")
    devices = [None if name is None else pick_device(name, "comparator_devices").value for name in named]

    def copies(_: int) -> Sequence[Policy]:
        moved = any(device not in (None, own.device) for device, own in zip(devices, team, strict=True))
        return frozen_copies(team, devices) if moved else team

    sources: dict[str, OpenComparator] = {
        "current": lambda _: team,
        "current_copy": copies,
        "model": lambda _: load(),
        "history": lambda iteration: history.load(max(0, iteration - 1 - rule.history_k), devices),
    }
    if rule.endpoint is not None:
        remote = remote_team(rule.endpoint, len(team), team[0].sampling)
        return lambda _: remote
    return sources[rule.policy]


def same_tokenizer(policy: Policy, own: LLMPolicy) -> bool:
    """Whether tokens that ``policy`` sampled mean the same to ``own``."""
    if not isinstance(policy, LLMPolicy):
        return True  # it has no tokens at all
    if policy.tokenizer is own.tokenizer:
        return True
    return policy.eos_ids == own.eos_ids and policy.tokenizer.get_vocab() == own.tokenizer.get_vocab()
