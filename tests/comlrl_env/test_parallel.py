"""Environments of others that return something else than PettingZoo says."""

import pytest

from comlrl_env.errors import TaskError
from comlrl_env.parallel import advance, begin
from comlrl_env.preferences import PreferenceWrapper
from comlrl_env.wrappers import CentralisedEnv, DictObservation, EpisodeStatistics
from tests.comlrl_env.foreign_envs import EchoEnv

PROMPTS, INFOS = {"ann": "a", "bob": "b"}, {"ann": {}, "bob": {}}
OVER = dict.fromkeys(PROMPTS, True)


class Returning(EchoEnv):
    """Returns what it is told to."""

    def __init__(self, on_reset=(PROMPTS, INFOS), on_step=None):
        super().__init__()
        self.on_reset, self.on_step = on_reset, on_step

    def reset(self, seed=None, options=None):
        self.agents = list(self.possible_agents)
        return self.on_reset

    def step(self, actions):
        self.agents = []
        return self.on_step


@pytest.mark.parametrize(
    ("returned", "text"),
    [
        (None, "actually what it returns: NoneType None"),
        (PROMPTS, "actually what it returns: dict {'ann': 'a', 'bob': 'b'}"),
        ((PROMPTS, None), "actually infos: NoneType None"),
        ((PROMPTS, {"ann": {}, "bob": None}), r"actually infos\['bob'\]: NoneType None"),
    ],
)
def test_what_reset_returns_is_named(returned, text):
    match = rf"Returning.reset: expected a tuple of 2 dictionaries .*observations, infos.* {text}; `comlrl check`"
    with pytest.raises(TaskError, match=match):
        begin(Returning(on_reset=returned))


@pytest.mark.parametrize(
    ("returned", "text"),
    [
        (1.0, "actually what it returns: float 1.0"),
        (None, "actually what it returns: NoneType None"),
        ((PROMPTS, 1.0, True, {}), "actually what it returns: tuple "),  # the four of old gym
        ((PROMPTS, 1.0, OVER, OVER, INFOS), "actually rewards: float 1.0"),
        ((PROMPTS, {"ann": 1.0, "bob": 1.0}, True, OVER, INFOS), "actually terminations: bool True"),
        ((PROMPTS, {"ann": 1.0, "bob": 1.0}, OVER, OVER, None), "actually infos: NoneType None"),
    ],
)
def test_what_step_returns_is_named(returned, text):
    env = Returning(on_step=returned)
    begin(env)
    with pytest.raises(TaskError, match=rf"Returning.step: expected a tuple of 5 dictionaries .* {text}"):
        advance(env, {})


@pytest.mark.parametrize("wrapper", [PreferenceWrapper, CentralisedEnv, DictObservation, EpisodeStatistics])
def test_every_wrapper_says_what_a_step_returned(wrapper):
    env = wrapper(Returning(on_step=1.0))
    env.reset(seed=0)
    actions = {agent: ["x"] if wrapper is PreferenceWrapper else "x" for agent in PROMPTS}
    with pytest.raises(TaskError, match=r"Returning.step: expected .* actually what it returns: float 1.0"):
        env.step(actions)


def test_what_is_right_comes_back_as_it_is():
    env = EchoEnv()
    observations, infos = begin(env, 3, {"item": 1})
    assert observations == EchoEnv().reset(seed=3)[0]
    assert infos == INFOS
    assert advance(env, {"ann": "", "bob": ""})[1] == {"ann": 0.0, "bob": 0.0}
