"""Small real models, tokenizers and environments for the tests of learners and trainers."""

from typing import Any

import numpy as np
import torch
from pettingzoo import ParallelEnv
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from comlrl_agents.policy import LLMPolicy
from comlrl_agents.types import Sampling
from comlrl_env.spaces import UnicodeText
from comlrl_env.types import Completion, JointTurn, PreferencePair

WORDS = ("red", "green", "blue", "gold")
SPECIAL = ("<pad>", "<s>", "</s>")


def word_tokenizer(words: tuple[str, ...] = WORDS) -> PreTrainedTokenizerFast:
    vocabulary = {word: index for index, word in enumerate((*SPECIAL, *words, "pick", "?"))}
    core = Tokenizer(models.WordLevel(vocabulary, unk_token="?"))
    core.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(
        tokenizer_object=core, pad_token="<pad>", bos_token="<s>", eos_token="</s>", unk_token="?"
    )


def word_model(seed: int = 0, vocabulary: int = 9, layers: int = 1, hidden: int = 16) -> LlamaForCausalLM:
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=vocabulary,
        hidden_size=hidden,
        intermediate_size=2 * hidden,
        num_hidden_layers=layers,
        num_attention_heads=2,
        num_key_value_heads=2,
        max_position_embeddings=64,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
        tie_word_embeddings=True,
    )
    return LlamaForCausalLM(config)


def word_policy(seed: int = 0, sampling: Sampling | None = None) -> LLMPolicy:
    return LLMPolicy(
        word_model(seed), word_tokenizer(), sampling=sampling or Sampling(2, temperature=1.0, top_p=1.0, top_k=None)
    )


def token_pair(
    rng: np.random.Generator, agents: int = 2, *, turns: int = 1, key: str = "item", vocabulary: int = 9
) -> PreferencePair:
    """A pair with random tokens of random lengths."""

    def tokens(low: int, high: int) -> tuple[int, ...]:
        return tuple(int(t) for t in rng.integers(3, vocabulary, size=rng.integers(low, high)))

    def side() -> tuple[JointTurn, ...]:
        return tuple(
            JointTurn(
                prompts=("pick",) * agents,
                completions=tuple(Completion("…", (*tokens(1, 5), 2), True) for _ in range(agents)),
                prompt_ids=tuple((1, *tokens(1, 4)) for _ in range(agents)),
            )
            for _ in range(turns)
        )

    return PreferencePair(
        winner=side(), loser=side(), winner_reward=1.0, loser_reward=0.0, candidate_reward_mean=0.25, item_key=key
    )


class ColourEnv(ParallelEnv[str, str, str]):
    """A foreign environment, written without comlrl_env: both agents must name the *other* colour of red and green.

    Reward 1 when agent a says "red" and agent b says "green", 0.5 when one of the two is right, else 0. ``reward`` may
    be replaced to break it in a test.
    """

    metadata: dict[str, Any] = {"name": "colours"}  # noqa: RUF012 - PettingZoo's way

    def __init__(self, names: tuple[str, ...] = ("a", "b")) -> None:
        self.possible_agents = list(names)
        self.agents: list[str] = []
        self._space = UnicodeText()

    def observation_space(self, agent: str) -> UnicodeText:
        return self._space

    def action_space(self, agent: str) -> UnicodeText:
        return self._space

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        self.agents = list(self.possible_agents)
        return dict.fromkeys(self.agents, "pick"), {agent: {} for agent in self.agents}

    def reward(self, joint: list[str]) -> float:
        wanted = [WORDS[i % len(WORDS)] for i in range(len(joint))]
        return sum(text.split()[:1] == [word] for text, word in zip(joint, wanted, strict=True)) / len(joint)

    def step(self, actions: dict[str, str]) -> Any:
        agents = self.agents
        value = self.reward([actions[agent] for agent in agents])
        self.agents = []
        return (
            dict.fromkeys(agents, "pick"),
            dict.fromkeys(agents, value),
            dict.fromkeys(agents, True),
            dict.fromkeys(agents, False),
            {agent: {} for agent in agents},
        )


def same_weights(first: torch.nn.Module, second: torch.nn.Module) -> bool:
    one, two = first.state_dict(), second.state_dict()
    return one.keys() == two.keys() and all(torch.equal(one[name], two[name]) for name in one)
