"""What a model computes at those positions that predict a scored token, with as few other positions as
possible.

Two plans with the same results. Rows as they are, right-padded, in batches of similar length. Or each
distinct prompt once, left-padded, and its completions behind its cached keys and values, through which the
gradient flows: 1.3 to 2 times less work where prompts are long or shared by many completions.
"""

import copy
from collections.abc import Callable, Iterator, Sequence
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from comlrl_agents.forward import forward
from comlrl_agents.tokens import pad

Row = tuple[tuple[int, ...], tuple[int, ...]]
"""A prompt and those tokens of its completion that are scored, at least one."""

_FULL_BATCH = 512
"""From this many tokens on a batch is closed rather than filled with rows that are much shorter."""

_WORTH_SHARING = 0.85


def scored_states(module: nn.Module, rows: Sequence[Row], output: str) -> tuple[Tensor, list[Row]]:
    """One state per scored token (tokens, features), and the rows in the order in which the states stand.

    ``module``: a backbone with ``output`` "last_hidden_state", or a whole model with "logits".
    """
    apart = list(_batches(rows, _length))
    prompts = list(dict.fromkeys(prompt for prompt, _ in rows))
    if len(prompts) < len(rows):
        behind = list(_batches([row for row in rows if len(row[1]) > 1], lambda row: len(row[1]) - 1))
        size = len(prompts) * max(map(len, prompts)) + sum(
            _size(batch, lambda row: len(row[1]) - 1) for batch in behind
        )
        if size < _WORTH_SHARING * sum(_size(batch, _length) for batch in apart) and _can_share(module, output):
            return _shared(module, rows, prompts, behind, output)
    states = torch.cat([_apart(module, batch, output) for batch in apart])
    return states, [row for batch in apart for row in batch]


def _length(row: Row) -> int:
    return len(row[0]) + len(row[1]) - 1  # the last token is predicted, never fed


def _size(batch: Sequence[Row], length: Callable[[Row], int]) -> int:
    return len(batch) * max(map(length, batch))


def _batches(rows: Sequence[Row], length: Callable[[Row], int]) -> Iterator[list[Row]]:
    """Rows from long to short; a batch ends where padding would begin to cost more than another call."""
    batch: list[Row] = []
    for row in sorted(rows, key=lambda row: (length(row), row), reverse=True):
        if batch and _size(batch, length) >= _FULL_BATCH and length(row) < 0.8 * length(batch[0]):
            yield batch
            batch = []
        batch.append(row)
    if batch:
        yield batch


def _apart(module: nn.Module, batch: Sequence[Row], output: str) -> Tensor:
    device = next(module.parameters()).device
    ids, real = pad([(prompt + completion)[:-1] for prompt, completion in batch], "right")
    width = ids.shape[1]
    positions = torch.arange(width, device=device).expand(len(batch), width)
    values: Tensor = getattr(forward(module, ids.to(device), real.long().to(device), positions), output)
    where = [
        at * width + len(prompt) - 1 + step
        for at, (prompt, completion) in enumerate(batch)
        for step in range(len(completion))
    ]
    return values.flatten(0, 1).index_select(0, torch.tensor(where, device=device))


def _shared(
    module: nn.Module,
    rows: Sequence[Row],
    prompts: Sequence[tuple[int, ...]],
    behind: Sequence[Sequence[Row]],
    output: str,
) -> tuple[Tensor, list[Row]]:
    from transformers import DynamicCache

    device = next(module.parameters()).device
    ids, real = (x.to(device) for x in pad(prompts, "left"))
    past: Any = DynamicCache(config=module.config)  # type: ignore[arg-type]  # a PreTrainedConfig
    positions = (real.cumsum(dim=1) - 1).clamp(min=0)
    outputs = forward(module, ids, real.long(), positions, past, last_only=output == "logits")
    parts: list[Tensor] = [getattr(outputs, output)[:, -1]]
    number = {prompt: at for at, prompt in enumerate(prompts)}
    begins, at = {}, len(prompts)
    for batch in behind:
        fork = copy.copy(past)
        fork.layers = [copy.copy(layer) for layer in past.layers]
        index = torch.tensor([number[prompt] for prompt, _ in batch], device=device)
        for layer in fork.layers:  # as batch_select_indices does, but with a backward pass that adds whole rows
            layer.keys, layer.values = layer.keys.index_select(0, index), layer.values.index_select(0, index)
        fed, there = (x.to(device) for x in pad([completion[:-1] for _, completion in batch], "right"))
        steps = torch.arange(fed.shape[1], device=device)
        seen = torch.cat([real[index], there], dim=1).long()
        # Padding behind a long prompt could come to lie beyond the model's context.
        places = (positions[index, -1:] + 1 + steps).masked_fill(~there, 0)
        values: Tensor = getattr(forward(module, fed, seen, places, fork), output)
        parts.append(values.flatten(0, 1))
        for row in batch:
            begins[row] = at
            at += fed.shape[1]
    where = [
        place
        for row in rows
        for place in (number[row[0]], *range(begins.get(row, 0), begins.get(row, 0) + len(row[1]) - 1))
    ]
    return torch.cat(parts).index_select(0, torch.tensor(where, device=device)), list(rows)


_sharing: "WeakKeyDictionary[nn.Module, bool]" = WeakKeyDictionary()


def _can_share(module: nn.Module, output: str) -> bool:
    """Whether the cache carries everything and a gradient; tried out once per module."""
    if torch.is_grad_enabled() and any(getattr(m, "gradient_checkpointing", False) for m in module.modules()):
        return False  # recomputed layers would write into the cache twice
    if module not in _sharing:
        _sharing[module] = _sharing_agrees(module, output)
    return _sharing[module]


def inherit_sharing(model: nn.Module, twin: nn.Module) -> None:
    """What was tried out on ``model`` or its parts holds for ``twin``, a copy of it."""
    for name, own in model.named_modules():
        if own in _sharing:
            _sharing[twin.get_submodule(name)] = _sharing[own]


@torch.no_grad()
def _sharing_agrees(module: nn.Module, output: str) -> bool:
    rows: list[Row] = [((1, 2, 3, 2, 1), (2, 3, 1)), ((1, 2, 3, 2, 1), (1,)), ((3, 0), (0, 2))]
    try:
        from transformers import DynamicCache

        layers = DynamicCache(config=module.config).layers  # type: ignore[arg-type]  # a PreTrainedConfig
        if not {type(layer).__name__ for layer in layers} <= {"DynamicLayer", "DynamicSlidingWindowLayer"}:
            return False
        prompts = list(dict.fromkeys(prompt for prompt, _ in rows))
        shared, _ = _shared(module, rows, prompts, [[row for row in rows if len(row[1]) > 1]], output)
        plain = torch.cat([_apart(module, [row], output) for row in rows])
    except torch.OutOfMemoryError:
        raise  # says nothing about the model
    except Exception:  # noqa: BLE001  # a trial on code we know nothing about: whatever it raises means no
        return False
    return torch.allclose(shared, plain, rtol=0, atol=1e-3 * float(plain.nan_to_num().abs().max()), equal_nan=True)
