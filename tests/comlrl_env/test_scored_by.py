import copy
import math

import pytest

import comlrl_env
from comlrl_env.errors import ConfigError, RewardError
from comlrl_env.wrappers import ScoredBy


def env():
    return comlrl_env.make("comlrl/LengthRatio-v0")


def answers(env, text="A cat sat."):
    return dict.fromkeys(env.agents, text)


def test_the_function_judges_and_the_task_stands_beside_it():
    asked = []

    def score(prompts, joint):
        asked.append((dict(prompts), [dict(j) for j in joint]))
        return [0.75]

    plain, wrapped = env(), ScoredBy(env(), score)
    prompts, _ = plain.reset(seed=3)
    assert wrapped.reset(seed=3)[0] == prompts
    _, task, *_ = plain.step(answers(plain))
    _, rewards, terminations, _, infos = wrapped.step(answers(wrapped))
    assert asked == [(prompts, [dict.fromkeys(prompts, "A cat sat.")])]
    assert set(rewards.values()) == {0.75}
    assert all(terminations.values())
    for agent, info in infos.items():
        assert info["task_reward"] == task[agent] == info["reward_components"]["task_reward"] != 0.75
        assert info["raw_reward"] == 0.75


def test_a_preference_wrapper_around_it_compares_by_the_function():
    wrapped = ScoredBy(env(), lambda prompts, joint: [float(len(j["author_0"])) for j in joint])
    pairs = comlrl_env.PreferenceWrapper(wrapped)
    pairs.reset(seed=0)
    *_, infos = pairs.step({"author_0": ["long enough", "no"], "author_1": ["x", "y"]})
    assert infos["author_0"]["candidate_rewards"] == [11.0, 2.0]
    assert infos["author_0"]["preferences"] == [(0, 1)]


def test_a_score_that_is_no_number_fails_and_an_infinite_one_is_refused():
    wrapped = ScoredBy(env(), lambda prompts, joint: [math.nan])
    wrapped.reset(seed=0)
    _, rewards, *_, infos = wrapped.step(answers(wrapped))
    assert all(map(math.isnan, rewards.values()))
    assert infos["author_0"]["reward_status"] == "error"
    assert math.isnan(infos["author_0"]["raw_reward"])
    number = "a finite number or NaN for candidate 0, actually "
    one = r"a list with one number per candidate \(1\), actually "
    for wrong, words in [
        ([math.inf], number + "inf"),
        ([None], number + "None"),
        (["1.0"], number + "'1.0'"),
        ([], one + "0 of them"),
        ([1.0, 2.0], one + "2 of them"),
        (None, one + "None, which is no list"),
        (1, one + r"1, which is no list; return e.g. \[0.5\] for one candidate"),
    ]:
        wrapped = ScoredBy(env(), lambda prompts, joint, wrong=wrong: wrong)
        wrapped.reset(seed=0)
        with pytest.raises(RewardError, match=words):
            wrapped.step(answers(wrapped))


def test_copies_share_the_function_and_stand_where_the_original_stands():
    class Judge:
        def __call__(self, prompts, joint):
            return [1.0]

        def __deepcopy__(self, memo):
            raise AssertionError("a model must not be copied for every candidate")

    wrapped = ScoredBy(env(), Judge())
    wrapped.reset(seed=5)
    twin = copy.deepcopy(wrapped)
    assert twin.agents == wrapped.agents
    twin.step(answers(twin))
    assert wrapped.agents
    wrapped.step(answers(wrapped))


def test_what_is_no_function_is_refused_and_the_name_says_who_judges():
    class Model:
        def judge(self, prompts, joint):
            return [0.0 for _ in joint]

        def __call__(self, ids, mask):
            raise NotImplementedError

    for wrong in (Model(), "runs/a"):
        with pytest.raises(ConfigError, match=r"give its judge: ScoredBy\(env, model.judge\)"):
            ScoredBy(env(), wrong)
    assert str(ScoredBy(env(), Model().judge)) == f"ScoredBy({env()})"
