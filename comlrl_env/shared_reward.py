"""One shared score out of the dictionaries that a ParallelEnv returns from a step."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal, get_args

from comlrl_env.errors import ConfigError, RewardError
from comlrl_env.types import Score

RewardRule = Literal["mean", "sum", "min", "max"]


def check_rule(rule: str | None) -> None:
    """Refuse an unknown ``reward_rule`` with ConfigError; None stands for "the rewards must be equal"."""
    if rule is not None and rule not in get_args(RewardRule):
        names = ", ".join(get_args(RewardRule))
        raise ConfigError(f"reward_rule: expected None or one of {names}, actually {rule!r}")


def read_number(value: Any) -> float | None:
    """A number of Python, NumPy or torch as a float; None for what is none, a text with digits included."""
    try:
        return None if isinstance(value, str | bytes) else float(value)
    except (TypeError, ValueError, OverflowError):
        return None


def shared_score(
    rewards: Mapping[str, Any], infos: Mapping[str, Any], agents: Sequence[str], rule: RewardRule | None
) -> Score:
    """The score of a joint action from the rewards and infos of the ``agents`` that acted.

    A reward that is not finite makes a failed score, with the status and reason that the first info with one gives
    (keys ``reward_status`` and ``reward_reason``) or else ``"error"``. ``reward_components`` and ``is_success`` are
    taken over from the first agent's info.

    Raises RewardError when an agent has no reward, a reward is no number, or rewards differ and no ``rule`` says how
    to combine them.
    """
    values = [_number(rewards, agent) for agent in agents]
    told = [infos.get(agent) or {} for agent in agents]
    info = told[0]
    broken = [f"{agent}: {value}" for agent, value in zip(agents, values, strict=True) if not math.isfinite(value)]
    if broken:
        info = next((own for own in told if own.get("reward_status", "ok") != "ok"), info)
        status: Literal["timeout", "error"] = "timeout" if info.get("reward_status") == "timeout" else "error"
        reason = str(info.get("reward_reason") or f"the environment gave rewards that are not finite ({broken[0]})")
        return Score.failed(status, reason)
    success = info.get("is_success")
    return Score(
        reward=_combine(values, agents, rule),
        parts=info.get("reward_components") or {},
        is_success=None if success is None else bool(success),
    )


def _number(rewards: Mapping[str, Any], agent: str) -> float:
    if agent not in rewards:
        raise RewardError(f"rewards: expected one for every agent that acted, actually none for {agent!r}")
    value = read_number(rewards[agent])
    if value is None:
        given = f"{type(rewards[agent]).__name__} {rewards[agent]!r:.80}"
        raise RewardError(f"rewards: expected a number for {agent!r}, actually {given}")
    return value


def _combine(values: Sequence[float], agents: Sequence[str], rule: RewardRule | None) -> float:
    first = values[0]
    if rule is None:
        if any(value != first for value in values):
            found = dict(zip(agents, values, strict=True))
            raise RewardError(
                f"rewards: expected the same number for every agent, actually {found}: pairs are made from one "
                "shared score; name a rule with reward_rule='mean', 'sum', 'min' or 'max'"
            )
        return first
    if rule == "min":
        return min(values)
    if rule == "max":
        return max(values)
    total = math.fsum(values)
    return total / len(values) if rule == "mean" else total
