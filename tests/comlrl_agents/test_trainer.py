import copy
import json
import os
import signal
import subprocess
import sys
import textwrap

import pytest

from comlrl_agents import MADPOConfig, MADPOIterConfig, MADPOIterTrainer, MADPOTrainer
from comlrl_env.errors import CheckpointError, ConfigError, TrainingError
from tests.comlrl_agents.toys import ColourEnv, same_weights, word_model, word_policy, word_tokenizer

SMALL = {
    "agent_learning_rate": 2e-2, "preference_num_candidates": 8, "max_new_tokens": 2, "temperature": 1.0,
    "top_p": 1.0, "top_k": None, "train_batch_size": 8, "items_per_round": 2, "report_to": [], "eval_interval": 4,
    "dpo_beta": 0.5,
}  # fmt: skip


def iterative(folder, env=None, policies=None, **fields):
    args = MADPOIterConfig(**(SMALL | {"num_iterations": 3} | fields))
    return MADPOIterTrainer(env or ColourEnv(), agents=policies or team(args.num_agents), args=args, output_dir=folder)


def team(count=2):
    return [word_policy(seed) for seed in range(count)]


def lines(folder, name="metrics.jsonl"):
    return [json.loads(line) for line in (folder / name).read_text().splitlines()]


def test_two_agents_learn_the_four_word_toy_in_rounds(tmp_path):
    trainer = iterative(tmp_path, num_iterations=25, eval_num_samples=64, eval_batch_size=64)
    before = trainer.evaluate(256)["eval/turn_1/reward_mean"]
    after = trainer.train()
    assert before < 0.4
    assert after["eval/turn_1/reward_mean"] > 0.8


def test_two_agents_learn_the_toy_from_one_collection(tmp_path):
    args = MADPOConfig(**(SMALL | {"num_train_epochs": 6, "items_per_round": 8, "preference_num_candidates": 24}))
    trainer = MADPOTrainer(ColourEnv(), agents=team(), args=args, output_dir=tmp_path)
    before = trainer.evaluate(256)["eval/turn_1/reward_mean"]
    trainer.train()
    assert trainer.evaluate(256)["eval/turn_1/reward_mean"] > before + 0.3


@pytest.mark.parametrize("agents", [1, 3])
def test_other_team_sizes_are_ordinary(tmp_path, agents):
    env = ColourEnv(("a", "b", "c")[:agents])
    iterative(tmp_path, env, num_agents=agents, num_iterations=2).train()
    assert len(list((tmp_path / "model").glob("agent_*"))) == agents


def test_the_run_folder_holds_what_the_design_names(tmp_path):
    trainer = iterative(tmp_path, report_to=["tensorboard"])
    trainer.train()
    names = {path.name for path in tmp_path.iterdir()}
    assert {
        "config.yaml", "versions.json", "metrics.jsonl", "samples.jsonl", "tensorboard", "pairs", "checkpoints",
        "model", "report.md",
    } <= names  # fmt: skip
    rounds = [json.loads((tmp_path / "pairs" / f"iteration_000{i}.json").read_text()) for i in (1, 2, 3)]
    assert [r["iteration"] for r in rounds] == [1, 2, 3]
    pair = rounds[0]["pairs"][0]
    assert pair["winner_reward"] > pair["loser_reward"]
    assert {pair["target_raw_reward"], pair["comparator_raw_reward"]} == set(pair["raw_rewards"])
    assert len(pair["prompts"]) == len(pair["winner_token_ids"]) == 2
    logged = set().union(*lines(tmp_path))
    assert {
        "loss", "grad_norm", "learning_rate", "rewards/margins", "rewards/accuracies", "logps/chosen", "logps/rejected",
        "agent_0/rewards/margins", "turn_1/reward_mean", "turn_1/expected_return", "eval/turn_1/reward_mean",
        "eval/turn_1/expected_return", "env_step", "reference_env_step", "pairs/kept", "pairs/ties", "pairs/duplicates",
        "pairs/distinct_winners", "pairs/gap_mean", "completions/mean_length", "completions/clipped_ratio",
        "agent_1/drift", "agent_1/repetition", "oracle/error_rate", "oracle/timeout_rate", "replay/round_1",
    } <= logged  # fmt: skip
    counted = lines(tmp_path)[-1]
    assert counted["env_step"] == counted["task_step"] == 3 * 2 * (8 + 8)
    kept = sum(r["num_pairs"] for r in rounds)
    assert counted["reference_env_step"] == 2 * kept


