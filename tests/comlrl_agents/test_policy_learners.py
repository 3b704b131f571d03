import copy
import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from comlrl_agents import RLConfig
from comlrl_agents.critics import Critic
from comlrl_agents.items import Reset
from comlrl_agents.learners.actor_critic import ActorCritic
from comlrl_agents.learners.reinforce import Reinforce
from comlrl_agents.model_source import load_model
from comlrl_agents.optimisation import Optimisation
from comlrl_agents.policy import LLMPolicy
from comlrl_agents.policy_gradient import PolicyRule
from comlrl_agents.policy_learners import make_policy_learner
from comlrl_agents.rollouts import Group
from comlrl_agents.scalar_model import ScalarModel, backbone_of
from comlrl_agents.streams import Streams
from comlrl_agents.types import Generation
from comlrl_env.errors import ConfigError, TrainingError
from tests.comlrl_agents.test_madpo import plain_logp
from tests.comlrl_agents.toys import same_weights, word_model, word_policy, word_tokenizer

ADVANTAGES = {  # of the rewards 1, 3, 2, by hand
    "magrpo": (-1.0, 1.0, 0.0),
    "mareinforce": (1.0, 3.0, 2.0),
    "marloo": (-1.5, 1.5, 0.0),
    "maremax": (-2.0, 0.0, -1.0),
}


def groups_of(count, rewards=(1.0, 3.0, 2.0), agents=2, seed=0):
    """Answers of one to five tokens, some closed by an EOS, some cut."""
    rng = np.random.default_rng(seed)

    def answer(prompt):
        length = int(rng.integers(1, 5))
        ids = tuple(int(t) for t in rng.integers(3, 7, size=length))
        ended = bool(rng.integers(2))
        words = ("red", "green", "blue", "gold")
        return Generation(" ".join(words[t - 3] for t in ids), (*ids, 2) if ended else ids, ended, prompt)

    def group(number):
        prompts = [(1, *(int(t) for t in rng.integers(3, 7, size=2))) for _ in range(agents)]
        return Group(
            f"item-{number}", Reset(number), ("pick",) * agents,
            tuple(tuple(answer(prompt) for _ in rewards) for prompt in prompts), tuple(rewards),
        )  # fmt: skip

    return [group(number) for number in range(count)]


def written_objective(models, groups, advantages):
    """−(1/G) Σ_k A_k Σ_t log π_i, the mean over groups, summed over agents, one sequence at a time."""
    total = 0.0
    for group in groups:
        for model, answers in zip(models, group.answers, strict=True):
            for advantage, answer in zip(advantages, answers, strict=True):
                logp = plain_logp(model, answer.prompt_ids, answer.token_ids)
                total = total - advantage * logp / len(answers) / len(groups)
    return total


def without_step(learner, monkeypatch):
    monkeypatch.setattr(learner.optimizer, "step", lambda progress: {})
    return learner


def reinforce(policies, name="magrpo", optimisation=None, **rule):
    return Reinforce(policies, name, PolicyRule(**rule), optimisation or Optimisation(max_grad_norm=None))


