import json
from dataclasses import replace

import numpy as np
import pytest
import torch

from comlrl_agents import (
    LLMPolicy,
    MADPOConfig,
    MADPOIterConfig,
    MADPOIterTrainer,
    MADPOTrainer,
    MARLHFConfig,
    MARLHFIterConfig,
    MARLHFIterTrainer,
    MARLHFTrainer,
    RLConfig,
    RLTrainer,
    ScriptedPolicy,
    generation,
)
from comlrl_agents.comparators import Comparator, ComparatorRule, open_comparator, same_tokenizer
from comlrl_agents.policy_history import frozen_copies
from comlrl_agents.questions import Start
from comlrl_agents.sides import CentralSide, Side, answers_of
from comlrl_agents.streams import Streams
from comlrl_agents.types import Generation, Sampling
from comlrl_env.errors import ConfigError, TrainingError
from comlrl_env.joint_text import SectionAdapter
from tests.comlrl_agents.toys import ColourEnv, same_weights, word_model, word_policy, word_tokenizer

SMALL = {
    "agent_learning_rate": 2e-2, "preference_num_candidates": 4, "max_new_tokens": 2, "temperature": 1.0,
    "top_p": 1.0, "top_k": None, "train_batch_size": 8, "items_per_round": 2, "report_to": [], "num_iterations": 2,
    "drift_samples": 0, "eval_num_samples": 1,
}  # fmt: skip


def trainer(folder, policies=None, given=None, **fields):
    args = MADPOIterConfig(**(SMALL | fields))
    team = policies or [word_policy(0), word_policy(1)]
    return MADPOIterTrainer(ColourEnv(), agents=team, args=args, output_dir=folder, comparator_agents=given)


def pairs_of(folder, iteration=1):
    return json.loads((folder / "pairs" / f"iteration_{iteration:04d}.json").read_text())["pairs"]


def metrics_of(folder):
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def good(_prompt, _rng):
    return "red"


# ------------------------------------------------------------------ one batch for both sides


@pytest.mark.parametrize("same", [True, False])
def test_models_that_answer_on_both_sides_are_asked_once_and_say_what_they_would_say_one_after_the_other(
    same, monkeypatch
):
    team = [word_policy(0), word_policy(1)]
    others = team if same else [team[0], word_policy(2)]
    starts = [Start({"a": "pick", "b": "name one"}, {}), Start({"a": "pick", "b": "pick"}, {})]

    def sides():
        rngs = np.random.default_rng(5).spawn(4)
        return [Side(team, rngs[:2], 3), Side(others, rngs[2:], 2)]

    expected = [side.answers(["a", "b"], starts) for side in sides()]
    calls = []
    real = generation.generate_draws
    monkeypatch.setattr(generation, "generate_draws", lambda *given: calls.append(1) or real(*given))
    assert answers_of(sides(), ["a", "b"], starts) == expected
    assert len(calls) == (2 if same else 4)
    assert expected[0].by_item[0][0] != expected[1].by_item[0][0]


def test_a_policy_that_answers_in_its_own_way_does_so_on_both_sides():
    class Shouting(LLMPolicy):
        def generate(self, prompts, n=1, rng=None, sampling=None):
            return [[Generation("RED")] * n for _ in prompts]

    plain = word_policy()
    team = [Shouting(plain.model, plain.tokenizer, sampling=Sampling(4))]
    sides = [Side(team, [np.random.default_rng(seed)], 2) for seed in (0, 1)]
    for answers in answers_of(sides, ["a"], [Start({"a": "pick"}, {})]):
        assert [g.text for g in answers.by_item[0][0]] == ["RED", "RED"]


# ------------------------------------------------------------------ frozen copies


def test_a_frozen_copy_has_the_weights_and_nothing_else_in_common():
    shared = word_model(3)
    team = [word_policy(0), word_policy(1), word_policy(1)]
    team[1].model = team[2].model = shared
    copies = frozen_copies(team, [None, torch.device("cpu"), None])
    assert copies[1].model is copies[2].model
    for own, frozen in zip(team, copies, strict=True):
        assert same_weights(own.model, frozen.model)
        theirs = {t.data_ptr() for t in own.model.parameters()}
        assert not theirs & {t.data_ptr() for t in frozen.model.parameters()}
        assert not any(p.requires_grad for p in frozen.model.parameters())
        assert all(p.requires_grad for p in own.model.parameters())
        # Tied weights stay tied.
        assert frozen.model.lm_head.weight is frozen.model.model.embed_tokens.weight


