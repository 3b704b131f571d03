"""The one sequence log-probability: log π(completion | prompt), exact and differentiable.

Every score, margin and policy gradient of the kit goes through this file. Rows are sorted by length into
right-padded micro-batches, equal rows are computed once, and the vocabulary head runs on completion positions
only. Nothing of this shows in the results beyond float32 rounding.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from weakref import WeakSet

import torch
from torch import Tensor, nn

from comlrl_agents.forward import forward
from comlrl_agents.head import accumulate_gradient, find_head, target_logprobs
from comlrl_agents.tokens import pad

TokenIds = Sequence[int]
Row = tuple[tuple[int, ...], tuple[int, ...]]
"""A prompt and those tokens of its completion that are scored."""

MICRO_BATCH_TOKENS = 4096


def sequence_logprobs(
    model: nn.Module,
    prompt_ids: Sequence[TokenIds],
    completion_ids: Sequence[TokenIds],
    *,
    score_final_token: bool = True,
    micro_batch_tokens: int | None = None,
) -> Tensor:
    """Σ_t log π(token t | prompt, tokens before t) for each row: float32 of shape (B,), with gradient.

    Every completion token counts, a closing EOS included; ``score_final_token=False`` leaves the last one
    out. An empty completion has 0. ``micro_batch_tokens`` bounds the padded size of one forward pass (None:
    4096). With gradient all micro-batches stay in memory until the backward pass; :func:`backward_weighted`
    is the lean way.

    Raises ValueError when the two lists differ in length or a scored completion has no prompt token before
    it.
    """
    values, _ = token_logprobs(
        model,
        prompt_ids,
        completion_ids,
        score_final_token=score_final_token,
        micro_batch_tokens=micro_batch_tokens,
    )
    # Summed in float64: at hundreds of tokens float32 partial sums alone would be off by 1e-5.
    return values.sum(dim=1, dtype=torch.float64).float()


def token_logprobs(
    model: nn.Module,
    prompt_ids: Sequence[TokenIds],
    completion_ids: Sequence[TokenIds],
    *,
    score_final_token: bool = True,
    micro_batch_tokens: int | None = None,
) -> tuple[Tensor, Tensor]:
    """Log-probability of each completion token: float32 (B, T), zero where the bool mask (B, T) is False.

    Arguments and errors as for :func:`sequence_logprobs`.
    """
    rows = _rows(prompt_ids, completion_ids, score_final_token)
    without_dropout(model)
    batches = list(_micro_batches(rows, micro_batch_tokens))
    device = _device(model)
    nothing = torch.zeros(1, device=device, requires_grad=torch.is_grad_enabled())
    flat = torch.cat([*(_flat_logprobs(model, batch) for batch in batches), nothing])
    place, at = {}, 0
    for row in chain.from_iterable(batches):
        place[row] = range(at, at := at + len(row[1]))
    # Padding points at the zero behind the last value.
    index, mask = pad([place.get(row, ()) for row in rows], "right", at)
    return flat[index.to(device)], mask.to(device)


def backward_weighted(
    model: nn.Module,
    prompt_ids: Sequence[TokenIds],
    completion_ids: Sequence[TokenIds],
    weights: Tensor,
    *,
    score_final_token: bool = True,
    micro_batch_tokens: int | None = None,
) -> Tensor:
    """Adds the gradient of Σ_b weights[b] · logp_b to ``.grad`` and returns the log-probabilities, detached
    (B,).

    One micro-batch at a time: memory does not grow with the number of rows, and no more than a block of
    logits exists at once. With the weights of a loss taken at margins from a pass without gradient this
    accumulates the exact gradient of the whole batch.
    """
    rows = _rows(prompt_ids, completion_ids, score_final_token)
    if weights.shape != (len(rows),):
        raise ValueError(f"weights: expected shape ({len(rows)},), one per row, actually {tuple(weights.shape)}")
    without_dropout(model)
    device = _device(model)
    nothing = torch.zeros((), device=device)
    total: dict[Row, float] = {}
    for row, weight in zip(rows, weights.tolist(), strict=True):
        total[row] = total.get(row, 0.0) + weight
    logprob: dict[Row, Tensor] = {}
    for batch in _micro_batches(rows, micro_batch_tokens):
        per_token = torch.tensor([total[row] for row in batch for _ in row[1]], device=device)
        values = _backward_flat(model, batch, per_token)
        at = 0
        for row in batch:
            logprob[row] = values[at : (at := at + len(row[1]))].sum(dtype=torch.float64).float()
    return torch.stack([logprob.get(row, nothing) for row in rows])


def without_dropout(model: nn.Module) -> None:
    """Puts the model into the mode in which it is one deterministic function of its weights.

    That is eval mode. Gradient checkpointing works in training mode only; there, and for good, because
    backward runs the layers again, the drop-out rates of the modules are set to 0 (the model's config keeps
    them).
    """
    checkpointing = any(getattr(module, "gradient_checkpointing", False) for module in model.modules())
    if not (checkpointing and torch.is_grad_enabled()):
        if model.training:
            model.eval()
        return
    if model not in _dropout_removed:
        for module in model.modules():
            for name, value in vars(module).items():
                if isinstance(value, float) and ("drop" in name or (name == "p" and isinstance(module, nn.Dropout))):
                    setattr(module, name, 0.0)
        _dropout_removed.add(model)
    if not model.training:
        model.train()


_dropout_removed: WeakSet[nn.Module] = WeakSet()


def _rows(prompt_ids: Sequence[TokenIds], completion_ids: Sequence[TokenIds], score_final_token: bool) -> list[Row]:
    if len(prompt_ids) != len(completion_ids):
        raise ValueError(
            f"log-probabilities: expected one completion per prompt, actually {len(prompt_ids)} prompts and "
            f"{len(completion_ids)} completions"
        )
    end = None if score_final_token else -1
    rows = [(tuple(p), tuple(c)[:end]) for p, c in zip(prompt_ids, completion_ids, strict=True)]
    for at, (prompt, completion) in enumerate(rows):
        if completion and not prompt:
            raise ValueError(
                f"log-probabilities: row {at} has no prompt token, so its first completion token has no probability; "
                "put at least a BOS in front"
            )
    return rows


def _micro_batches(rows: Iterable[Row], budget: int | None) -> Iterator[list[Row]]:
    """The distinct rows that have something to score, sorted by length, as many at a time as fit the
    budget.
    """
    budget = MICRO_BATCH_TOKENS if budget is None else budget
    batch: list[Row] = []
    distinct = {row for row in rows if row[1]}
    for row in sorted(distinct, key=lambda row: (len(row[0]) + len(row[1]), row), reverse=True):
        if batch and (len(batch) + 1) * (len(batch[0][0]) + len(batch[0][1])) > budget:
            yield batch
            batch = []
        batch.append(row)
    if batch:
        yield batch


def _flat_logprobs(model: nn.Module, batch: list[Row]) -> Tensor:
    """Log-probabilities of all scored tokens of the batch, row after row."""
    targets = torch.tensor([token for _, row in batch for token in row], device=_device(model))
    head = find_head(model)
    if head is None:
        logits = _selected(model, batch, "logits").float()
        return -nn.functional.cross_entropy(logits, targets, reduction="none")
    return target_logprobs(head.linear, _selected(head.backbone, batch, "last_hidden_state"), targets)


def _backward_flat(model: nn.Module, batch: list[Row], weights: Tensor) -> Tensor:
    head = find_head(model)
    if head is None:
        values = _flat_logprobs(model, batch)
        torch.autograd.backward(values, weights)
        return values.detach()
    hidden = _selected(head.backbone, batch, "last_hidden_state")
    targets = torch.tensor([token for _, row in batch for token in row], device=hidden.device)
    values, grad = accumulate_gradient(head.linear, hidden.detach(), targets, weights)
    if hidden.requires_grad:
        torch.autograd.backward(hidden, grad)
    return values


def _selected(module: nn.Module, batch: list[Row], output: str) -> Tensor:
    """The module's outputs at the positions that predict a scored token: (tokens, features)."""
    device = _device(module)
    ids, real = pad([prompt + completion for prompt, completion in batch], "right")
    width = ids.shape[1] - 1  # the last token is predicted, never fed
    positions = torch.arange(width, device=device).expand(len(batch), width)
    outputs = forward(module, ids[:, :width].to(device), real[:, :width].long().to(device), positions)
    where = [
        at * width + len(prompt) - 1 + step
        for at, (prompt, completion) in enumerate(batch)
        for step in range(len(completion))
    ]
    values: Tensor = getattr(outputs, output)
    return values.flatten(0, 1).index_select(0, torch.tensor(where, device=device))


def _device(model: nn.Module) -> torch.device:
    return next(model.parameters()).device
