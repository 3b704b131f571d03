import json
from pathlib import Path

import numpy as np
import pytest
from msgspec import structs

from comlrl_agents import LLMPolicy, MADPOConfig, MADPOIterConfig, MADPOIterTrainer, MADPOTrainer
from comlrl_agents.given_pairs import GivenPairs, pair_files
from comlrl_env import load_task
from comlrl_env.errors import CheckpointError, ConfigError
from comlrl_env.records import read_round, write_round
from comlrl_env.types import Completion
from tests.comlrl_agents.toys import ColourEnv, same_weights, token_pair, word_model, word_policy, word_tokenizer

RECORDED = Path(__file__).parent / "recorded" / "iteration_0001.json"
"""Written by CoMLRL 1.4.3 itself: one round of MADPO with two agents."""

SMALL = {"agent_learning_rate": 2e-2, "report_to": [], "items_per_round": 1, "train_batch_size": 4, "drift_samples": 0,
         "max_new_tokens": 2, "temperature": 1.0, "top_p": 1.0, "top_k": None, "dpo_beta": 0.5}  # fmt: skip


def colour_pair(winner, loser, tokens=True):
    from comlrl_env.types import Completion, JointTurn, PreferencePair

    ids = {"red": 3, "green": 4, "blue": 5, "gold": 6}

    def turn(texts):
        answers = tuple(Completion(t, (ids[t], 2) if tokens else None, True if tokens else None) for t in texts)
        return (JointTurn(("pick", "pick"), answers, ((7,), (7,)) if tokens else None),)

    return PreferencePair(
        winner=turn(winner), loser=turn(loser), winner_reward=1.0, loser_reward=0.0, candidate_reward_mean=0.5
    )


def bare(turns):
    return (structs.replace(turns[0], prompt_ids=None),)


def stored(folder, *rounds):
    for number, pairs in enumerate(rounds, start=1):
        write_round(folder, number, pairs)
    return folder


def trainer(folder, pairs, policies=None, cls=MADPOTrainer, config=MADPOConfig, **fields):
    args = config(**(SMALL | {"num_train_epochs": 8, "eval_num_samples": 2, "logging_steps": 1} | fields))
    team = policies or [word_policy(0), word_policy(1)]
    return cls(ColourEnv(), agents=team, args=args, output_dir=folder, pairs=pairs)


GOOD = [colour_pair(("red", "green"), ("blue", "gold")), colour_pair(("red", "green"), ("gold", "blue"))] * 4


def test_a_team_learns_from_given_pairs_without_collecting_any(tmp_path):
    run = trainer(tmp_path / "run", stored(tmp_path / "pairs", GOOD[:4], GOOD[4:]))
    run.train()
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert (lines[1]["pairs/kept"], lines[1]["pairs/retokenised"], lines[1]["env_step"]) == (8, 0, 0)
    learned = [line for line in lines if "loss" in line]
    assert learned[-1]["loss"] < 0.5 * learned[0]["loss"]
    assert learned[-1]["rewards/accuracies"] == 1.0
    assert len(read_round(tmp_path / "run" / "pairs" / "iteration_0001.json").pairs) == 8


def test_text_without_tokens_trains_to_the_same_weights(tmp_path):
    bare = [colour_pair(p.winner[0].texts, p.loser[0].texts, tokens=False) for p in GOOD]
    runs = [
        trainer(tmp_path / name, stored(tmp_path / f"{name}-pairs", pairs), num_train_epochs=1)
        for name, pairs in (("tokens", GOOD), ("bare", bare))
    ]
    for run in runs:
        run.train()
    for one, two in zip(runs[0].policies, runs[1].policies, strict=True):
        assert same_weights(one.model, two.model)


def test_in_rounds_every_file_is_a_round(tmp_path):
    place = stored(tmp_path / "pairs", GOOD[:3], [], GOOD[:2])
    run = trainer(
        tmp_path / "run", place, cls=MADPOIterTrainer, config=MADPOIterConfig, num_iterations=3, num_train_epochs=1,
        preference_replay_mode="all_history",
    )  # fmt: skip
    run.train()
    counts = [json.loads(p.read_text())["num_pairs"] for p in sorted((tmp_path / "run" / "pairs").glob("*.json"))]
    assert counts == [3, 0, 2]
    with pytest.raises(ConfigError, match="holds 3 rounds, and num_iterations asks for 4"):
        trainer(tmp_path / "b", place, cls=MADPOIterTrainer, config=MADPOIterConfig, num_iterations=4)
    again = trainer(tmp_path / "run", None, cls=MADPOIterTrainer, config=MADPOIterConfig, num_iterations=3,
                    num_train_epochs=1, preference_replay_mode="all_history")  # fmt: skip
    with pytest.raises(CheckpointError, match=r"given pairs was \[3, 0, 2\]"):
        again.train(resume_from_checkpoint=True)


def test_tokens_of_another_tokenizer_are_not_trained_on(tmp_path):
    given = GivenPairs(stored(tmp_path, GOOD), 2, 1)
    same, changed = given.of_round(1, [word_policy(0), word_policy(1)])
    assert changed == 0
    assert same == GOOD
    other = word_policy(1)
    other.tokenizer = word_tokenizer(("gold", "blue", "green", "red"))
    pairs, changed = given.of_round(1, [word_policy(0), other])
    assert changed == 8
    assert all(c.token_ids is None for c in pairs[0].winner[0].completions)
    assert pairs[0].winner[0].prompt_ids is None


