"""Collection: items × policies × slates of candidates → preference pairs and what to know about them."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from msgspec import structs

from comlrl_agents.items import Reset
from comlrl_agents.policy import LLMPolicy
from comlrl_agents.questions import Start, refuse_more_turns, start_of
from comlrl_agents.sides import CandidateSource, Side, answers_of
from comlrl_agents.types import Generation, Policy
from comlrl_env.candidates import ScoreFunction
from comlrl_env.errors import RewardError, TrainingError
from comlrl_env.preferences import PreferenceWrapper
from comlrl_env.selection import Same
from comlrl_env.types import Completion, JointTurn, PreferencePair

MAX_ROWS = 512  # sequences decoded at once by one agent; bounds the memory of the key-value cache


@dataclass(slots=True)
class Collection:
    """The outcome of one collection.

    ``samples``: for each agent the team's own generations (not the comparator's), in order. ``scored``: how many joint
    responses the environment judged, failures included. ``asked`` and ``missing``: candidates that were wanted from
    the comparator, and those that it could not give; ``requests``: what a remote one took. ``examples``: joint
    responses as text with their rewards. ``by_task``: whether the task scored them, and no other judge.
    """

    by_task: bool = True
    pairs: list[PreferencePair] = field(default_factory=list)
    samples: list[list[Generation]] = field(default_factory=list)
    scored: int = 0
    failed: int = 0
    asked: int = 0
    missing: int = 0
    requests: dict[str, int] = field(default_factory=dict)
    timeouts: int = 0
    rewards: list[float] = field(default_factory=list)
    counts: dict[str, list[float]] = field(default_factory=dict)
    examples: list[dict[str, Any]] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)

    def metrics(self) -> dict[str, float]:
        """Statistics of the collection under the names of the log (see the README's glossary)."""
        judged = max(1, self.scored)
        stats: dict[str, float] = {
            "oracle/error_rate": (self.failed - self.timeouts) / judged,
            "oracle/timeout_rate": self.timeouts / judged,
        }
        if self.asked:
            stats["comparator/candidates"] = float(self.asked - self.missing)
            stats["comparator/failed"] = float(self.missing)
            stats |= {f"comparator/{name}": float(count) for name, count in self.requests.items()}
        if self.rewards:
            name = "reward_mean" if self.by_task else "learned_reward_mean"
            stats[f"collect/{name}"] = math.fsum(self.rewards) / len(self.rewards)
        for name, values in self.counts.items():
            if name == "gap_mean":  # of all pairs: items without any have no gap
                weights = [kept for kept in self.counts["kept"] if kept]
                total = math.fsum(gap * kept for gap, kept in zip(values, weights, strict=True))
                stats["pairs/gap_mean" if self.by_task else "pairs/learned_gap_mean"] = total / sum(weights)
            elif name in ("distinct_winners", "distinct_losers"):
                stats[f"pairs/{name}"] = math.fsum(values) / len(values)
            else:
                stats[f"pairs/{name}"] = float(sum(values))
        return stats | completion_metrics(self.samples)

    def without_pairs(self) -> str:
        """In words, what became of the candidates of a collection that gave no pair to train on."""
        ties, duplicates = (int(sum(self.counts.get(name, ()))) for name in ("ties", "duplicates"))
        said = (
            f"of {self.scored} joint responses {self.failed} could not be scored; of the compared pairs {ties} tied "
            f"and {duplicates} had the same answers twice"
        )
        equal = self.rewards and min(self.rewards) == max(self.rewards)
        return f"{said}; every score was {self.rewards[0]:.4g}" if equal else said


def completion_metrics(samples: Sequence[Sequence[Generation]]) -> dict[str, float]:
    """Length in tokens, share that was cut, and repetition of each agent's answers; the first two also over agents."""
    stats: dict[str, float] = {}
    for agent, own in enumerate(samples):
        lengths = [len(g.token_ids) for g in own]
        stats[f"agent_{agent}/mean_length"] = float(np.mean(lengths))
        stats[f"agent_{agent}/clipped_ratio"] = float(np.mean([not g.finished for g in own]))
        stats[f"agent_{agent}/repetition"] = float(np.mean([repetition(g.text) for g in own]))
    for name in ("mean_length", "clipped_ratio"):
        per_agent = [stats[f"agent_{agent}/{name}"] for agent in range(len(samples))]
        stats[f"completions/{name}"] = float(np.mean(per_agent))
    return stats


def repetition(text: str) -> float:
    """The share of three-word sequences of a text that stood in it before: 0 for fresh text, near 1 for a loop."""
    words = text.split()
    grams = [tuple(words[i : i + 3]) for i in range(len(words) - 2)]
    return 1.0 - len(set(grams)) / len(grams) if grams else 0.0


def collect(
    wrapper: PreferenceWrapper,
    items: Sequence[Reset],
    team: Side,
    comparator: CandidateSource | None,
    selection_rng: np.random.Generator,
    score: ScoreFunction | None = None,
) -> Collection:
    """Sample candidates for every item, let the environment judge them, and keep the selected pairs.

    Without a comparator the team's candidates are compared with each other, otherwise candidate k of the team with
    candidate k of the comparator. Candidates that a comparator could not give are counted; an item for which it gave
    none is passed over. ``score`` takes the place of the environment's own judgement.

    Raises:
        TrainingError: not one joint response of any item could be judged, or the comparator gave not one candidate.

    """
    result = Collection(by_task=score is None, samples=[[] for _ in team.policies])
    sides: list[CandidateSource] = [team] if comparator is None else [team, comparator]
    chunk = max(1, MAX_ROWS // max(side.num_candidates for side in sides))
    reason = ""
    for first in range(0, len(items), chunk):
        resets = items[first : first + chunk]
        starts = []
        for reset in resets:
            starts.append(start_of(wrapper, *wrapper.reset(seed=reset.seed, options=reset.options)))
        agents = list(wrapper.possible_agents)
        answers = answers_of(sides, agents, starts)
        reason = answers[-1].reason or reason
        for name, count in answers[-1].counts.items():
            result.requests[name] = result.requests.get(name, 0) + count
        for index, (reset, start) in enumerate(zip(resets, starts, strict=True)):
            given = [side.by_item[index] for side in answers]
            for agent, own in enumerate(given[0]):
                result.samples[agent] += own
            if comparator is not None:
                result.asked += comparator.num_candidates
                result.missing += comparator.num_candidates - len(given[1][0])
            if all(side[0] for side in given):
                _judge(wrapper, reset, start, agents, given, team, selection_rng, result, score)
    if result.asked and result.missing == result.asked:
        raise TrainingError(
            f"comparator: all {result.asked} candidates of {len(items)} items failed, so nothing can be compared; the "
            f"last reason: {reason or 'none given'}"
        )
    if result.failed == result.scored:
        raise TrainingError(
            f"oracle: all {result.scored} joint responses of {len(items)} items failed to be scored, so nothing can be "
            f"learned; the last reason: {result.examples[-1]['reason'] if result.examples else 'none given'}"
        )
    return result


def _judge(
    wrapper: PreferenceWrapper,
    reset: Reset,
    start: Start,
    agents: Sequence[str],
    answers: Sequence[Sequence[Sequence[Generation]]],
    team: Side,
    rng: np.random.Generator,
    result: Collection,
    score: ScoreFunction | None,
) -> None:
    """Score the answers of one item (``answers[side][agent][candidate]``) and add its pairs to ``result``."""
    prompts, infos = wrapper.reset(seed=reset.seed, options=reset.options)
    if prompts != start.prompts:
        raise RewardError(
            f"environment: reset(seed={reset.seed}, options={reset.options}) must give the same prompts each time, "
            f"actually {dict(start.prompts)!r} and then {dict(prompts)!r}; derive the item from the seed alone"
        )
    texts = [{agent: [g.text for g in own] for agent, own in zip(agents, side, strict=True)} for side in answers]
    joint = [tuple(own[k] for own in side) for side in answers for k in range(len(side[0]))]
    same = _same_tokens(joint, team)
    if len(texts) == 1:
        *_, step_infos = wrapper.step(texts[0], rng=rng, score=score, same_tokens=same)
    else:
        *_, step_infos = wrapper.compare(texts[0], texts[1], rng=rng, score=score, same_tokens=same)
    refuse_more_turns(not wrapper.agents)
    info = step_infos[agents[0]]
    rewards = [*info["candidate_rewards"], *info.get("comparator_rewards", [])]
    raw = [*info["raw_candidate_rewards"], *info.get("raw_comparator_rewards", [])]
    statuses = [*info["candidate_statuses"], *info.get("comparator_statuses", [])]
    judged = [reward for reward in rewards if not math.isnan(reward)]
    result.scored += len(rewards)
    result.failed += len(rewards) - len(judged)
    result.timeouts += statuses.count("timeout")
    result.rewards += judged
    for name, value in structs.asdict(info["pair_counts"]).items():
        if not math.isnan(value):  # an item without pairs has no gap
            result.counts.setdefault(name, []).append(value)
    mean = math.fsum(judged) / len(judged) if judged else math.nan
    own_count = len(info["candidate_rewards"])
    item_key = infos.get(agents[0], {}).get("item")
    for winner, loser in info["preferences"]:
        iterative = len(answers) == 2
        target, other = (winner, loser) if winner < own_count else (loser, winner)
        result.pairs.append(
            PreferencePair(
                winner=(_joint_turn(prompts, agents, joint[winner], joint[0]),),
                loser=(_joint_turn(prompts, agents, joint[loser], joint[0]),),
                winner_reward=rewards[winner],
                loser_reward=rewards[loser],
                candidate_reward_mean=mean,
                raw_rewards=(raw[winner], raw[loser]) if iterative else None,
                target_raw_reward=raw[target] if iterative else None,
                comparator_raw_reward=raw[other] if iterative else None,
                item_key=str(item_key) if item_key is not None else f"seed-{reset.seed}",
                agents=tuple(agents),
                by_task=score is None,
            )
        )
    result.examples.append(
        {
            "item": item_key,
            "prompts": [prompts[agent] for agent in agents],
            "responses": [g.text for g in joint[0]],
            "reward": rewards[0] if not math.isnan(rewards[0]) else None,
            "status": statuses[0],
            "reason": info["candidate_scores"][0].reason,
            "parts": dict(info["candidate_scores"][0].parts),
        }
    )


def _joint_turn(
    prompts: Mapping[str, str], agents: Sequence[str], answers: Sequence[Generation], own: Sequence[Generation]
) -> JointTurn:
    """``own``: an answer of the team, which tells the tokens that its agents were fed; a comparator's may be others."""
    return JointTurn(
        prompts=tuple(prompts[agent] for agent in agents),
        completions=tuple(Completion(g.text, g.token_ids or None, g.finished) for g in answers),
        prompt_ids=tuple(g.prompt_ids for g in own) if all(g.token_ids for g in own) else None,
    )


def _same_tokens(joint: Sequence[Sequence[Generation]], team: Side) -> Same | None:
    """Whether two candidates are the same to the agents that learn from them; None where texts tell as much.

    Answers of a remote model may differ in text alone: in white space, or in characters that a tokenizer does not know.
    """
    if all(g.token_ids for answers in joint for g in answers):
        return None

    def tokens(candidate: int) -> list[tuple[Any, ...]]:
        answers = zip(joint[candidate], team.policies, strict=True)
        return [tuple(g.token_ids) or _tokens_of_text(g, policy) for g, policy in answers]

    return lambda first, second: tokens(first) == tokens(second)


def _tokens_of_text(answer: Generation, policy: Policy) -> tuple[Any, ...]:
    if isinstance(policy, LLMPolicy):
        return tuple(policy.encode_completion(answer.text, finished=answer.finished))
    return (answer.text,)
