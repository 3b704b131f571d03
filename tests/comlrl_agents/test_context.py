"""Prompts that do not fit are found before anything is sampled."""

import pytest
from transformers import LlamaConfig, Phi3Config

from comlrl_agents.context import refuse_long_prompts
from comlrl_agents.model_source import context_length
from comlrl_agents.policy import ScriptedPolicy
from comlrl_agents.types import Sampling
from comlrl_env.env import TextEnv
from comlrl_env.errors import ConfigError
from comlrl_env.types import Item, Score
from tests.comlrl_agents.test_trainer import iterative
from tests.comlrl_agents.toys import ColourEnv, word_policy


class Growing:
    """The prompt of b has 10 more words in each item; a word is a token, and the BOS is one more."""

    agents = ("a", "b")
    num_turns = 1

    def items(self, split):
        return [Item(f"{split}/{index}", {"words": 10 * index}) for index in range(8)]

    def prompts(self, item, history):
        return {"a": "pick", "b": "red " * item.data["words"] + "pick"}

    def score(self, item, history, responses):
        return Score(reward=0.0)


def longest(answer):
    team = {agent: word_policy(0, Sampling(answer)) for agent in Growing.agents}
    length = len(team["b"].encode("red " * 60 + "pick"))
    return team, length


def test_agent_item_and_lengths_are_named():
    team, length = longest(2)
    match = rf"^agent 'b', item train/6: the prompt has {length} tokens and the answer up to 9 .* room for 64; set max_"
    refuse_long_prompts(team, TextEnv(Growing()), 7)
    team["b"].sampling = Sampling(9)
    refuse_long_prompts(team, TextEnv(Growing()), 6)  # the first six are shorter
    with pytest.raises(ConfigError, match=match):
        refuse_long_prompts(team, TextEnv(Growing()))
    with pytest.raises(ConfigError, match=r"^agent 'b', item train/7: .* shorten the prompt"):
        refuse_long_prompts({"b": word_policy(0, Sampling(1))}, TextEnv(Growing()))
    refuse_long_prompts({"a": team["a"], "b": ScriptedPolicy(lambda prompt, rng: "")}, TextEnv(Growing()))


def test_an_endless_source_is_tried_by_some_seeds():
    class Wordy(ColourEnv):
        def reset(self, seed=None, options=None):
            super().reset(seed)
            return dict.fromkeys(self.agents, "pick " * (1 + 10 * seed)), {agent: {} for agent in self.agents}

    with pytest.raises(ConfigError, match=r"^agent 'a', item of seed 7: the prompt has 7"):
        refuse_long_prompts({"a": word_policy(0, Sampling(1))}, Wordy())


def test_training_refuses_before_it_begins(tmp_path):
    trainer = iterative(tmp_path / "run", TextEnv(Growing()))
    with pytest.raises(ConfigError, match=r"^agent 'b', item train/7: "):
        trainer.train()
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("rope", "room"),
    [
        ({"rope_type": "default"}, 64),
        ({"rope_type": "longrope", "short_factor": [1.0] * 4, "long_factor": [4.0] * 4}, 16),
    ],
)
def test_rotary_positions_that_change_for_longer_texts_end_the_context(rope, room):
    sizes = {"vocab_size": 9, "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "pad_token_id": 0}
    rope = {"rope_theta": 10000.0, **rope}
    longest = {"max_position_embeddings": 64, "original_max_position_embeddings": 16}
    assert context_length(Phi3Config(**sizes, **longest, rope_parameters=rope)) == room
    dynamic = {"rope_theta": 10000.0, "rope_type": "dynamic", "factor": 4.0}
    assert context_length(LlamaConfig(**sizes, max_position_embeddings=64, rope_parameters=dynamic)) == 64
