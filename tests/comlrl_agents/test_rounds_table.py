"""Comparator × generation mode × replay mode × number of agents: full small runs that finish."""

import itertools
import json

import pytest

from comlrl_agents import LLMPolicy, MADPOIterConfig, MADPOIterTrainer
from comlrl_agents.types import Sampling
from tests.comlrl_agents.families import family
from tests.comlrl_agents.remote.servers import openai_reply, serving
from tests.comlrl_agents.toys import ColourEnv, word_model, word_policy, word_tokenizer

COMPARATORS = ("current", "current_copy", "model", "history", "api")
MODES = ("decentralized", "centralized")
REPLAYS = {
    "current": {},
    "nearest_k": {"preference_replay_k": 2},
    "all_history": {"preference_replay_sample_size": 3},
    "lambda_decay": {"preference_replay_lambda": 0.5},
}
AGENTS = (1, 2, 3, 5)
NAMES = ("a", "b", "c", "d", "e")

# Every comparator with every replay mode, and every two values of any two columns in some row; checked below.
ROWS = [
    (comparator, MODES[(i + k // 2) % 2], replay, AGENTS[(i + k) % 4])
    for (i, comparator), (k, replay) in itertools.product(enumerate(COMPARATORS), enumerate(REPLAYS))
]


class OneWord(ColourEnv):
    """The first agent must say red: with random words there is nearly always a pair."""

    def reward(self, joint):
        return float(joint[0].split()[:1] == ["red"])


class Sections:
    """An adapter that a model of nine words can keep to: every role says the same word."""

    def build_prompt(self, item, prompts):
        return "pick"

    def parse_completion(self, text, item, n):
        words = text.replace("<agent_0>", "").split("<")[0].split()
        return [words[0]] * n if words else None


@pytest.fixture(scope="module")
def server():
    with serving(lambda n, body: openai_reply(*(["red", "gold", "green", "blue"] * body["n"])[: body["n"]])) as server:
        yield server


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    folder = tmp_path_factory.mktemp("comparator")
    word_policy(9).save(folder)
    return str(folder)


def test_the_rows_cover_every_two_values_of_any_two_columns():
    for one, two in itertools.combinations(range(4), 2):
        values = [(COMPARATORS, MODES, tuple(REPLAYS), AGENTS)[column] for column in (one, two)]
        assert {(row[one], row[two]) for row in ROWS} == set(itertools.product(*values))


@pytest.mark.parametrize(("comparator", "mode", "replay", "agents"), ROWS, ids=lambda value: str(value))
def test_a_run_of_every_kind_finishes(tmp_path, server, saved, comparator, mode, replay, agents):
    own = {
        "model": {"comparator_model_name": saved},
        "current_copy": {"comparator_devices": "cpu:0"},
        "api": {"comparator_api_url": server.url, "comparator_api_format": "openai", "comparator_api_model": "m"},
    }
    args = MADPOIterConfig(
        num_agents=agents, num_iterations=2, preference_num_candidates=6, comparator_num_candidates=5,
        comparator_policy=comparator, comparator_generation_mode=mode, preference_replay_mode=replay, max_new_tokens=1,
        temperature=1.0, top_p=1.0, top_k=None, agent_learning_rate=1e-2, items_per_round=1, report_to=[],
        drift_samples=0, eval_num_samples=1, eval_interval=100, checkpoint_total_limit=1, train_batch_size=8,
        **REPLAYS[replay], **own.get(comparator, {}),
    )  # fmt: skip
    shared = word_model(agents)
    team = [shared] * agents if agents == 5 else [word_model(seed) for seed in range(agents)]
    run = MADPOIterTrainer(
        OneWord(NAMES[:agents]), agents=team, tokenizer=word_tokenizer(), args=args, output_dir=tmp_path,
        joint_adapter=Sections(),
    )  # fmt: skip
    run.train()
    rounds = [json.loads((tmp_path / "pairs" / f"iteration_000{i}.json").read_text()) for i in (1, 2)]
    assert [r["iteration"] for r in rounds] == [1, 2]
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    collected = [line for line in lines if "comparator/candidates" in line]
    assert [c["comparator/candidates"] + c["comparator/failed"] for c in collected] == [5, 5]
    assert [c["pairs/kept"] for c in collected] == [r["num_pairs"] for r in rounds]
    assert lines[-1]["env_step"] == sum(6 + c["comparator/candidates"] for c in collected)
    for kept, line in zip(rounds, collected, strict=True):
        shares = {name: share for name, share in line.items() if name.startswith("replay/")}
        assert sum(shares.values()) == pytest.approx(1.0) if shares else kept["num_pairs"] == 0
    names = {path.name for path in (tmp_path / "model").iterdir()}
    assert names == {f"agent_{k}" for k in range(agents)}
    for pair in rounds[0]["pairs"]:
        assert len(pair["prompts"]) == len(pair["winner_completions"]) == agents
        assert pair["winner_reward"] > pair["loser_reward"]
        assert {pair["target_raw_reward"], pair["comparator_raw_reward"]} == set(pair["raw_rewards"])


def test_a_team_of_three_families_sizes_and_vocabularies(tmp_path):
    sampling = Sampling(2, temperature=1.0, top_p=1.0, top_k=None)
    words = word_tokenizer(("gold", "blue", "green", "red"))
    team = [
        LLMPolicy(word_model(0, hidden=32, layers=2), word_tokenizer(), sampling=sampling),
        LLMPolicy(family("gpt2", 9), words, sampling=sampling),
        LLMPolicy(family("qwen2", 9), word_tokenizer(("red", "gold", "blue", "green")), sampling=sampling),
    ]
    before = [{n: t.clone() for n, t in policy.model.state_dict().items()} for policy in team]
    args = MADPOIterConfig(
        num_agents=3, num_iterations=2, preference_num_candidates=12, max_new_tokens=2, temperature=1.0, top_p=1.0,
        top_k=None, agent_learning_rate=1e-2, items_per_round=1, report_to=[], eval_num_samples=1,
        comparator_policy="history", parallel_training="mp", agent_devices="cpu",
    )  # fmt: skip
    MADPOIterTrainer(ColourEnv(NAMES[:3]), agents=team, args=args, output_dir=tmp_path).train()
    for policy, old in zip(team, before, strict=True):
        assert any((policy.model.state_dict()[name] != tensor).any() for name, tensor in old.items())
    pair = json.loads((tmp_path / "pairs" / "iteration_0001.json").read_text())["pairs"][0]
    for agent, policy in enumerate(team):
        ids = pair["winner_token_ids"][agent]
        assert policy.decode(ids, pair["winner_finished"][agent]) == pair["winner_completions"][agent]
