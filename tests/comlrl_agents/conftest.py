"""Fixtures of the agents' tests."""

from collections.abc import Iterator

import pytest
import torch

from tests.comlrl_agents.toys import word_model, word_tokenizer


@pytest.fixture(autouse=True)
def computing_as_before() -> Iterator[None]:
    """Commands settle threads and float32 products for their process; the next test must not inherit that."""
    threads, precision = torch.get_num_threads(), torch.get_float32_matmul_precision()
    yield
    torch.set_num_threads(threads)
    torch.set_float32_matmul_precision(precision)


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A folder with the model that reward models and critics begin with."""
    folder = tmp_path_factory.mktemp("base")
    word_model(5, layers=2).save_pretrained(folder)
    word_tokenizer().save_pretrained(folder)
    return str(folder)