@pytest.mark.parametrize("k", [1, 2, 5])
def test_history_is_k_rounds_before_the_live_policy(tmp_path, k, monkeypatch):
    trainer = iterative(tmp_path, comparator_policy="history", comparator_history_k=k, num_iterations=k + 3)
    before_round, used = {}, {}
    load = trainer.history.load

    def watch(number, devices=None):
        policies = load(number, devices)
        if devices is not None:  # the comparator's, not the one that drift is measured with
            iteration = trainer.progress.round
            before_round[iteration] = [copy.deepcopy(p.model.state_dict()) for p in trainer.policies]
            used[iteration] = policies
        return policies

    monkeypatch.setattr(trainer.history, "load", watch)
    trainer.train()
    # Before round 2 the live policy has learned once; k = 1 is then the initial one, k = 2 the one before round 1 too.
    assert sorted(used) == list(range(1, k + 4))
    for iteration, policies in used.items():
        expected = before_round[max(1, iteration - k)]
        for policy, weights in zip(policies, expected, strict=True):
            assert all((policy.model.state_dict()[n] == w).all() for n, w in weights.items())
    assert any((before_round[k + 3][0][n] != before_round[3][0][n]).any() for n in before_round[3][0])


def test_replay_draws_from_earlier_rounds(tmp_path):
    iterative(
        tmp_path, preference_replay_mode="lambda_decay", preference_replay_lambda=0.8, preference_replay_sample_size=40
    ).train()
    shares = [row for row in lines(tmp_path) if "replay/round_3" in row]
    assert {"replay/round_1", "replay/round_2", "replay/round_3"} <= set(shares[-1])


# ------------------------------------------------------------------ resume


PROGRAM = """
    import sys
    from comlrl_agents import MADPOIterConfig, MADPOIterTrainer
    from tests.comlrl_agents.toys import ColourEnv, word_policy
    args = MADPOIterConfig(
        agent_learning_rate=2e-2, preference_num_candidates=8, max_new_tokens=2, temperature=1.0, top_p=1.0,
        top_k=None, train_batch_size=4, items_per_round=2, report_to=[], eval_interval=3, num_iterations=6,
        num_train_epochs=2, comparator_policy="history", preference_replay_mode="all_history", max_grad_norm=None,
    )
    trainer = MADPOIterTrainer(
        ColourEnv(), agents=[word_policy(0), word_policy(1)], args=args, output_dir=sys.argv[1]
    )
    trainer.train(resume_from_checkpoint=True)
"""


def run_until_killed(folder, after_writes):
    """Runs the program, killed by itself (SIGKILL) at the n-th fsync: inside a checkpoint, a log or a round file."""
    killer = f"""
    import os, signal
    real, count = os.fsync, 0
    def fsync(handle):
        global count
        count += 1
        if count == {after_writes}:
            os.kill(os.getpid(), signal.SIGKILL)
        return real(handle)
    os.fsync = fsync
    """
    code = textwrap.dedent(killer if after_writes else "") + textwrap.dedent(PROGRAM)
    done = subprocess.run([sys.executable, "-c", code, str(folder)], capture_output=True, text=True, env=os.environ)
    assert done.returncode in (0, -signal.SIGKILL), done.stderr
    return done.returncode == 0


def final_files(folder):
    kept = [folder / "metrics.jsonl", folder / "samples.jsonl", *sorted(folder.glob("pairs/*.json"))]
    kept += sorted(folder.glob("model/agent_*/model.safetensors"))
    return {str(path.relative_to(folder)): path.read_bytes() for path in kept}


@pytest.mark.slow
def test_killed_anywhere_and_resumed_equals_uninterrupted_bit_for_bit(tmp_path):
    assert run_until_killed(tmp_path / "straight", 0)
    expected = final_files(tmp_path / "straight")
    assert len(expected) == 2 + 6 + 2
    for first_kill in (9, 83):
        folder = tmp_path / f"killed-{first_kill}"
        finished, kills = run_until_killed(folder, first_kill), 1
        if not finished:
            finished, kills = run_until_killed(folder, first_kill + 31), 2
        while not finished:
            finished, kills = run_until_killed(folder, 0), kills + 1
        assert kills > 1
        assert final_files(folder) == expected


def test_a_finished_run_can_grow(tmp_path):
    straight = iterative(tmp_path / "straight", num_iterations=4)
    straight.train()
    iterative(tmp_path / "grown", num_iterations=2).train()
    grown = iterative(tmp_path / "grown", num_iterations=4)
    grown.train(resume_from_checkpoint=True)
    for one, two in zip(straight.policies, grown.policies, strict=True):
        assert same_weights(one.model, two.model)
    # The next resume without any key goes on with what this one asked for.
    assert (tmp_path / "grown" / "config.yaml").read_text() == (tmp_path / "straight" / "config.yaml").read_text()