def test_a_current_copy_is_made_where_devices_differ_and_only_there():
    team = [word_policy(0), word_policy(1)]

    def opened(devices):
        rule = ComparatorRule("current_copy", devices=devices)
        return open_comparator(rule, team, None, None)(1)

    assert opened(None) is team
    assert opened("cpu") is team
    copies = opened("cpu:0")  # a device of another name
    assert copies[0].model is not team[0].model
    assert same_weights(copies[1].model, team[1].model)


def test_a_copy_is_dropped_after_its_round(tmp_path):
    import gc
    import weakref

    run = trainer(tmp_path, comparator_policy="current_copy", comparator_devices="cpu:0")
    made = []
    opened = run.comparator._open

    def watch(iteration):
        policies = opened(iteration)
        made.append(weakref.ref(policies[0].model))
        return policies

    run.comparator._open = watch
    run.train()
    gc.collect()
    assert len(made) == 2  # once per collection
    assert all(reference() is None for reference in made)


# ------------------------------------------------------------------ models of their own


def test_a_model_comparator_is_loaded_once_per_round_and_not_trained(tmp_path):
    word_policy(7).save(tmp_path / "other")
    run = trainer(
        tmp_path / "run", comparator_policy="model", comparator_model_name=str(tmp_path / "other"),
    )  # fmt: skip
    opened = [run.comparator._open(1) for _ in range(2)]
    assert opened[0][0] is opened[0][1]  # one name for all is loaded once
    assert opened[0][0] is not opened[1][0]
    assert same_weights(opened[0][0].model, word_model(7))
    assert not any(p.requires_grad for p in opened[0][0].model.parameters())
    run.train()
    assert all(ids for pair in pairs_of(tmp_path / "run") for ids in pair["winner_token_ids"] + pair["loser_token_ids"])


def test_one_comparator_per_role(tmp_path):
    for seed in (5, 6):
        word_policy(seed).save(tmp_path / str(seed))
    names = [str(tmp_path / "5"), str(tmp_path / "6")]
    run = trainer(tmp_path / "run", comparator_policy="model", comparator_agents=names)
    for policy, seed in zip(run.comparator._open(1), (5, 6), strict=True):
        assert same_weights(policy.model, word_model(seed))


def test_tokens_of_another_tokenizer_are_not_kept():
    own, other = word_policy(0), word_policy(1)
    other.tokenizer = word_tokenizer(("gold", "blue", "green", "red"))
    assert same_tokenizer(word_policy(4), own)
    assert not same_tokenizer(other, own)
    comparator = Comparator(ComparatorRule("model", 3), [own, own], lambda _: [other, word_policy(2)], SectionAdapter())
    starts = [Start({"a": "pick", "b": "pick"}, {})]
    answers = comparator.during(1, ["a", "b"], Streams(0), lambda side: side.answers(["a", "b"], starts))
    assert all(g.token_ids == () for g in answers.by_item[0][0])
    assert all(g.token_ids for g in answers.by_item[0][1])


def test_a_scripted_comparator_wins_and_is_learned_from(tmp_path):
    players = [ScriptedPolicy(lambda p, r: "red"), ScriptedPolicy(lambda p, r: "green")]
    run = trainer(tmp_path, given=players, comparator_policy="model", num_iterations=6, preference_num_candidates=8)
    before = run.evaluate(32)["eval/turn_1/reward_mean"]
    run.train()
    assert {tuple(p["winner_completions"]) for p in pairs_of(tmp_path)} == {("red", "green")}
    pair = pairs_of(tmp_path)[0]
    assert pair["winner_token_ids"] if "winner_token_ids" in pair else pair["loser_token_ids"]
    assert pair["prompt_token_ids"]
    assert run.evaluate(32)["eval/turn_1/reward_mean"] > before


def test_a_text_that_means_the_same_tokens_is_no_pair(tmp_path):
    # "zebra" and "lion" are both unknown to the tokenizer: their tokens are the same, their rewards differ.
    class Zebra(ColourEnv):
        def reward(self, joint):
            return float(joint[0] == "zebra")

    from comlrl_agents.collect import collect
    from comlrl_agents.items import Reset
    from comlrl_env.preferences import PreferenceWrapper

    team = Side([word_policy(0), word_policy(1)], [np.random.default_rng(0)] * 2, 1)
    team.policies[0].generate = lambda prompts, n, rng: [[Generation("lion", (8, 2), True, (1, 7))]]
    team.policies[1].generate = lambda prompts, n, rng: [[Generation("red", (3, 2), True, (1, 7))]]
    other = Side([ScriptedPolicy(lambda p, r: "zebra"), ScriptedPolicy(good)], [np.random.default_rng(0)] * 2, 1)
    result = collect(PreferenceWrapper(Zebra(), "all", None), [Reset(0)], team, other, np.random.default_rng(0))
    assert team.policies[0].encode_completion("zebra") == [8, 2]
    assert result.pairs == []
    assert result.metrics()["pairs/duplicates"] == 1


