"""Where learning from rewards went wrong once: orders, contexts, single samples, failures in between."""

import copy
import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers
from msgspec import structs

from comlrl_agents import JointRewardModel, RLConfig, RLTrainer
from comlrl_agents.items import Reset
from comlrl_agents.learners.marlhf import RewardFit, RewardFitRule
from comlrl_agents.logprobs import sequence_logprobs
from comlrl_agents.policy import LLMPolicy
from comlrl_agents.policy_gradient import PolicyRule
from comlrl_agents.policy_learners import make_policy_learner
from comlrl_agents.policy_window import Window, beside_the_task
from comlrl_agents.rollouts import Group, TaskReward
from comlrl_agents.scalar_model import ScalarModel, backbone_of
from comlrl_agents.streams import Streams
from comlrl_agents.types import Generation
from comlrl_env import PreferenceWrapper
from comlrl_env.errors import CheckpointError, ConfigError, RewardError, TrainingError
from comlrl_env.wrappers import ScoredBy
from tests.comlrl_agents.test_marlhf_trainer import SMALL, iterative, lines, marlhf, team
from tests.comlrl_agents.test_policy_learners import critic, groups_of, iac
from tests.comlrl_agents.test_reward_model import pairs_of, reward_model
from tests.comlrl_agents.toys import ColourEnv, same_weights, word_model, word_policy, word_tokenizer

# ------------------------------------------------------------------ who is who


class Reversed(ColourEnv):
    """Its ``agents`` stand in another order than its ``possible_agents``."""

    def reset(self, seed=None, options=None):
        super().reset(seed, options)
        self.agents.reverse()
        return {agent: f"pick {agent}" for agent in self.agents}, {agent: {} for agent in self.agents}

    def step(self, actions):
        self.agents.reverse()
        return super().step(actions)


def group(texts, rewards=(), prompts=("pick a", "pick b")):
    return Group("item", Reset(0), prompts, tuple((Generation(text),) for text in texts), rewards)


def test_an_environments_own_order_of_agents_changes_no_reward():
    assert TaskReward(Reversed())([group(("red", "green"))]) == [[1.0]]
    asked = []

    def judge(prompts, joint):
        asked.append((list(prompts.items()), [list(one.items()) for one in joint]))
        return [0.0]

    expected = ([("a", "pick a"), ("b", "pick b")], [[("a", "red"), ("b", "green")]])
    wrapped = PreferenceWrapper(Reversed())
    wrapped.reset(seed=0)
    wrapped.step({"b": ["green"], "a": ["red"]}, score=judge)
    env = ScoredBy(Reversed(), judge)
    env.reset(seed=0)
    env.step({"b": "green", "a": "red"})
    assert asked == [expected, expected]


def test_an_environment_that_ignores_its_seed_is_noticed():
    class Forgetful(ColourEnv):
        count = 0

        def reset(self, seed=None, options=None):
            prompts, infos = super().reset(seed, options)
            self.count += 1
            return dict.fromkeys(prompts, f"pick {'red' if self.count % 2 else 'blue'}"), infos

    with pytest.raises(RewardError, match=r"must give the same prompts each time, actually .'pick a', 'pick b'"):
        TaskReward(Forgetful())([group(("red", "green"))])


def test_a_reward_model_judges_teams_of_its_own_size(tmp_path, base):
    trainer = marlhf(tmp_path, base, num_train_epochs=1)
    trainer.train()
    model = JointRewardModel.from_pretrained(tmp_path / "model" / "reward_model")
    assert model.judge({"a": "pick", "b": "pick"}, [{"a": "red", "b": "green"}])
    with pytest.raises(ConfigError, match=r"fitted to the texts of 2 agents and must judge as many, actually .'actor'"):
        model.judge({"actor": "pick"}, [{"actor": "red"}])


# ------------------------------------------------------------------ what cannot be scored