def test_a_damaged_checkpoint_is_never_taken_for_whole(tmp_path):
    iterative(tmp_path, num_iterations=2, checkpoint_total_limit=None).train()
    newest = sorted((tmp_path / "checkpoints").iterdir())[-1]
    weights = newest / "weights" / "agent_0.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1])
    with pytest.raises(CheckpointError, match="is not a whole checkpoint"):
        iterative(tmp_path, num_iterations=3).train(resume_from_checkpoint=newest)
    resumed = iterative(tmp_path, num_iterations=3)
    resumed.train(resume_from_checkpoint=True)
    assert resumed.progress.round == 4


def test_checkpoints_are_pruned(tmp_path):
    iterative(tmp_path, checkpoint_total_limit=1).train()
    assert len(list((tmp_path / "checkpoints").iterdir())) == 1


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"dpo_beta": 0.1}, "dpo_beta was 0.5 when the checkpoint was written and is 0.1 now"),
        ({"seed": 5}, "seed was 0"),
        ({"comparator_policy": "history"}, "comparator_policy was 'current'"),
    ],
)
def test_a_checkpoint_that_does_not_fit_is_refused_before_anything_changes(tmp_path, fields, text):
    iterative(tmp_path).train()
    before = {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()}
    other = iterative(tmp_path, **fields)
    with pytest.raises(CheckpointError, match=text):
        other.train(resume_from_checkpoint=True)
    assert {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()} == before
    assert same_weights(other.policies[0].model, word_model(0))


def test_a_run_of_another_trainer_is_named(tmp_path):
    iterative(tmp_path, num_iterations=1).train()
    other = MADPOTrainer(ColourEnv(), agents=team(), args=MADPOConfig(**SMALL), output_dir=tmp_path)
    with pytest.raises(CheckpointError, match=r"Trainer was 'MADPOIterTrainer' .* and is 'MADPOTrainer' now"):
        other.train(resume_from_checkpoint=True)


def test_another_model_is_refused_by_tensor_name(tmp_path):
    iterative(tmp_path).train()
    from comlrl_agents import LLMPolicy

    larger = [LLMPolicy(word_model(0, hidden=32), word_tokenizer()), word_policy(1)]
    with pytest.raises(CheckpointError, match=r"tensor model.embed_tokens.weight of agent 0 was"):
        iterative(tmp_path, policies=larger).train(resume_from_checkpoint=True)


# ------------------------------------------------------------------ bad input


def test_a_used_folder_is_refused_and_left_alone(tmp_path):
    iterative(tmp_path, num_iterations=1).train()
    before = {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()}
    with pytest.raises(ConfigError, match="already holds a run; choose another folder, or continue"):
        iterative(tmp_path).train()
    assert {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()} == before


def test_a_replay_folder_of_an_older_run_imports_and_loses_nothing(tmp_path):
    shared = tmp_path / "pairs"
    iterative(tmp_path / "a", preference_replay_dir=str(shared)).train()
    old = {p.name: p.read_bytes() for p in shared.glob("*.json")}
    fields = {"preference_replay_mode": "all_history", "num_iterations": 1}
    iterative(tmp_path / "b", preference_replay_dir=str(shared), **fields).train()
    assert {p.name: p.read_bytes() for p in (shared / "earlier_0001").iterdir()} == old
    assert lines(tmp_path / "b")[1]["replay/round_1"] == 1.0


def test_the_number_of_agents_must_be_that_of_the_environment(tmp_path):
    with pytest.raises(
        ConfigError, match=r"num_agents: must be the number of agents of env \(3: a, b, c\), actually 2"
    ):
        iterative(tmp_path, ColourEnv(("a", "b", "c")))


def test_what_is_no_environment_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="env: must be an id or a PettingZoo ParallelEnv"):
        iterative(tmp_path, env=object())


def test_the_wrong_configuration_class_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="MADPOIterTrainer takes a MADPOIterConfig, actually MADPOConfig"):
        MADPOIterTrainer(ColourEnv(), agents=team(), args=MADPOConfig(items_per_round=2), output_dir=tmp_path)


def test_an_oracle_that_always_fails_stops_with_its_reason(tmp_path):
    class Broken(ColourEnv):
        def reward(self, joint):
            return float("nan")

    with pytest.raises(TrainingError, match=r"all 32 joint responses of 2 items failed to be scored"):
        iterative(tmp_path, Broken()).train()