def test_the_team_samples_the_same_whatever_the_comparator(tmp_path):
    players = [ScriptedPolicy(good), ScriptedPolicy(good)]
    variants = {
        "current": {},
        "copy": {"comparator_policy": "current_copy", "comparator_devices": "cpu:0"},
        "history": {"comparator_policy": "history"},
        "model": {"comparator_policy": "model"},
        "fewer": {"comparator_num_candidates": 2},
        "central": {"comparator_generation_mode": "centralized", "comparator_policy": "model"},
    }
    seen = {}
    for name, fields in variants.items():
        run = trainer(
            tmp_path / name, num_iterations=1, given=players if name in ("model", "central") else None, **fields
        )
        if name == "central":
            run.comparator._open = lambda _: [ScriptedPolicy(lambda p, r: "<agent_0>red</agent_0>")]
        samples = []
        from comlrl_agents import trainers as module

        real = module.collect

        def spy(*args, real=real, samples=samples):
            result = real(*args)
            samples.append(result.samples)
            return result

        module.collect = spy
        try:
            run.train()
        finally:
            module.collect = real
        seen[name] = samples
    assert all(samples == seen["current"] for samples in seen.values())


# ------------------------------------------------------------------ central generation


class Writer:
    """Writes its texts one after another."""

    def __init__(self, *texts):
        self.texts, self.asked, self.sampling = texts, [], Sampling()

    def generate(self, prompts, n, rng, sampling=None):
        self.asked.append((list(prompts), n, sampling))
        return [[Generation(self.texts[k % len(self.texts)]) for k in range(n)] for _ in prompts]


def test_a_central_comparator_is_asked_once_and_taken_apart():
    writer = Writer("<agent_0>red</agent_0><agent_1>green</agent_1>", "nothing at all", "<AGENT_1 > gold </agent_1>")
    side = CentralSide(writer, np.random.default_rng(0), 3, SectionAdapter(), Sampling(max_new_tokens=7))
    answers = side.answers(["a", "b"], [Start({"a": "first", "b": "second"}, {})])
    (prompts, n, sampling), = writer.asked  # fmt: skip
    assert n == 3
    assert sampling.max_new_tokens == 14
    assert "first" in prompts[0]
    assert "second" in prompts[0]
    assert [[g.text for g in own] for own in answers.by_item[0]] == [["red", ""], ["green", "gold"]]
    assert "nothing at all" in answers.reason


def test_a_central_comparator_that_chats_is_asked_in_a_chat():
    writer = Writer("<agent_0>red</agent_0>")
    writer.uses_chat = True
    side = CentralSide(writer, np.random.default_rng(0), 1, SectionAdapter(), Sampling())
    side.answers(["a", "b"], [Start({"a": "first", "b": "second"}, {})])
    ((message,),) = writer.asked[0][0]
    assert message == {"role": "user", "content": SectionAdapter().build_prompt(None, ["first", "second"])}


def test_models_that_learn_are_not_frozen_as_their_own_comparator(tmp_path):
    team = [word_policy(0), word_policy(1)]
    with pytest.raises(ConfigError, match=r"number 1 shares some with the team; give a copy .*deepcopy"):
        trainer(tmp_path, team, [word_model(7), team[1].model], comparator_policy="model")
    assert all(weight.requires_grad for policy in team for weight in policy.parameters())


def test_a_team_that_somebody_freezes_says_so(tmp_path):
    team = [word_policy(0), word_policy(1)]
    run = trainer(tmp_path, team)
    team[1].model.requires_grad_(False)
    with pytest.raises(TrainingError, match="agent 1: weights that learn must keep requires_grad=True"):
        run.train()


@pytest.mark.parametrize("bad", [0, 1])
def test_unreadable_texts_are_counted_and_stop_a_round_only_when_there_is_nothing_else(tmp_path, bad):
    texts = ["<agent_0>red</agent_0><agent_1>green</agent_1>", "broken"][bad:]
    run = trainer(tmp_path, given=[Writer(*texts), Writer()], comparator_policy="model",
                  comparator_generation_mode="centralized", num_iterations=1)  # fmt: skip
    if bad:
        with pytest.raises(TrainingError, match=r"comparator: all 8 candidates of 2 items failed.*'broken'"):
            run.train()
        return
    run.train()
    collected = metrics_of(tmp_path)[1]
    assert (collected["comparator/candidates"], collected["comparator/failed"]) == (4, 4)
    assert collected["env_step"] == 2 * (4 + 2)