class Unscored(ColourEnv):
    """Every third item fails; items are told apart by their seeds."""

    num_items = 3

    def reset(self, seed=None, options=None):
        self.number = (options or {}).get("item", 0)
        prompts, _ = super().reset(seed)
        return dict.fromkeys(prompts, "pick " + "red " * self.number), {a: {"item": str(self.number)} for a in prompts}

    def reward(self, joint):
        return math.nan if self.number == 2 else super().reward(joint)


def test_a_line_whose_responses_all_failed_is_logged_and_the_run_goes_on(tmp_path):
    settings = SMALL | {"rollout_buffer_size": 1, "logging_steps": 1, "items_per_round": 3, "num_train_epochs": 2}
    trainer = RLTrainer(Unscored(), eval_env=ColourEnv(), agents=team(), args=RLConfig(**settings), output_dir=tmp_path)
    trainer.train()
    logged = [line for line in lines(tmp_path) if "oracle/error_rate" in line]
    failed = [line for line in logged if line["oracle/error_rate"] == 1.0]
    assert failed  # at the end of an epoch; elsewhere the line grows until something was learned
    assert not any("rollout/reward_mean" in line or "turn_1/reward_mean" in line for line in failed)


def test_the_task_looks_at_the_latest_responses_of_the_whole_line():
    window = Window()
    window.groups += [group(("red", "green"), (float(k),)) for k in range(5)]
    seen = []

    def task(groups):
        seen.extend(one.rewards[0] for one in groups)
        return [[2 * one.rewards[0]] for one in groups]

    metrics, rows = beside_the_task(window.groups, task, 4)
    assert seen == [4.0, 3.0, 2.0, 1.0]
    assert metrics == pytest.approx(
        {"reward_check/learned_mean": 2.5, "reward_check/task_mean": 5.0, "reward_check/correlation": 1.0}
    )
    assert len(rows) == 4
    assert "reward_check/correlation" not in beside_the_task(window.groups, task, 3)[0]


def test_a_reward_model_that_is_not_finite_reaches_no_checkpoint(tmp_path, base, monkeypatch):
    trainer = marlhf(tmp_path, base, reward_num_train_epochs=1, reward_train_batch_size=1000)  # one update
    real = RewardFit.learn

    def poisoned(self, pairs):
        stats = real(self, pairs)
        with torch.no_grad():
            self.model.head.weight.fill_(math.nan)
        return stats

    monkeypatch.setattr(RewardFit, "learn", poisoned)
    with pytest.raises(TrainingError, match=r"round 1: reward model: the rewards of item .* must be"):
        trainer.train()
    states = [torch.load(path, weights_only=True) for path in (tmp_path / "checkpoints").glob("*/learner.pt")]
    assert states
    assert not any(state["reward_model"] and state["reward_model"]["head.weight"].isnan().any() for state in states)


# ------------------------------------------------------------------ what a context holds


def positional(positions, layers=1, **fields):
    torch.manual_seed(0)
    config = transformers.GPT2Config(
        vocab_size=9, n_positions=positions, n_embd=16, n_layer=layers, n_head=2, bos_token_id=1, eos_token_id=2
    )
    return transformers.GPT2LMHeadModel(config).eval()