def test_what_given_pairs_leave_without_effect_is_said_once(tmp_path, capsys):
    theirs = [structs.replace(pair, agents=("left_0", "right_1")) for pair in GOOD[:2]]
    place = stored(tmp_path / "pairs", theirs, theirs)
    settings = {"num_iterations": 2, "num_train_epochs": 1, "report_to": ["console"], "temperature": 0.0}
    iterative = {"cls": MADPOIterTrainer, "config": MADPOIterConfig, **settings}
    trainer(tmp_path / "a", place, preference_pairs_per_sample=None, comparator_policy="history", **iterative).train()
    said = capsys.readouterr().out
    assert said.count("and these have no effect: preference_pairs_per_sample, comparator_policy\n") == 1
    assert said.count("pairs: are those of the agents left_0, right_1, and this environment's are a, b") == 1
    ours = [structs.replace(pair, agents=("a", "b")) for pair in GOOD[:2]]
    trainer(tmp_path / "b", stored(tmp_path / "ours", ours, GOOD), **iterative).train()
    assert "pairs: " not in capsys.readouterr().out


def test_pairs_of_another_team_and_empty_places_are_refused(tmp_path):
    pair = token_pair(np.random.default_rng(0), agents=3)
    place = stored(tmp_path / "three", [structs.replace(pair, loser=bare(pair.loser), winner=bare(pair.winner))])
    with pytest.raises(ConfigError, match="holds pairs of 3 agents, and the team has 2"):
        trainer(tmp_path / "run", place)
    with pytest.raises(ConfigError, match=r"holds no iteration_0001\.json"):
        pair_files(tmp_path)


def test_a_file_of_the_reference_library_is_trained_from(tmp_path):
    from comlrl_agents import LLMPolicy

    pairs = read_round(RECORDED).pairs
    assert pairs
    assert all(pair.winner[0].completions[0].token_ids is None for pair in pairs)
    team = [LLMPolicy("tiny"), LLMPolicy("tiny")]
    before = {name: tensor.clone() for name, tensor in team[0].model.state_dict().items()}
    run = trainer(tmp_path / "run", RECORDED, team, num_train_epochs=1, eval_num_samples=1)
    run.train()
    assert any((team[0].model.state_dict()[name] != tensor).any() for name, tensor in before.items())
    kept = read_round(tmp_path / "run" / "pairs" / "iteration_0001.json").pairs
    assert [p.winner[0].texts for p in kept] == [p.winner[0].texts for p in pairs]


def test_an_untrained_team_is_what_it_was(tmp_path):
    run = trainer(tmp_path / "run", stored(tmp_path / "pairs", []), eval_num_samples=1)
    run.train()
    assert same_weights(run.policies[0].model, word_model(0))


@pytest.mark.parametrize(
    ("words", "eos", "kept"),
    [
        (("red", "green", "blue", "gold"), "</s>", True),
        (("red", "green", "blue", "gold"), "<pad>", False),  # ends an answer in another way
        (("red", "green", "blue", "gold", "pick", "x"), "</s>", False),  # reads another prompt in the stored ids
    ],
)
def test_pairs_of_another_vocabulary_are_tokenised_anew(tmp_path, words, eos, kept):
    silent = structs.replace(GOOD[0].winner[0], completions=(Completion("", (2,), True),) * 2)
    pairs = [structs.replace(GOOD[0], winner=(silent,))]
    tokenizer = word_tokenizer(words)
    tokenizer.eos_token = eos
    models = [word_model(seed, len(tokenizer)) for seed in (0, 1)]
    for model in models:
        model.config.eos_token_id = model.generation_config.eos_token_id = tokenizer.eos_token_id
    team = [LLMPolicy(model, tokenizer) for model in models]
    (pair,), anew = GivenPairs(stored(tmp_path, pairs), 2, 1).of_round(1, team)
    assert anew == (not kept)
    assert (pair.winner[0].prompt_ids is None) == (pair.loser[0].completions[0].token_ids is None) == (not kept)


def test_prompts_that_a_chat_put_in_other_words_are_kept(tmp_path):
    task = load_task("comlrl/CodeCompose-v0")
    policy = LLMPolicy("tiny")
    policy.tokenizer.chat_template = "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}{% endfor %}"
    item = task.items("train")[0]
    plain, chats = task.prompts(item, ()), task.messages(item, ())
    asked = tuple(tuple(policy.encode(chats[agent])) for agent in task.agents)
    said = tuple(Completion("a", tuple(policy.encode_completion("a")), True) for _ in task.agents)
    turn = structs.replace(GOOD[0].winner[0], prompts=tuple(plain.values()), prompt_ids=asked, completions=said)
    pair = structs.replace(GOOD[0], winner=(turn,), loser=(turn,))
    (kept,), anew = GivenPairs(stored(tmp_path, [pair]), 2, 1).of_round(1, [policy, policy])
    assert (kept.winner[0].prompt_ids, anew) == (asked, 0)
