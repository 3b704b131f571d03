import copy
import math

import numpy as np
import pytest
import torch

from comlrl_agents.learners.madpo import MADPO
from comlrl_agents.losses import PreferenceLoss
from comlrl_agents.optimisation import Optimisation
from comlrl_env.errors import TrainingError
from tests.comlrl_agents.toys import same_weights, token_pair, word_policy

BETA = 0.5


def plain_logp(model, prompt, completion):
    """Log-probability by the textbook, one sequence at a time."""
    ids = torch.tensor([[*prompt, *completion]])
    logp = model(input_ids=ids).logits[0].log_softmax(-1)
    return sum(logp[len(prompt) - 1 + t, token] for t, token in enumerate(completion))


def joint_loss(models, pairs):
    """−E log σ(η Σ_i Δ_i), written down directly."""
    losses = []
    for pair in pairs:
        delta = 0.0
        for agent, model in enumerate(models):
            for sign, turns in ((1, pair.winner), (-1, pair.loser)):
                for turn in turns:
                    delta = delta + sign * plain_logp(model, turn.prompt_ids[agent], turn.completions[agent].token_ids)
        losses.append(-torch.nn.functional.logsigmoid(BETA * delta))
    return torch.stack(losses).mean()


def learner(policies, **optimisation):
    settings = {"learning_rate": 1e-2, "max_grad_norm": None} | optimisation
    return MADPO(policies, PreferenceLoss(beta=BETA), Optimisation(**settings))


def team(count=2, **kwargs):
    return [word_policy(seed, **kwargs) for seed in range(count)]


def pairs_of(count, seed=0, **kwargs):
    rng = np.random.default_rng(seed)
    return [token_pair(rng, key=f"item-{i}", **kwargs) for i in range(count)]


def gradients_before_step(policies, pairs, monkeypatch, **optimisation):
    own = learner(policies, **optimisation)
    monkeypatch.setattr(own.optimizer, "step", lambda progress: {})
    stats = own.learn(pairs)
    return stats, [[p.grad.clone() for p in policy.parameters()] for policy in policies]


@pytest.mark.parametrize("micro_batch_tokens", [None, 12, 10_000])
@pytest.mark.parametrize(("agents", "turns"), [(1, 1), (2, 1), (3, 1), (2, 3)])
def test_every_gradient_is_autograd_of_the_joint_loss(agents, turns, micro_batch_tokens, monkeypatch):
    policies, pairs = team(agents), pairs_of(4, agents=agents, turns=turns)
    models = [copy.deepcopy(policy.model) for policy in policies]
    expected = joint_loss(models, pairs)
    expected.backward()
    stats, gradients = gradients_before_step(policies, pairs, monkeypatch, micro_batch_tokens=micro_batch_tokens)
    assert stats["loss"] == pytest.approx(expected.item(), abs=1e-6)
    for model, own in zip(models, gradients, strict=True):
        for parameter, gradient in zip(model.parameters(), own, strict=True):
            torch.testing.assert_close(gradient, parameter.grad, atol=1e-6, rtol=1e-4)


def test_shared_parameters_sum_their_gradients_and_step_once(monkeypatch):
    shared = word_policy(0)
    pairs = pairs_of(3)
    model = copy.deepcopy(shared.model)
    joint_loss([model, model], pairs).backward()
    _, gradients = gradients_before_step([shared, copy.copy(shared)], pairs, monkeypatch)
    for parameter, gradient in zip(model.parameters(), gradients[0], strict=True):
        torch.testing.assert_close(gradient, parameter.grad, atol=1e-6, rtol=1e-4)
    assert learner([shared, copy.copy(shared)]).optimizer.state_dict()["optimizers"].keys() == {"0"}


def test_learning_lowers_the_loss_and_moves_every_parameter():
    policies, pairs = team(), pairs_of(6)
    before = [copy.deepcopy(policy.model) for policy in policies]
    own = learner(policies)
    losses = [own.learn(pairs)["loss"] for _ in range(30)]
    assert losses[-1] < 0.5 * losses[0]
    for old, policy in zip(before, policies, strict=True):
        new = dict(policy.model.named_parameters())
        assert all(not torch.equal(p, new[name]) for name, p in old.named_parameters())


