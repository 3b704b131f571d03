"""Learning an embedding by rows is dense AdamW, beside which it must hold for every sequence of lookups."""

import copy

import pytest
import torch
from torch import nn

from comlrl_agents import RLConfig
from comlrl_agents.learners.marlhf import RewardFit, RewardFitRule
from comlrl_agents.optimisation import Optimisation, TeamOptimizer
from comlrl_agents.policy_learners import make_policy_learner
from comlrl_agents.streams import Streams
from tests.comlrl_agents.test_policy_learners import groups_of
from tests.comlrl_agents.test_reward_model import pairs_of, reward_model
from tests.comlrl_agents.toys import same_weights, word_model, word_policy

LOOKUPS = [[3, 3, 7], [7, 1], [], [12, 3, 0, 12], [1], [3]]
RATE = 0.05


class Reader(nn.Module):
    """Sums what a layer makes of looked-up rows."""

    def __init__(self, sparse):
        super().__init__()
        torch.manual_seed(0)
        self.embedding = nn.Embedding(20, 4, sparse=sparse)
        self.layer = nn.Linear(4, 3)

    def forward(self, ids):
        return self.layer(self.embedding(torch.tensor(ids, dtype=torch.long))).square().sum()


def by_rows(module, **fields):
    return TeamOptimizer({0: module}, Optimisation(learning_rate=RATE, **fields), lookups={0: module.embedding})


def take_steps(module, optimizer, lookups):
    for ids in lookups:
        optimizer.clear_gradients()
        for part in (ids[:2], ids[2:]):  # two passes into one gradient
            module(part).backward()
        optimizer.step(0.0)


@pytest.mark.parametrize("limit", [0.1, None])
@pytest.mark.parametrize("fused", [True, False])
def test_rows_are_learned_as_torch_learns_the_whole(limit, fused, monkeypatch):
    monkeypatch.setattr("comlrl_agents.optimisation._fused", lambda parameters: fused)
    own, plain = Reader(sparse=True), Reader(sparse=False)
    before = own.embedding.weight.detach().clone()
    optimizer = by_rows(own, max_grad_norm=limit)
    expected = torch.optim.AdamW(plain.parameters(), lr=RATE, weight_decay=0.0)
    take_steps(own, optimizer, LOOKUPS)
    for ids in LOOKUPS:
        expected.zero_grad()
        (plain(ids[:2]) + plain(ids[2:])).backward()
        nn.utils.clip_grad_norm_(plain.parameters(), float("inf") if limit is None else limit)
        expected.step()
    torch.testing.assert_close(own.state_dict(), plain.state_dict())
    used = sorted({row for ids in LOOKUPS for row in ids})
    others = [row for row in range(20) if row not in used]
    assert torch.equal(own.embedding.weight[others], before[others])
    state = optimizer.state_dict()
    assert sorted(state["rows"]["0"].tolist()) == used
    assert state["optimizers"]["0"]["state"][0]["exp_avg"].shape == (len(used), 4)


@pytest.mark.parametrize(("first", "then"), [(True, True), (True, False), (False, True)])
def test_a_run_goes_on_by_rows_or_as_a_whole(first, then):
    whole = Reader(sparse=True)
    take_steps(whole, by_rows(whole), LOOKUPS)
    begun, resumed = Reader(sparse=first), Reader(sparse=then)

    def optimizer_of(module, rows):
        return by_rows(module) if rows else TeamOptimizer({0: module}, Optimisation(learning_rate=RATE))

    optimizer = optimizer_of(begun, first)
    take_steps(begun, optimizer, LOOKUPS[:3])
    later = optimizer_of(resumed, then)
    later.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    resumed.load_state_dict(begun.state_dict())
    take_steps(resumed, later, LOOKUPS[3:])
    if first and then:
        assert same_weights(whole, resumed)
    torch.testing.assert_close(resumed.state_dict(), whole.state_dict())


@pytest.fixture
def every_embedding_is_large(monkeypatch):
    monkeypatch.setattr("comlrl_agents.embedding_rows._LARGE", 1)


@pytest.mark.parametrize("budget", [None, 30])
def test_a_reward_model_is_fitted_by_rows(budget, monkeypatch):
    rule, models = RewardFitRule(learning_rate=1e-2, micro_batch_tokens=budget), []
    for large in (1, 1 << 22):
        monkeypatch.setattr("comlrl_agents.embedding_rows._LARGE", large)
        models.append(reward_model())
        fit = RewardFit(models[-1], rule)
        for _ in range(4):
            fit.learn(pairs_of(4))
        assert bool(fit.optimizer.state_dict()["rows"]) == (large == 1)
    # The head's bias has a gradient of rounding errors alone: the loss sees differences.
    bodies = [model.backbone.state_dict() | {"head": model.head.weight} for model in models]
    torch.testing.assert_close(*bodies, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("name", ["iac", "maac"])
@pytest.mark.parametrize("budget", [None, 14])
def test_critics_are_learned_by_rows(name, budget, monkeypatch):
    args = RLConfig(rl_algorithm=name, agent_learning_rate=1e-2, critic_type="q", micro_batch_tokens=budget)
    learners = []
    for large in (1, 1 << 22):
        monkeypatch.setattr("comlrl_agents.embedding_rows._LARGE", large)
        team = [word_policy(0), word_policy(1)]
        learners.append(make_policy_learner(team, args, Streams(0), critic_model=word_model(9)))
        for seed in range(4):
            learners[-1].learn(learners[-1].assess(groups_of(2, seed=seed)))
        assert bool(learners[-1].critic_optimizer.state_dict()["rows"]) == (large == 1)
    for one, other in zip(learners[0].critics, learners[1].critics, strict=True):
        torch.testing.assert_close(one.model.state_dict(), other.model.state_dict(), atol=1e-5, rtol=1e-4)


@pytest.mark.usefixtures("every_embedding_is_large")
def test_a_frozen_or_shared_embedding_is_not_learned_by_rows():
    fit = RewardFit(reward_model(), RewardFitRule(freeze_backbone=True))
    fit.learn(pairs_of(2))
    assert not fit.optimizer.state_dict()["rows"]
    model = reward_model()
    model.backbone.extra = nn.Linear(1, 1)
    model.backbone.extra.weight = model.backbone.get_input_embeddings().weight
    assert not RewardFit(model, RewardFitRule()).optimizer.state_dict()["rows"]