def test_ties_everywhere_train_nothing_and_say_so(tmp_path, capsys):
    class Flat(ColourEnv):
        def reward(self, joint):
            return 0.5

    trainer = iterative(tmp_path, Flat(), preference_num_candidates=2, report_to=["console"])
    trainer.train()
    said = [line for line in capsys.readouterr().out.splitlines() if "no pair" in line]
    assert said[0].startswith("round 1: no pair to train on, the policies stay as they are: of 8 joint responses 0 ")
    assert said[0].endswith("; every score was 0.5")
    assert len(said) == 3
    assert same_weights(trainer.policies[0].model, word_model(0))
    assert json.loads((tmp_path / "pairs" / "iteration_0002.json").read_text())["pairs"] == []


def test_rewards_that_differ_need_a_rule(tmp_path):
    class Selfish(ColourEnv):
        def step(self, actions):
            observations, rewards, *rest = super().step(actions)
            return observations, {agent: rewards[agent] + i for i, agent in enumerate(rewards)}, *rest

    from comlrl_env.errors import RewardError

    with pytest.raises(RewardError, match="reward_rule="):
        iterative(tmp_path / "refused", Selfish()).train()
    args = MADPOIterConfig(**(SMALL | {"num_iterations": 1}))
    MADPOIterTrainer(Selfish(), agents=team(), args=args, output_dir=tmp_path / "ruled", reward_rule="mean").train()


def test_saved_agents_load_as_the_team(tmp_path):
    trainer = iterative(tmp_path / "run", num_iterations=1)
    trainer.train()
    args = MADPOIterConfig(**(SMALL | {"num_iterations": 1}))
    again = MADPOIterTrainer(ColourEnv(), agents=str(tmp_path / "run" / "model"), args=args, output_dir=tmp_path / "b")
    for one, two in zip(trainer.policies, again.policies, strict=True):
        assert same_weights(one.model, two.model)


def test_streams_have_the_names_of_the_design(tmp_path):
    trainer = iterative(tmp_path)
    trainer.train()
    names = set(trainer.streams.state_dict())
    assert {"items", "policy/a", "policy/b", "comparator/a", "shuffle", "replay"} <= names


def test_one_model_object_for_two_agents_must_be_given_twice(tmp_path):
    args = MADPOIterConfig(**(SMALL | {"num_iterations": 1}))
    with pytest.raises(ConfigError, match=r"agents: must hold one entry per agent \(num_agents=2\), actually 1"):
        MADPOIterTrainer(ColourEnv(), agents=[word_model()], args=args, output_dir=tmp_path)
    shared = word_model()
    trainer = MADPOIterTrainer(
        ColourEnv(), agents=[shared, shared], tokenizer=word_tokenizer(), args=args, output_dir=tmp_path
    )
    trainer.train()
    assert trainer.policies[0].model is trainer.policies[1].model


def test_an_interrupted_trainer_resumes_itself_exactly(tmp_path, monkeypatch):
    straight = iterative(tmp_path / "straight")
    straight.train()
    stopped = iterative(tmp_path / "stopped")
    step, calls = stopped.learning.learner.optimizer.step, []

    def interrupt_once(progress):
        calls.append(progress)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return step(progress)

    monkeypatch.setattr(stopped.learning.learner.optimizer, "step", interrupt_once)
    with pytest.raises(KeyboardInterrupt):
        stopped.train()
    stopped.train(resume_from_checkpoint=True)
    for one, two in zip(straight.policies, stopped.policies, strict=True):
        assert same_weights(one.model, two.model)


def test_going_back_to_an_older_checkpoint_leaves_the_other_future_behind(tmp_path):
    iterative(tmp_path, checkpoint_total_limit=None).train()
    names = sorted(path.name for path in (tmp_path / "checkpoints").iterdir())
    iterative(tmp_path, checkpoint_total_limit=2).train(resume_from_checkpoint=tmp_path / "checkpoints" / names[1])
    again = iterative(tmp_path, num_iterations=4)
    again.train(resume_from_checkpoint=True)
    assert again.progress.round == 5


def test_only_damaged_checkpoints_are_no_reason_to_start_over(tmp_path):
    iterative(tmp_path).train()
    for path in (tmp_path / "checkpoints").glob("*/state.json"):
        path.unlink()
    with pytest.raises(CheckpointError, match="holds checkpoints, but none is whole"):
        iterative(tmp_path).train(resume_from_checkpoint=True)


def test_another_task_behind_the_same_name_is_refused(tmp_path):
    class Other(ColourEnv):
        def __str__(self):
            return str(ColourEnv())

        def reset(self, seed=None, options=None):
            prompts, infos = super().reset(seed, options)
            return dict.fromkeys(prompts, "pick red"), infos

    iterative(tmp_path).train()
    with pytest.raises(CheckpointError, match=r"first prompts was .* and is"):
        iterative(tmp_path, Other()).train(resume_from_checkpoint=True)
