import pytest
import torch
from torch import nn

from comlrl_agents import placement
from comlrl_env.errors import ConfigError
from tests.comlrl_agents.families import family

CPU = torch.device("cpu")


def test_the_device_by_name_or_the_best_one():
    assert placement.pick_device("cpu").value == CPU
    best = placement.pick_device()
    found = [name for name in ("cuda", "mps", "cpu") if getattr(torch, name).is_available()]
    assert best.value.type == found[0]
    assert best.reason


@pytest.mark.parametrize("name", ["gpu", "cuda:99", "meta-physics"])
def test_a_device_that_is_not_there_is_named(name):
    with pytest.raises(ConfigError, match=f"device: '{name}' cannot be used here") as refused:
        placement.pick_device(name)
    assert len(str(refused.value)) < 200  # torch lists all the devices that it has heard of
    with pytest.raises(ConfigError, match=f"^reward_model_device: '{name}' cannot be used here"):
        placement.pick_device(name, "reward_model_device")


def test_number_formats():
    assert placement.pick_dtype(None, CPU).value == torch.float32
    assert placement.pick_dtype("float32", CPU).value == torch.float32
    assert placement.pick_dtype("bfloat16", CPU).value == torch.bfloat16
    with pytest.raises(ConfigError, match="'float16'"):
        placement.pick_dtype("float16", CPU)


def test_weights_become_float32_only_where_they_are_not():
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2).bfloat16())
    decision = placement.float32_weights(model)
    assert decision.value
    assert "bfloat16" in decision.reason
    assert {p.dtype for p in model.parameters()} == {torch.float32}
    assert not placement.float32_weights(model).value


@pytest.mark.parametrize(
    ("seconds", "error", "expected", "word"),
    [
        ((2.0, 1.0), 1e-6, "medium", "2.00 times"),
        ((1.0, 1.0), 1e-6, "highest", "not worth it"),
        ((1.0, 3.0), 1e-6, "highest", "0.33 times"),
        ((2.0, 1.0), 1e-3, "highest", "too inexact"),
    ],
)
def test_products_by_speed_and_accuracy(monkeypatch, seconds, error, expected, word):
    by_name = dict(zip(("highest", "medium"), seconds, strict=True))
    monkeypatch.setattr(placement, "_matmul_seconds", lambda _sizes: by_name[torch.get_float32_matmul_precision()])
    monkeypatch.setattr(placement, "matmul_error", lambda: error)
    decision = placement.pick_float32_matmul(CPU, family("llama"))
    assert decision.value == expected
    assert word in decision.reason
    assert torch.get_float32_matmul_precision() == "highest"


def test_the_measured_error_is_that_of_float32():
    assert 0 < placement.matmul_error() < 5e-6


def test_threads_follow_the_containers_quota(monkeypatch):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 8)
    monkeypatch.setattr(placement, "_cgroup_cpus", lambda: 2.5)
    assert placement.pick_threads() == placement.Decision(2, "the container's quota is 2.5 CPUs")
    monkeypatch.setenv("OMP_NUM_THREADS", "8")
    assert placement.pick_threads().value == 8


def test_tuning_says_what_it_did():
    threads, precision = torch.get_num_threads(), torch.get_float32_matmul_precision()
    try:
        reasons = placement.tune(CPU, family("llama"))
    finally:
        torch.set_num_threads(threads)
        torch.set_float32_matmul_precision(precision)
    assert reasons.keys() == {"threads", "allocator", "float32 products"}
    assert all(reasons.values())
    assert not placement.tune_allocator(torch.device("cuda")).value


def test_large_tensors_are_backed_by_huge_pages_within_their_bounds(monkeypatch):
    asked, library = [], placement.ctypes.CDLL

    class Recorded:
        def __init__(self, name):
            self.name = name

        def madvise(self, begin, size, advice):
            asked.append((begin.value, size.value))
            return found(begin, size, advice)

    found = library(None).madvise
    monkeypatch.setattr(placement.ctypes, "CDLL", Recorded)
    tensor = torch.full((5 << 20,), 3.0)  # 20 MiB
    placement.ask_for_huge_pages(tensor)
    placement.ask_for_huge_pages(torch.zeros(1 << 20))  # 4 MiB: not worth it
    placement.ask_for_huge_pages(torch.empty(5 << 20, device="meta"))
    ((begin, size),) = asked
    page = 1 << 21
    assert begin % page == size % page == 0
    assert tensor.data_ptr() <= begin < tensor.data_ptr() + page
    assert tensor.data_ptr() + (20 << 20) - page < begin + size <= tensor.data_ptr() + (20 << 20)
    assert bool((tensor == 3).all())


def test_only_models_that_can_checkpoint_are_asked_to():
    with pytest.raises(ConfigError, match="Linear cannot do it"):
        placement.checkpoint_gradients(nn.Linear(2, 2))
