"""How often a fitted reward model prefers the better of two joint responses to an item that it has not seen.

``python -m benchmarks.learning.reward_accuracy [--seeds 0 1 2]``: two embedded agents answer, a known oracle scores, a
``JointRewardModel`` on the embedded model is fitted to some of the items. One JSON line per oracle and seed.
"""

import argparse
import json
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

import comlrl_env
from comlrl_agents.collect import collect
from comlrl_agents.config import MADPOConfig
from comlrl_agents.items import ItemSchedule
from comlrl_agents.learners.marlhf import RewardFit, RewardFitRule
from comlrl_agents.reward_model import JointRewardModel
from comlrl_agents.sides import Side
from comlrl_agents.team import load_team
from comlrl_env.preferences import PreferenceWrapper
from comlrl_env.tasks.stories.length_ratio import LengthRatio
from comlrl_env.types import PreferencePair, Score

RULE = RewardFitRule(learning_rate=5e-4, num_epochs=3, batch_size=8)
HELD_OUT = 0.125


class JointLength(LengthRatio):
    """The synthetic oracle: the prompts of LengthRatio, and the words of both answers together, 80 or more being 1."""

    def score(self, item: Any, history: Any, responses: Any) -> Score:
        """Words / 80, at most 1."""
        return Score(reward=min(sum(len(text.split()) for text in responses.values()) / 80, 1.0))


ORACLES = {"JointLength": JointLength, "LengthRatio": LengthRatio}


def sample_pairs(oracle: str, items: int, candidates: int, pairs: int, seed: int) -> list[PreferencePair]:
    """Pairs of the untrained team's answers to so many items, drawn at random among those that differ in reward."""
    config = MADPOConfig(
        temperature=0.8, top_p=0.95, top_k=None, max_new_tokens=64, preference_num_candidates=candidates
    )
    env = comlrl_env.TextEnv(ORACLES[oracle](seed=seed, num_items=items))
    rngs = np.random.default_rng([seed, 7]).spawn(3)
    side = Side(load_team("tiny", None, config), rngs[:2], candidates)
    resets = ItemSchedule(env, items).draw(rngs[2])
    return collect(PreferenceWrapper(env, "random", pairs), resets, side, None, rngs[2]).pairs


def fit(pairs: Sequence[PreferencePair], held_out: Sequence[PreferencePair], seed: int) -> dict[str, float]:
    """Held-out loss, accuracy and margin after ``RULE``, and the accuracy on pairs that are well apart."""
    learner = RewardFit(JointRewardModel.from_base("tiny", seed=seed), RULE)
    rng = np.random.default_rng([seed, 8])
    for _ in range(RULE.num_epochs):
        order = rng.permutation(len(pairs))
        for start in range(0, len(order), RULE.batch_size):
            learner.learn([pairs[i] for i in order[start : start + RULE.batch_size]])
    apart = [pair for pair in held_out if pair.winner_reward - pair.loser_reward >= 0.1]
    clear = learner.measure(apart)["reward_model/held_out_accuracy"]
    return learner.measure(held_out) | {"accuracy_at_gaps_from_0.1": clear, "pairs_at_gaps_from_0.1": len(apart)}


def main() -> None:
    """Command line of this module."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--oracles", nargs="+", choices=ORACLES, default=list(ORACLES))
    parser.add_argument("--items", type=int, default=128)
    parser.add_argument("--candidates", type=int, default=16)
    parser.add_argument("--pairs", type=int, default=24, help="per item")
    options = parser.parse_args()
    for oracle in options.oracles:
        for seed in options.seeds:
            start = time.perf_counter()
            pairs = sample_pairs(oracle, options.items, options.candidates, options.pairs, seed)
            keys = list(dict.fromkeys(pair.item_key for pair in pairs))
            held = set(keys[: round(HELD_OUT * len(keys))])
            trained = [pair for pair in pairs if pair.item_key not in held]
            found = fit(trained, [pair for pair in pairs if pair.item_key in held], seed)
            line = {"oracle": oracle, "seed": seed, "pairs": len(trained), "held_out_pairs": len(pairs) - len(trained)}
            seconds = round(time.perf_counter() - start)
            print(json.dumps(line | {k: round(v, 4) for k, v in found.items()} | {"seconds": seconds}), flush=True)


if __name__ == "__main__":
    main()