def test_which_model_writes_centrally():
    team = [word_policy(0), word_policy(1)]
    rule = ComparatorRule("current", 2, centralized=True, centralized_agent_index=1)
    comparator = Comparator(rule, team, open_comparator(rule, team, None, None), SectionAdapter())
    assert comparator.during(1, ["a", "b"], Streams(0), lambda side: side.policy) is team[1]
    assert comparator.during(1, ["a", "b"], Streams(0), lambda side: replace(side).num_candidates) == 2


def test_what_the_configuration_cannot_know_is_refused_by_the_trainer(tmp_path):
    with pytest.raises(ConfigError, match="comparator_policy: 'model' needs one of comparator_model_name"):
        trainer(tmp_path, comparator_policy="model")
    for field, given in [("comparator_model_name", "/nowhere"), ("comparator_agents", ["tiny", "/nowhere"])]:
        with pytest.raises(ConfigError, match=f"^{field}: model '/nowhere': no such folder"):
            trainer(tmp_path, comparator_policy="model", **{field: given})
    with pytest.raises(ConfigError, match="comparator_agents: belongs to comparator_policy='model'"):
        trainer(tmp_path, given=[ScriptedPolicy(good)] * 2)


# ------------------------------------------------------------------ one actor for all roles


class PairAdapter:
    """First word for the first role, second for the second."""

    def build_prompt(self, item, prompts):
        return "pick pick"

    def parse_completion(self, text, item, n):
        words = text.split()
        return (words + [""] * n)[:n] if words else None


@pytest.mark.parametrize(
    ("make", "config"),
    [
        (MADPOTrainer, MADPOConfig()),
        (MADPOIterTrainer, MADPOIterConfig()),
        (MADPOIterTrainer, MADPOIterConfig(comparator_policy="current_copy")),
        (MADPOIterTrainer, MADPOIterConfig(comparator_policy="history")),
        (MARLHFTrainer, MARLHFConfig()),
        (MARLHFIterTrainer, MARLHFIterConfig(comparator_policy="history")),
        (RLTrainer, RLConfig(rl_algorithm="iac")),
    ],
)
def test_sampling_that_gives_one_answer_only_is_refused_where_answers_must_differ(tmp_path, make, config):
    team = [word_policy(0), word_policy(1)]
    for field, value in (("temperature", 0.0), ("top_k", 1)):
        with pytest.raises(ConfigError, match=f"^{field}: {value:g} samples the same answer every time"):
            make(ColourEnv(), agents=team, args=replace(config, **{field: value}), output_dir=tmp_path)
    assert not list(tmp_path.iterdir())


def test_an_evaluation_with_other_agents_is_refused(tmp_path):
    team = [word_policy(0), word_policy(1)]
    with pytest.raises(
        ConfigError, match=r"eval_env: must have the agents of env, \['a', 'b'\], actually \['x', 'b'\]"
    ):
        MADPOTrainer(ColourEnv(), ColourEnv(("x", "b")), agents=team, args=MADPOConfig(), output_dir=tmp_path)


def test_a_greedy_team_is_compared_with_another_one(tmp_path):
    players = [ScriptedPolicy(lambda p, r: "red"), ScriptedPolicy(lambda p, r: "green")]
    trainer(tmp_path, given=players, comparator_policy="model", temperature=0.0, num_iterations=1).train()
    assert pairs_of(tmp_path)


def test_one_actor_writes_all_roles(tmp_path):
    fields = {"num_iterations": 12, "collaboration_mode": "centralized", "comparator_policy": "history"}
    args = MADPOIterConfig(**(SMALL | fields))
    run = MADPOIterTrainer(
        ColourEnv(), agents=[word_policy(0)], args=args, output_dir=tmp_path, joint_adapter=PairAdapter()
    )
    before = run.evaluate(64)["eval/turn_1/reward_mean"]
    after = run.train()
    pair = pairs_of(tmp_path)[0]
    assert pair["prompts"] == ["pick pick"]
    assert len(pair["winner_token_ids"]) == 1
    rows = [json.loads(line) for line in (tmp_path / "samples.jsonl").read_text().splitlines()]
    assert set(next(r for r in rows if r["phase"] == "eval")["turns"][0]["responses"]) == {"a", "b"}
    assert [p.name for p in (tmp_path / "model").iterdir()] == ["agent_0"]
    assert run.evaluate(64)["eval/turn_1/reward_mean"] > before
    assert after["eval/num_samples"] == 1
