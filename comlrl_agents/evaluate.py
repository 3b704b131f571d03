"""Evaluation: what the current policies earn from the task, never from a learned reward (ALGORITHMS 13)."""

import copy
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from comlrl_agents.items import first_items
from comlrl_agents.questions import agent_prompt, ask_each, start_of
from comlrl_agents.types import Policy
from comlrl_env.parallel import Began, acting_agents, advance, begin
from comlrl_env.shared_reward import RewardRule, shared_score


@dataclass(frozen=True, slots=True)
class Evaluation:
    """``metrics`` under their logged names, one row per item in ``samples``, and the ``returns`` that were judged."""

    metrics: dict[str, float]
    samples: list[dict[str, Any]]
    returns: list[float]


def evaluate(
    policies: Mapping[str, Policy],
    env: Any,
    num_samples: int,
    rngs: Mapping[str, np.random.Generator],
    *,
    batch_size: int = 64,
    reward_rule: RewardRule | None = None,
) -> Evaluation:
    """Play one episode on each of the first ``num_samples`` items of ``env``.

    Args:
        policies, rngs: by agent name. Every item gets random numbers of its own from them, the first items the same
            ones however many there are, where a policy can answer with them (models, functions, scripted players; not
            remote models, nor what brings a ``generate`` of its own).
        batch_size: episodes played side by side on copies of ``env``, so that prompts are answered together; an
            environment that cannot be copied plays them itself, one after another. What such policies answer does not
            depend on it, beyond the rounding of logits.
        reward_rule: how rewards that differ between agents are combined, see ``PreferenceWrapper``.

    Returns:
        Metrics: ``eval/turn_t/reward_mean`` per turn, ``eval/turn_1/expected_return`` (mean sum over turns) and its
        ``eval/standard_error`` (items as independent draws; of two or more),
        ``eval/success_rate`` and ``eval/parts/…`` where the task tells them, ``eval/failed`` (episodes that the oracle
        could not judge or a remote agent did not answer; they are in no mean), ``eval/num_samples``.

    """
    resets = first_items(env, num_samples)
    own = {agent: rng.spawn(len(resets)) for agent, rng in rngs.items()}
    rows: list[dict[str, Any]] = []
    while len(rows) < len(resets):
        at = len(rows)
        batch = resets[at : at + batch_size]
        envs = _copies(env, len(batch))
        states = [begin(one, reset.seed, reset.options) for one, reset in zip(envs, batch, strict=False)]
        rows += _play(policies, envs, states, {agent: each[at:] for agent, each in own.items()}, reward_rule)
    return Evaluation(_metrics(rows), rows, [row["return"] for row in rows if row["return"] is not None])


def _copies(env: Any, count: int) -> list[Any]:
    """``count`` copies of the environment, or the environment alone when it cannot be copied."""
    try:
        return [copy.deepcopy(env) for _ in range(count)]
    except Exception:  # noqa: BLE001 - open connections, locks, processes: its episodes are played one after another
        return [env]


def _play(
    policies: Mapping[str, Policy],
    envs: Sequence[Any],
    states: Sequence[Began],
    rngs: Mapping[str, Sequence[np.random.Generator]],
    reward_rule: RewardRule | None,
) -> list[dict[str, Any]]:
    names = list(envs[0].possible_agents)
    rows: list[dict[str, Any]] = [
        {"item": infos.get(names[0], {}).get("item"), "turns": [], "return": 0.0} for _, infos in states
    ]
    live = list(range(len(envs)))
    starts = [start_of(env, *state) for state, env in zip(states, envs, strict=True)]
    while live:
        acting = {i: acting_agents(envs[i]) for i in live}
        said: dict[int, dict[str, str]] = {i: {} for i in live}
        for agent in names:
            asked = [i for i in live if agent in acting[i]]
            answers = ask_each(
                policies[agent],
                [agent_prompt(starts[i], agent, policies[agent]) for i in asked],
                [starts[i] for i in asked],
                [rngs[agent][i] for i in asked],
            )
            said |= {i: said[i] | {agent: own[0].text} for i, own in zip(asked, answers, strict=True) if own}
        for i in live:
            agents, joint = acting[i], said[i]
            turn: dict[str, Any] = {"prompts": dict(starts[i].prompts), "responses": joint}
            rows[i]["turns"].append(turn)
            if len(joint) < len(agents):
                silent = next(agent for agent in agents if agent not in joint)
                reason = getattr(policies[silent], "last_failure", "") or f"{silent} gave no answer"
                turn |= {"reward": None, "status": "error", "parts": {}, "reason": reason}
                rows[i] |= {"return": None, "success": None, "over": True}
                continue
            observations, rewards, _, _, infos = advance(envs[i], joint)
            starts[i] = start_of(envs[i], observations, infos)
            score = shared_score(rewards, infos, agents, reward_rule)
            known = score.status == "ok"
            if "roles" in infos.get(agents[0], {}):  # one actor wrote for all
                turn["responses"] = infos[agents[0]]["roles"]
            turn |= {
                "reward": score.reward if known else None,
                "status": score.status,
                "parts": dict(score.parts),
                "reason": score.reason or infos.get(agents[0], {}).get("reward_reason", ""),
            }
            rows[i]["success"] = score.is_success
            rows[i]["return"] = rows[i]["return"] + score.reward if known and rows[i]["return"] is not None else None
        live = [i for i in live if envs[i].agents and not rows[i].pop("over", False)]
    return rows


def _metrics(rows: Sequence[dict[str, Any]]) -> dict[str, float]:
    judged = [row for row in rows if row["return"] is not None]
    metrics = {"eval/num_samples": float(len(rows)), "eval/failed": float(len(rows) - len(judged))}
    if not judged:
        return metrics
    metrics["eval/turn_1/expected_return"] = float(np.mean([row["return"] for row in judged]))
    if len(judged) > 1:
        returns = [row["return"] for row in judged]
        metrics["eval/standard_error"] = float(np.std(returns, ddof=1) / math.sqrt(len(returns)))
    for turn in range(max(len(row["turns"]) for row in judged)):
        played = [row["turns"][turn] for row in judged if len(row["turns"]) > turn]
        metrics[f"eval/turn_{turn + 1}/reward_mean"] = float(np.mean([entry["reward"] for entry in played]))
    successes = [row["success"] for row in judged if row["success"] is not None]
    if successes:
        metrics["eval/success_rate"] = float(np.mean(successes))
    last = [row["turns"][-1]["parts"] for row in judged]
    for name in sorted({name for parts in last for name in parts}):
        metrics[f"eval/parts/{name}"] = float(np.mean([parts[name] for parts in last if name in parts]))
    return metrics