@pytest.mark.parametrize("clip", [None, 0.2])
@pytest.mark.parametrize(("name", "budget"), [("magrpo", None), ("mareinforce", 14), ("marloo", None), ("maremax", 14)])
def test_the_gradient_is_autograd_of_the_written_objective(name, budget, clip, monkeypatch):
    policies, groups = [word_policy(seed) for seed in range(2)], groups_of(3)
    models = [copy.deepcopy(policy.model) for policy in policies]
    expected = written_objective(models, groups, ADVANTAGES[name])
    expected.backward()
    learner = reinforce(policies, name, Optimisation(micro_batch_tokens=budget), clip_range=clip)
    stats = without_step(learner, monkeypatch).learn(learner.assess(groups))
    if clip is None:
        assert stats["loss"] == pytest.approx(expected.item(), abs=1e-5)
    for model, policy in zip(models, policies, strict=True):
        for parameter, own in zip(model.parameters(), policy.model.parameters(), strict=True):
            torch.testing.assert_close(own.grad, parameter.grad, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("clip", [None, 0.2])
def test_a_group_that_lost_a_response_weighs_as_much_as_a_whole_one(clip, monkeypatch):
    policies = [word_policy(seed) for seed in range(2)]
    whole, cut = groups_of(1), groups_of(1, rewards=(1.0, 3.0), seed=1)
    models = [copy.deepcopy(policy.model) for policy in policies]
    parts = [written_objective(models, group, group[0].rewards) for group in (whole, cut)]
    (sum(parts) / 2).backward()
    learner = reinforce(policies, "mareinforce", clip_range=clip)
    without_step(learner, monkeypatch).learn(learner.assess([*whole, *cut]))
    for model, policy in zip(models, policies, strict=True):
        for parameter, own in zip(model.parameters(), policy.model.parameters(), strict=True):
            torch.testing.assert_close(own.grad, parameter.grad, atol=1e-5, rtol=1e-4)


def test_clipping_stops_after_the_policy_has_moved_far_enough():
    policies, groups = [word_policy(seed) for seed in range(2)], groups_of(2)
    learner = reinforce(policies, optimisation=Optimisation(learning_rate=5e-2), clip_range=0.05)
    experiences = learner.assess(groups)
    norms = [learner.learn(experiences)["grad_norm"] for _ in range(12)]
    assert min(norms[1:]) < 0.5 * norms[0]


def test_shared_parameters_sum_their_gradients(monkeypatch):
    shared, groups = word_policy(0), groups_of(2)
    model = copy.deepcopy(shared.model)
    written_objective([model, model], groups, ADVANTAGES["magrpo"]).backward()
    learner = without_step(reinforce([shared, copy.copy(shared)]), monkeypatch)
    learner.learn(learner.assess(groups))
    for parameter, own in zip(model.parameters(), shared.model.parameters(), strict=True):
        torch.testing.assert_close(own.grad, parameter.grad, atol=1e-5, rtol=1e-4)


def test_the_reference_is_taken_off_each_agents_own_return():
    policies, groups = [word_policy(seed) for seed in range(2)], groups_of(1)
    learner = reinforce(policies, "mareinforce", kl_coefficient=0.25)
    learner.references = [policies[0], word_policy(7)]
    (experience,) = learner.assess(groups)
    assert experience.returns[0].tolist() == pytest.approx([1.0, 3.0, 2.0], abs=1e-6)
    answer = groups[0].answers[1][0]
    by_hand = 0.0
    for end in range(1, len(answer.token_ids) + 1):
        before = (*answer.prompt_ids, *answer.token_ids[: end - 1])
        own, reference = (
            plain_logp(p.model, before, answer.token_ids[end - 1 : end]).item()
            for p in (policies[1], learner.references[1])
        )
        by_hand += math.exp(reference - own) - (reference - own) - 1
    assert by_hand > 0.001
    assert experience.returns[1, 0].item() == pytest.approx(1.0 - 0.25 * by_hand, abs=1e-5)


def test_a_broken_log_probability_names_item_and_agent():
    policies = [word_policy(seed) for seed in range(2)]
    with torch.no_grad():
        next(policies[1].model.parameters()).fill_(math.nan)
    learner = reinforce(policies)
    with pytest.raises(TrainingError, match=r"agent 1: .* of an answer to item 'item-0' must be finite, actually nan"):
        learner.learn(learner.assess(groups_of(1)))


# ------------------------------------------------------------------ critics


def critic(seed, kind="v"):
    return Critic(ScalarModel(backbone_of(word_model(seed)), seed), word_tokenizer(), kind)


def last_value(own, ids):
    return own.model.head(own.model.backbone(input_ids=torch.tensor([ids])).last_hidden_state[:, -1])[0, 0]


def iac(policies, critics, rule=None, **settings):
    from comlrl_agents.learners.actor_critic import ValueRule

    return ActorCritic(
        policies, critics, rule or PolicyRule(), ValueRule(), Optimisation(max_grad_norm=None),
        Optimisation(learning_rate=1e-2, max_grad_norm=None), **settings,
    )  # fmt: skip


@pytest.mark.parametrize("kind", ["v", "q"])
def test_values_are_read_at_the_last_prompt_or_response_token(kind):
    groups, policies = groups_of(2), [word_policy(0), word_policy(1)]
    critics = [critic(5, kind), critic(6, kind)]
    experiences = iac(policies, critics).assess(groups)
    for group, experience in zip(groups, experiences, strict=True):
        for agent, own in enumerate(critics):
            for k, answer in enumerate(group.answers[agent]):
                ids = answer.prompt_ids if kind == "v" else (*answer.prompt_ids, *answer.token_ids)
                value = last_value(own, ids).item()
                assert experience.values[agent, k].item() == pytest.approx(value, abs=1e-5)
                assert experience.advantages[agent, k].item() == pytest.approx(group.rewards[k] - value, abs=1e-5)


def test_a_critic_with_another_vocabulary_reads_the_texts():
    other = Critic(ScalarModel(backbone_of(word_model(5))), word_tokenizer(("gold", "blue", "red", "green")), "q")
    (group,) = groups_of(1, agents=1)
    rows = other.agent_rows([group], 0, word_policy(0))
    ids = {"gold": 3, "blue": 4, "red": 5, "green": 6}
    assert rows == [((7,), tuple(ids[word] for word in a.text.split())) for a in group.answers[0]]


def test_a_critic_with_another_vocabulary_takes_no_spelled_end_for_one():
    model, tokenizer = load_model("tiny")
    other = Critic(ScalarModel(backbone_of(model)), tokenizer, "q")
    (group,) = groups_of(1, rewards=(1.0, 2.0), agents=1)
    spelled = tuple(replace(answer, text=f"red {tokenizer.eos_token} blue") for answer in group.answers[0])
    rows = other.agent_rows([replace(group, answers=(spelled,))], 0, word_policy(0))
    assert tokenizer.eos_token_id not in rows[0][1]


def test_advantages_are_normalised_over_the_buffer():
    groups = [*groups_of(2), *groups_of(1, rewards=(9.0,), seed=4)]
    experiences = iac([word_policy(0), word_policy(1)], [critic(5), critic(6)], PolicyRule(normalize=True)).assess(
        groups
    )
    joined = torch.cat([experience.advantages for experience in experiences], dim=1)
    assert joined.shape == (2, 7)
    torch.testing.assert_close(joined.mean(1).float(), torch.zeros(2), atol=1e-5, rtol=0)
    torch.testing.assert_close(joined.std(1, correction=0).float(), torch.ones(2))


def test_critics_are_stepped_once_per_minibatch_towards_the_return(monkeypatch):
    groups, critics = groups_of(2), [critic(5), critic(6)]
    learner = iac([word_policy(0), word_policy(1)], critics)
    plain = copy.deepcopy(critics[0])
    loss = sum(
        (last_value(plain, a.prompt_ids) - r) ** 2 for g in groups for a, r in zip(g.answers[0], g.rewards, strict=True)
    )
    (0.6 * loss / 6).backward()
    steps, step = [], learner.critic_optimizer.step

    def watch(progress):
        steps.append([p.grad.clone() for p in critics[0].model.parameters()])
        return step(progress)

    monkeypatch.setattr(learner.critic_optimizer, "step", watch)
    experiences = learner.assess(groups)
    first = learner.learn(experiences)
    assert len(steps) == 1
    for own, parameter in zip(steps[0], plain.model.parameters(), strict=True):
        torch.testing.assert_close(own, parameter.grad, atol=1e-5, rtol=1e-4)
    for _ in range(30):
        last = learner.learn(experiences)
    assert last["value/loss"] < 0.5 * first["value/loss"]


def test_a_head_on_the_actor_is_stepped_with_it_and_clipped(monkeypatch):
    policies, groups = [word_policy(0), word_policy(1)], groups_of(2)
    args = RLConfig(rl_algorithm="iac", use_separate_critic=False, advantage_normalization=False)
    learner = make_policy_learner(policies, args, Streams(0))
    assert learner.critic_optimizer is None
    assert learner.critics[0].model.backbone is policies[0].model.model
    before = [copy.deepcopy(c.model.head) for c in learner.critics]
    actors = [copy.deepcopy(policy) for policy in policies]
    heads = [copy.deepcopy(c) for c in learner.critics]
    experiences = learner.assess(groups)
    by_hand = []
    for agent, own in enumerate(heads):
        values = torch.stack([last_value(own, a.prompt_ids) for g in groups for a in g.answers[agent]])
        targets = torch.tensor([r for g in groups for r in g.rewards])
        by_hand.append(((values - targets) ** 2).mean().item())
    stats = learner.learn(experiences)
    assert stats["value/loss"] == pytest.approx(sum(by_hand), rel=1e-5)
    assert not any(same_weights(a, c.model.head) for a, c in zip(before, learner.critics, strict=True))
    assert not any(same_weights(a.model, p.model) for a, p in zip(actors, policies, strict=True))


def test_shared_actors_share_their_value_head():
    shared = word_policy(0)
    args = RLConfig(rl_algorithm="iac", use_separate_critic=False)
    learner = make_policy_learner([shared, copy.copy(shared)], args, Streams(0))
    assert learner.critics[0] is learner.critics[1]


@pytest.mark.parametrize("kind", ["v", "q"])
def test_the_central_critic_reads_the_joint_prompt_once(kind, monkeypatch):
    groups, own = groups_of(2), critic(5, kind)
    learner = iac([word_policy(0), word_policy(1)], [own], central=True)
    fed = []
    forward = own.model.backbone.forward
    monkeypatch.setattr(
        own.model.backbone, "forward", lambda *a, **k: fed.append(tuple(k["input_ids"].shape)) or forward(*a, **k)
    )
    experiences = learner.assess(groups)
    # Both items ask the same of both agents: one row for type "v".
    if kind == "v":
        assert [rows for rows, _ in fed] == [1]
    assert experiences[0].values.shape == (2, 3)
    assert torch.equal(experiences[0].values[0], experiences[0].values[1])
    assert (len(set(experiences[0].values[0].tolist())) == 1) == (kind == "v")
    learner.learn(experiences)


@pytest.mark.parametrize("name", ["magrpo", "iac", "maac"])
def test_state_round_trip_continues_exactly(name):
    args = RLConfig(rl_algorithm=name, agent_learning_rate=1e-2)
    kwargs = {} if name == "magrpo" else {"critic_model": word_model(9)}

    def run(learner, steps):
        for step in range(steps):
            learner.learn(learner.assess(groups_of(2, seed=step)))

    def team():
        return [word_policy(0), word_policy(1)]

    straight = team()
    one = make_policy_learner(straight, args, Streams(0), **kwargs)
    run(one, 2)
    state = copy.deepcopy(one.state_dict())
    resumed = [LLMPolicy(copy.deepcopy(p.model), p.tokenizer) for p in straight]
    two = make_policy_learner(resumed, args, Streams(0), **kwargs)
    two.load_state_dict(state)
    run(one, 2)
    run(two, 2)
    assert all(same_weights(a.model, b.model) for a, b in zip(straight, resumed, strict=True))


def test_a_saved_critic_goes_on_with_its_head(tmp_path):
    args, team = RLConfig(rl_algorithm="iac", agent_learning_rate=1e-2), [word_policy(0), word_policy(1)]
    learner = make_policy_learner(team, args, Streams(0), critic_model=word_model(9))
    learner.learn(learner.assess(groups_of(2)))
    learner.save_critics(tmp_path)
    folders = [str(tmp_path / "critic_0"), tmp_path / "critic_1"]
    again = make_policy_learner(team, args, Streams(1), critics=folders)
    for old, new in zip(learner.critics, again.critics, strict=True):
        assert same_weights(old.model, new.model)
    (tmp_path / "critic_1" / "model.safetensors").unlink()
    with pytest.raises(ConfigError, match=r"critic '.*critic_1': must hold whole files as a run saved them"):
        make_policy_learner(team, args, Streams(1), critics=folders)


# ------------------------------------------------------------------ bad input


@pytest.mark.parametrize(
    ("fields", "given", "text"),
    [
        ({"rl_algorithm": "iac"}, {}, "critic_model_name: is required when the first agent is an object"),
        (
            {"rl_algorithm": "maac"},
            {"critics": [1, 2]},
            "critics: 'maac' needs a list of 1, one for each critic, actually .1, 2.",
        ),
        ({"rl_algorithm": "iac"}, {"critics": "tiny"}, "critics: 'iac' needs a list of 2, .* actually 'tiny'"),
        ({"rl_algorithm": "iac"}, {"critics": [1, 2], "critic_model": 3}, "critics: must be named in one way, .* 2"),
        (
            {"rl_algorithm": "iac", "critic_model_name": ["a"]},
            {},
            "critic_model_name: 'iac' needs a name, or a list",
        ),
        ({}, {"critics": ["tiny"]}, "critics: rl_algorithm='magrpo' has no critics"),
        ({"rl_algorithm": "iac", "use_separate_critic": False}, {"critic_model": "tiny"}, "has no critics of its own"),
        ({"rl_algorithm": "maac"}, {"critic_model": 3}, "must be names, folders or model objects, actually int"),
        ({"rl_algorithm": "maac", "critic_devices": "cuda:77"}, {"critic_model": "tiny"}, "^critic_devices: 'cuda:77'"),
        ({"rl_algorithm": "iac"}, {"critics": ["/nowhere/at/all"] * 2}, "^critics: model '/nowhere/at/all': no such"),
        ({"rl_algorithm": "iac"}, {"critic_model": "/nowhere"}, "^critic_model_name: model '/nowhere': no such folder"),
    ],
)
def test_a_critic_that_is_missing_or_not_used_is_refused(fields, given, text):
    with pytest.raises(ConfigError, match=text):
        make_policy_learner([word_policy(0), word_policy(1)], RLConfig(**fields), Streams(0), **given)


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"num_generations": 1}, "num_generations: 'magrpo' learns from groups of at least 2 joint responses"),
        ({"train_batch_size": 4}, "train_batch_size: must not exceed the 2 items of rollout_buffer_size"),
        ({"ppo_epochs": 2}, "ppo_epochs: more than one pass over a buffer needs ppo_clip_range"),
        ({"use_separate_critic": False}, "use_separate_critic: False puts value heads on the actors"),
        ({"critic_model_name": "tiny"}, "critic_model_name: has no meaning without a separate critic"),
        ({"reference_devices": "cpu"}, "reference_devices: has no meaning without reference_kl_enabled=True"),
        ({"rl_algorithm": "iac", "critic_devices": ["cpu"] * 3}, "critic_devices: must name one device or 2"),
        ({"rl_algorithm": "ppo"}, "rl_algorithm: must be one of 'magrpo'"),
    ],
)
def test_settings_that_do_not_go_together_are_refused(fields, text):
    with pytest.raises(ConfigError, match=text):
        RLConfig(**fields)


@pytest.mark.parametrize(("name", "expected"), [("magrpo", True), ("marloo", False), ("iac", True)])
def test_who_normalises_unless_told_otherwise(name, expected):
    assert RLConfig(rl_algorithm=name).policy_rule.normalize is expected
    assert RLConfig(rl_algorithm=name, advantage_normalization=not expected).policy_rule.normalize is not expected
