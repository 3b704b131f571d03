import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

from comlrl_agents.optimisation import Optimisation, TeamOptimizer
from comlrl_env.errors import ConfigError


@pytest.mark.parametrize("limit", [0.1, 1e6, None])
@pytest.mark.parametrize("fused", [True, False])
def test_a_step_is_clipping_and_adamw_as_torch_does_them(limit, fused, monkeypatch):
    monkeypatch.setattr("comlrl_agents.optimisation._fused", lambda parameters: fused)
    torch.manual_seed(0)
    inputs = torch.randn(5, 8, 6)
    own, plain = nn.Linear(6, 4), nn.Linear(6, 4)
    plain.load_state_dict(own.state_dict())
    optimizer = TeamOptimizer({0: own}, Optimisation(learning_rate=0.05, max_grad_norm=limit))
    expected = torch.optim.AdamW(plain.parameters(), lr=0.05, weight_decay=0.0)
    for batch in inputs:
        optimizer.clear_gradients()
        own(batch).square().sum().backward()
        stats = optimizer.step(0.0)
        expected.zero_grad()
        plain(batch).square().sum().backward()
        norm = nn.utils.clip_grad_norm_(plain.parameters(), float("inf") if limit is None else limit)
        expected.step()
        assert stats["agent_0/grad_norm"] == pytest.approx(float(norm), rel=1e-5)
    torch.testing.assert_close(own.state_dict(), plain.state_dict())


def test_a_frozen_model_is_refused_by_its_name():
    frozen = nn.Linear(2, 2).requires_grad_(False)
    with pytest.raises(ConfigError, match="agent 1: its model must have a weight to learn"):
        TeamOptimizer({0: nn.Linear(2, 2), 1: frozen}, Optimisation())


def test_a_parameter_without_a_gradient_stays_as_it_is():
    layers = nn.ModuleList([nn.Linear(2, 2), nn.Linear(2, 2)])
    before = layers[1].weight.clone()
    optimizer = TeamOptimizer({0: layers}, Optimisation(learning_rate=0.1))
    for _ in range(2):
        optimizer.clear_gradients()
        layers[0](torch.ones(1, 2)).sum().backward()
        optimizer.step(0.0)
    assert torch.equal(layers[1].weight, before)


def test_the_first_pass_finds_everything_that_stays_already_there():
    layer = nn.Linear(2, 2)
    optimizer = TeamOptimizer({0: layer}, Optimisation())
    optimizer.clear_gradients()
    places = [tensor.data_ptr() for tensor in _kept(optimizer, layer)]
    for _ in range(2):
        layer(torch.ones(1, 2)).sum().backward()
        optimizer.step(0.0)
        optimizer.clear_gradients()
    assert [tensor.data_ptr() for tensor in _kept(optimizer, layer)] == places


def _kept(optimizer, layer):
    states = optimizer.state_dict()["optimizers"]["0"]["state"].values()
    return [*(p.grad for p in layer.parameters()), *(s[name] for s in states for name in ("exp_avg", "exp_avg_sq"))]


def test_what_is_stepped_lies_in_memory_of_its_own_and_what_is_shared_stays_shared(tmp_path):
    save_file({"weight": torch.arange(6.0).view(2, 3), "bias": torch.tensor([1.0, 2.0])}, tmp_path / "file")
    loaded = load_file(tmp_path / "file")  # in the file, until it is written to
    layer = nn.Linear(3, 2)
    layer.weight, layer.bias = nn.Parameter(loaded["weight"]), nn.Parameter(loaded["bias"])
    twin = nn.Linear(3, 2)
    tied, elsewhere = nn.ModuleList([twin, nn.Linear(3, 2)]), nn.Linear(3, 2)
    tied[1].weight = nn.Parameter(twin.weight.data)  # two parameters, one memory
    elsewhere.weight = nn.Parameter(twin.weight.data)
    one = nn.Linear(3, 2)
    both = nn.Linear(3, 2)
    both.weight = one.weight  # one parameter of two models
    before = {tensor.data_ptr() for tensor in loaded.values()}
    TeamOptimizer({0: layer, 1: tied, 2: elsewhere, 3: one, 4: both}, Optimisation())
    assert not before & {parameter.data_ptr() for parameter in layer.parameters()}
    assert layer.weight.tolist() == [[0, 1, 2], [3, 4, 5]]
    assert layer.bias.tolist() == [1, 2]
    assert tied[0].weight.data_ptr() == tied[1].weight.data_ptr() == elsewhere.weight.data_ptr()
    assert both.weight is one.weight
