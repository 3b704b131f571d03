"""Fixtures of the agents' tests."""

from collections.abc import Iterator

import pytest
import torch


@pytest.fixture(autouse=True)
def computing_as_before() -> Iterator[None]:
    """Commands settle threads and float32 products for their process; the next test must not inherit that."""
    threads, precision = torch.get_num_threads(), torch.get_float32_matmul_precision()
    yield
    torch.set_num_threads(threads)
    torch.set_float32_matmul_precision(precision)
