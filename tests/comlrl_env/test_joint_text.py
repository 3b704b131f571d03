import time

import pytest

from comlrl_env.env import TextEnv
from comlrl_env.errors import ConfigError
from comlrl_env.joint_text import SectionAdapter, joint_prompt, read_roles
from comlrl_env.preferences import PreferenceWrapper
from comlrl_env.types import Item, Score
from comlrl_env.wrappers import joint_text_env
from tests.comlrl_agents.toys import ColourEnv

READ = SectionAdapter().parse_completion


@pytest.mark.parametrize(
    ("text", "roles"),
    [
        ("<agent_0>a</agent_0><agent_1>b</agent_1>", ["a", "b"]),
        ("talk <AGENT_1> b\n</Agent_1> <agent_0>\n a </agent_0>", ["a", "b"]),
        ("< agent_0 >a</ agent_0 >", ["a", ""]),
        ("<agent_0>first</agent_0><agent_0>second</agent_0>", ["first", ""]),
        ("<agent_0>a <agent_1>b</agent_1> c</agent_0>", ["a <agent_1>b</agent_1> c", "b"]),
        ("<agent_7>x</agent_7>", None),
        ("</agent_0>a<agent_0>", None),
        ("plain", None),
        ("", None),
        ("<agent_0></agent_0>", ["", ""]),
    ],
)
def test_sections_are_read_as_the_specification_says(text, roles):
    assert READ(text, None, 2) == roles


def test_reading_is_linear_whatever_a_model_writes():
    start = time.perf_counter()
    for text in ("<agent_0>" * 100_000, "<" * 500_000, "< " * 200_000, "<agent_0" + " " * 500_000):
        READ(text, None, 2)
    assert time.perf_counter() - start < 3


def test_the_prompt_holds_every_agents_prompt_and_the_form_of_the_answer():
    prompt = SectionAdapter().build_prompt(None, ["alpha", "beta"])
    assert prompt.index("alpha") < prompt.index("beta") < prompt.index("<agent_0>")
    assert READ(prompt, None, 2) == ["the answer of agent_0", "the answer of agent_1"]


def test_what_an_adapter_gives_is_checked():
    class Short(SectionAdapter):
        def parse_completion(self, text, item, n):
            return ["one"]

        def build_prompt(self, item, prompts):
            return ""

    with pytest.raises(ConfigError, match=r"Short.parse_completion must give 2 texts"):
        read_roles(Short(), "x", None, 2)
    with pytest.raises(ConfigError, match=r"Short.build_prompt must give a text"):
        joint_prompt(Short(), None, ["a"])


class EchoTask:
    agents = ("one", "two")
    num_turns = 1

    def items(self, split):
        return [Item(f"{split}/{k}", {"level": k}) for k in range(2)]

    def prompts(self, item, history):
        return {agent: f"{agent} {item.data['level']}" for agent in self.agents}

    def score(self, item, history, responses):
        return Score(reward=float(len(responses["one"]) - len(responses["two"])), parts={"one": 1.0})


@pytest.mark.parametrize("direct", [True, False])
def test_one_actor_scores_as_its_roles_do(direct):
    text = "<agent_0>abc</agent_0><agent_1>x</agent_1>"
    env = joint_text_env(TextEnv(EchoTask(), reward_processor=lambda r: 10 * r))
    wrapper = PreferenceWrapper(env, "all", None)
    prompts, infos = (env if direct else wrapper).reset(seed=1, options={"item": 1})
    assert "one 1" in prompts["actor"]
    assert infos["actor"]["messages"] == [{"role": "user", "content": prompts["actor"]}]
    assert infos["actor"]["item"] == "train/1"
    if direct:
        _, rewards, ended, _, infos = env.step({"actor": text})
        assert rewards == {"actor": 20.0}
        assert ended == {"actor": True}
        assert infos["actor"]["roles"] == {"one": "abc", "two": "x"}
        assert infos["actor"]["raw_reward"] == 2.0
    else:
        *_, infos = wrapper.step({"actor": [text, "unreadable"]})
        assert infos["actor"]["raw_candidate_rewards"] == [2.0, 0.0]
        assert infos["actor"]["preferences"] == [(0, 1)]


def test_any_parallel_env_takes_one_actor():
    env = joint_text_env(ColourEnv())
    env.reset(seed=0)
    _, rewards, *_ = env.step({"actor": "<agent_0>red</agent_0><agent_1>green</agent_1>"})
    assert rewards == {"actor": 1.0}
    assert env.agents == []