def test_a_zero_learning_rate_changes_nothing():
    policies = team()
    before = [copy.deepcopy(policy.model) for policy in policies]
    learner(policies, learning_rate=0.0).learn(pairs_of(3))
    assert all(same_weights(old, policy.model) for old, policy in zip(before, policies, strict=True))


def test_text_without_tokens_is_tokenised_with_its_eos():
    policy = word_policy(0)
    rng = np.random.default_rng(0)
    pair = token_pair(rng, agents=1)

    def strip(turns):
        from comlrl_env.types import Completion, JointTurn

        return tuple(JointTurn(("pick",), (Completion("red gold"),)) for _ in turns)

    from msgspec.structs import replace

    from comlrl_agents.sequences import agent_sequences

    bare = replace(pair, winner=strip(pair.winner), loser=strip(pair.loser))
    sequences = agent_sequences([bare], 0, policy)
    assert list(sequences.completion_ids[0]) == [3, 6, 2]
    assert list(sequences.prompt_ids[0]) == policy.encode("pick")


def test_a_nan_stops_before_any_weight_changes_and_names_item_and_agent():
    policies, pairs = team(), pairs_of(3)
    with torch.no_grad():
        next(policies[1].model.parameters()).fill_(math.nan)
    before = copy.deepcopy(policies[0].model)
    with pytest.raises(TrainingError, match=r"agent 1: .* of item 'item-0' must be finite, actually nan"):
        learner(policies).learn(pairs)
    assert same_weights(before, policies[0].model)


def test_anchored_margins_start_at_log_two():
    policies = team()
    own = MADPO(policies, PreferenceLoss(reference_anchored=True), Optimisation(), team())
    assert own.learn(pairs_of(4))["loss"] == pytest.approx(math.log(2), abs=1e-5)


def test_state_round_trip_continues_exactly():
    pairs = pairs_of(4)
    straight = team()
    one = learner(straight)
    for _ in range(4):
        one.learn(pairs)
    stopped = team()
    first = learner(stopped)
    for _ in range(2):
        first.learn(pairs)
    resumed = [copy.copy(policy) for policy in stopped]
    second = learner(resumed)
    second.load_state_dict(copy.deepcopy(first.state_dict()))
    for _ in range(2):
        second.learn(pairs)
    assert all(same_weights(a.model, b.model) for a, b in zip(straight, resumed, strict=True))


def test_clipping_bounds_the_step_and_reports_the_norm_before():
    stats = learner(team(), max_grad_norm=1e-3).learn(pairs_of(3))
    assert stats["grad_norm"] > 1e-3
    assert stats["grad_norm"] == pytest.approx(
        math.hypot(stats["agent_0/grad_norm"], stats["agent_1/grad_norm"]), rel=1e-5
    )


@pytest.mark.parametrize(
    ("kind", "progress", "expected"), [("constant", 0.7, 1.0), ("linear", 0.25, 0.75), ("cosine", 0.5, 0.5)]
)
def test_schedules(kind, progress, expected):
    from comlrl_agents.optimisation import schedule_factor

    assert schedule_factor(kind, 100, 0, progress) == pytest.approx(expected)
    assert schedule_factor(kind, 0, 3, progress) == pytest.approx(expected / 4)


@pytest.mark.parametrize("micro_batch_tokens", [None, 12])
def test_bfloat16_computes_near_float32_and_leaves_the_weights_float32(micro_batch_tokens):
    pairs = pairs_of(4)
    exact, rounded = team(), team()
    for policy in rounded:
        policy.compute_dtype = torch.bfloat16
    losses = [learner(p, micro_batch_tokens=micro_batch_tokens).learn(pairs)["loss"] for p in (exact, rounded)]
    assert losses[0] != losses[1]
    assert losses[0] == pytest.approx(losses[1], rel=0.05)
    assert all(p.dtype == torch.float32 for policy in rounded for p in policy.parameters())