def test_rows_that_fit_alone_fit_together():
    model = positional(32)
    prompts = [(1,) * 20] * 16 + [(3,) * 4] * 16
    answers = [(k % 9, k // 9, *(5,) * 10) for k in range(16)] + [(k % 9, k // 9, *(5,) * 26) for k in range(16)]
    together = sequence_logprobs(model, prompts, answers)
    alone = torch.cat([sequence_logprobs(model, [p], [a]) for p, a in zip(prompts, answers, strict=True)])
    torch.testing.assert_close(together, alone, atol=1e-4, rtol=1e-4)


def test_a_joint_text_is_cut_to_the_context_and_no_limit_may_exceed_it():
    model = JointRewardModel(backbone_of(positional(48)), word_tokenizer())
    texts = [(("pick " * 60, "pick"), ("red", "green")), (("pick", "pick"), ("gold " * 60, "green"))]
    assert {len(beginning) + len(rest) for beginning, rest in model.encode(texts)} == {48}
    assert len(model.score(texts)) == 2
    with pytest.raises(ConfigError, match=r"from 1 to the context of the model \(48\), actually 49"):
        JointRewardModel(backbone_of(positional(48)), word_tokenizer(), max_length=49)


def test_too_long_a_limit_is_refused_before_collection(tmp_path, base):
    with pytest.raises(ConfigError, match=r"context of the model \(64\), actually 65"):
        marlhf(tmp_path / "run", base, reward_max_length=65)
    assert not (tmp_path / "run").exists()


def test_a_critic_says_what_does_not_fit():
    short = iac([word_policy(0), word_policy(1)], [critic(5), critic(6)])
    short.critics[1].context = 2
    with pytest.raises(ConfigError, match="must fit into its context of 2 tokens, actually 3"):
        short.assess(groups_of(1))


def test_a_body_that_projects_its_states_carries_a_head():
    config = transformers.OPTConfig(
        vocab_size=9, hidden_size=32, word_embed_proj_dim=16, num_hidden_layers=1, num_attention_heads=2, ffn_dim=32,
        max_position_embeddings=64, do_layer_norm_before=False,
    )  # fmt: skip
    model = JointRewardModel(backbone_of(transformers.OPTForCausalLM(config)), word_tokenizer())
    assert len(model.score([(("pick", "pick"), ("red", "green"))])) == 1


# ------------------------------------------------------------------ numbers


def test_rewards_far_from_zero_keep_their_differences():
    rewards = (1e8, 1e8 + 1, 1e8 + 3)
    learner = make_policy_learner([word_policy(0), word_policy(1)], RLConfig(), Streams(0))
    (experience,) = learner.assess(groups_of(1, rewards=rewards))
    by_hand = np.array([-4, -1, 5]) / 3 / math.sqrt((16 + 1 + 25) / 27)
    assert experience.advantages[0].numpy() == pytest.approx(by_hand)


def test_of_a_single_response_in_a_buffer_normalising_leaves_nothing():
    policies = [word_policy(0), word_policy(1)]
    for normalize in (True, False):
        learner = iac(policies, [critic(5), critic(6)], PolicyRule(normalize=normalize))
        (experience,) = learner.assess(groups_of(1, rewards=(1e3,)))
        # Not 1000 beside a buffer of several, whose advantages are of the order of 1.
        left = 0.0 if normalize else 1e3 - experience.values[0].item()
        assert experience.advantages[0].item() == pytest.approx(left)
    with pytest.raises(ConfigError, match="advantage_normalization: needs at least 2 joint responses in a buffer"):
        RLConfig(rl_algorithm="iac", num_generations=1, rollout_buffer_size=1)
    RLConfig(rl_algorithm="iac", num_generations=1, rollout_buffer_size=1, advantage_normalization=False)


def test_a_fitted_model_is_centred_as_it_ends(tmp_path, base):
    trainer = marlhf(tmp_path, base, reward_learning_rate=3e-2, reward_held_out_share=0.0, num_train_epochs=1)
    trainer.train()
    model = JointRewardModel.from_pretrained(tmp_path / "model" / "reward_model")
    pairs = trainer.replay.sample(trainer.progress.sample)
    texts = [(turn.prompts, turn.texts) for pair in pairs for turn in (*pair.winner, *pair.loser)]
    assert np.mean(model.score(texts)) == pytest.approx(0, abs=1e-4)


def test_the_pass_without_gradient_keeps_to_the_budget(monkeypatch):
    model, sizes = reward_model(), []
    real = ScalarModel._batch

    def watch(self, batch):
        sizes.append(sum(len(beginning) + len(rest) for beginning, rest in batch))
        return real(self, batch)

    monkeypatch.setattr(ScalarModel, "_batch", watch)
    RewardFit(model, RewardFitRule(micro_batch_tokens=40)).learn(pairs_of(4))
    assert max(sizes) <= 40


def test_pairs_without_item_keys_are_held_out_by_their_prompts(tmp_path, base):
    trainer = marlhf(tmp_path, base, reward_held_out_share=0.5)
    pairs = []
    for number, pair in enumerate(pairs_of(6)):
        prompts = ("pick " + "red " * (number // 2), "pick")
        winner, loser = ((structs.replace(side[0], prompts=prompts),) for side in (pair.winner, pair.loser))
        pairs.append(structs.replace(pair, winner=winner, loser=loser, item_key=None))
    trained, held_out = trainer.learning._split(pairs)
    assert (len(trained), len(held_out)) == (2, 4)
    assert not {p.winner[0].prompts for p in trained} & {p.winner[0].prompts for p in held_out}


# ------------------------------------------------------------------ sources


def test_a_run_goes_on_with_critics_of_the_shape_it_began_with(tmp_path):
    def trainer(hidden):
        args = RLConfig(**SMALL, rl_algorithm="iac", num_train_epochs=1)
        critics = [word_model(seed, hidden=hidden) for seed in (7, 8)]
        return RLTrainer(ColourEnv(), agents=team(), args=args, output_dir=tmp_path, critics=critics)

    trainer(16).train()
    resumed = trainer(32)
    before = [copy.deepcopy(policy.model) for policy in resumed.policies]
    with pytest.raises(CheckpointError, match=r"critics was \['\d+ weights', '\d+ weights'\] when the checkpoint was"):
        resumed.train(resume_from_checkpoint=True)
    assert all(same_weights(a, p.model) for a, p in zip(before, resumed.policies, strict=True))


def test_another_base_of_the_reward_model_does_not_resume(tmp_path, base):
    def named(name):
        policies = team()
        for policy in policies:
            policy.name = name
        return policies

    other = tmp_path / "other"
    word_model(6, layers=2).save_pretrained(other)
    word_tokenizer().save_pretrained(other)
    marlhf(tmp_path / "run", base, policies=named(base), reward_model_name=None, num_train_epochs=1).train()
    resumed = marlhf(tmp_path / "run", base, policies=named(str(other)), reward_model_name=None, num_train_epochs=2)
    with pytest.raises(
        CheckpointError, match=f"reward model was '{Path(base).name}' when the checkpoint was written and is 'other'"
    ):
        resumed.train(resume_from_checkpoint=True)


def test_critics_have_weights_of_their_own():
    one, args = word_model(9), RLConfig(rl_algorithm="iac")
    policies = [word_policy(0), word_policy(1)]
    for critics, first in (([one, one], 1), ([word_model(9), policies[0].model], 1)):
        with pytest.raises(ConfigError, match=f"each must have weights of its own, actually critic {first} shares"):
            make_policy_learner(policies, args, Streams(0), critics=critics)


def test_an_object_that_does_not_know_its_agents_tokens_is_no_critic():
    policy = LLMPolicy(word_model(0), word_tokenizer())
    with pytest.raises(ConfigError, match="must know all 9 of its tokenizer, actually 5"):
        make_policy_learner(
            [policy, word_policy(1)],
            RLConfig(rl_algorithm="maac"),
            Streams(0),
            critic_model=word_model(3, vocabulary=5),
        )


def test_a_saved_critic_goes_on_as_what_it_is(tmp_path):
    team_of_two, args = [word_policy(0), word_policy(1)], RLConfig(rl_algorithm="iac")
    learner = make_policy_learner(team_of_two, args, Streams(0), critic_model=word_model(9))
    learner.save_critics(tmp_path)
    folders = [str(tmp_path / f"critic_{index}") for index in range(2)]
    again = make_policy_learner(team_of_two, RLConfig(rl_algorithm="iac", critic_model_name=folders), Streams(1))
    for old, new in zip(learner.critics, again.critics, strict=True):
        assert same_weights(old.model, new.model)
    for fields in ({"rl_algorithm": "iac", "critic_type": "q"}, {"rl_algorithm": "maac"}):
        with pytest.raises(
            ConfigError, match=r"must have learned what it is to go on with, .*'critic_type': 'v', 'reads'"
        ):
            make_policy_learner(team_of_two, RLConfig(**fields), Streams(1), critics=folders[: 2 - (len(fields) == 1)])


def test_a_saved_reward_model_goes_on_with_its_head(tmp_path, base):
    first = marlhf(tmp_path / "first", base, num_train_epochs=1)
    first.train()
    saved = tmp_path / "first" / "model" / "reward_model"
    second = marlhf(tmp_path / "second", base, reward_model_name=str(saved), reward_max_length=40)
    model = second.learning._fresh_model()
    assert same_weights(model, first.learning.reward_model)
    assert model.max_length == 40


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        (
            {"reference_kl_coef": 0.5},
            "reference_kl_coef: has no meaning without reference_kl_enabled=True, actually 0.5",
        ),
        ({"critic_type": "q"}, "critic_type: has no meaning without critics"),
        ({"value_loss_coef": 1.0}, "value_loss_coef: has no meaning without critics"),
        (
            {"rl_algorithm": "iac", "value_clip_range": 0.1},
            "value_clip_range: has no meaning without use_separate_critic",
        ),
    ],
)
def test_a_setting_that_would_do_nothing_is_refused(fields, text):
    with pytest.raises(ConfigError, match=text):
        RLConfig(**fields)


def test_a_damaged_limit_is_found_at_loading(tmp_path):
    reward_model().save_pretrained(tmp_path)
    for wrong in ("abc", -3, 1.5, True):
        (tmp_path / "reward_model.json").write_text(json.dumps({"max_length": wrong, "agents": ["a", "b"]}))
        with pytest.raises(ConfigError, match="must hold whole files"):
            JointRewardModel.from_pretrained(tmp_path, device="cpu")


def test_scores_of_a_reward_model_are_not_logged_as_the_tasks(tmp_path, base):
    iterative(tmp_path, base, num_iterations=2, preference_scoring_reward="reward_model").train()
    told = {1: set(), 2: set()}
    for line in lines(tmp_path):
        told[line["round"]] |= {name for name in line if name.startswith("turn_1/")}
    assert told == {1: {"turn_1/reward_mean", "turn_1/expected_return"}, 2: {"turn_1/learned_reward_mean"}}
    collected = [set(line) for line in lines(tmp_path) if "pairs/kept" in line]
    assert ["collect/reward_mean" in names for names in collected] == [True, False]
    assert ["collect/learned_reward_mean" in names for names in collected] == [False, True]


def test_a_trainer_takes_an_id_and_evaluates_on_its_evaluation_split(tmp_path):
    args = RLConfig(report_to=[], eval_num_samples=1, max_new_tokens=2)
    trainer = RLTrainer("comlrl/LengthRatio-v0", agents="tiny", args=args, output_dir=tmp_path)
    assert (trainer.env.split, trainer.eval_env.split) == ("train", "eval")
    other = RLTrainer("comlrl/LengthRatio-v0", "comlrl/LengthRatio-v0", args=args, output_dir=tmp_path)
    assert other.eval_env.split == "eval"
    args = replace(args, items_per_round=1)
    foreign = RLTrainer(f"{ColourEnv.__module__}:ColourEnv", args=args, output_dir=tmp_path)
    assert isinstance(foreign.env, ColourEnv)
    assert isinstance(foreign.eval_env, ColourEnv)
    with pytest.raises(ConfigError, match=r"a task becomes one by comlrl_env\.TextEnv\(task\)"):
        RLTrainer(trainer.env.task, args=args, output_dir=tmp_path)
