"""The one sequence log-probability: log π(completion | prompt), exact and differentiable.

Every score, margin and policy gradient of the kit goes through this file. Equal rows are computed once, a
prompt of several rows too where that pays, and the vocabulary head runs on completion positions only. Nothing
of this shows in the results beyond float32 rounding.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, cast
from weakref import WeakSet

import torch
from torch import Tensor, nn

from comlrl_agents.head import accumulate_gradient, few_lookups, find_head, gradients_in_place, target_logprobs
from comlrl_agents.scored_states import Row, scored_states
from comlrl_agents.tokens import pad
from comlrl_env.errors import ConfigError

TokenIds = Sequence[int]
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
    device = _device(model)
    parts = [_flat_logprobs(model, batch) for batch in micro_batches(rows, micro_batch_tokens)]
    nothing = torch.zeros(1, device=device, requires_grad=torch.is_grad_enabled())
    flat = torch.cat([*(values for values, _ in parts), nothing])
    place, at = {}, 0
    for row in chain.from_iterable(order for _, order in parts):
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
    for batch in micro_batches(rows, micro_batch_tokens):
        values, order = _backward_flat(model, batch, total)
        at = 0
        for row in order:
            logprob[row] = values[at : (at := at + len(row[1]))].sum(dtype=torch.float64).float()
    return torch.stack([logprob.get(row, nothing) for row in rows])


def without_dropout(model: nn.Module) -> None:
    """Puts the model into the mode in which it is one deterministic function of its weights.

    That is eval mode. Gradient checkpointing works in training mode only; there, and for good, because
    backward runs the layers again, the drop-out rates of the modules are set to 0 (the model's config keeps
    them). Raises ConfigError when the model draws random numbers there all the same.
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
        model.train()
        _refuse_noise(model)
        _dropout_removed.add(model)
    if not model.training:
        model.train()


_dropout_removed: WeakSet[nn.Module] = WeakSet()


@torch.no_grad()
def _refuse_noise(model: nn.Module) -> None:
    """Some models read rates from their configuration as they run (Falcon's drop-out, Mixtral's router jitter)."""
    device, config = _device(model), cast("Any", model).config.get_text_config(decoder=True)
    ids = torch.arange(8, device=device)[None] % config.vocab_size
    outputs = []
    with torch.random.fork_rng([device] if device.type == "cuda" else []):
        for seed in (0, 0, 1):
            torch.manual_seed(seed)
            outputs.append(next(iter(model(input_ids=ids, use_cache=False).values())))
    once, again, other = outputs
    if torch.equal(once, again) and not torch.equal(once, other):  # else it is not the seed that makes a difference
        raise ConfigError(
            f"gradient_checkpointing: {type(model).__name__} must give the same twice in training mode, actually it "
            "draws random numbers as it runs; set the drop-out and jitter rates of its config to 0, or "
            "gradient_checkpointing to False"
        )


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


def micro_batches(rows: Iterable[Row], budget: int | None) -> Iterator[list[Row]]:
    """The distinct rows that have something to score, as many at a time as fit the budget of tokens.

    Rows of one prompt stand together, and prompts of one length.
    """
    budget = MICRO_BATCH_TOKENS if budget is None else budget
    batch: list[Row] = []
    size = 0
    for row in sorted({row for row in rows if row[1]}, key=lambda row: (len(row[0]), row), reverse=True):
        length = len(row[0]) + len(row[1])
        if batch and size + length > budget:
            yield batch
            batch, size = [], 0
        batch.append(row)
        size += length
    if batch:
        yield batch


def _flat_logprobs(model: nn.Module, batch: list[Row]) -> tuple[Tensor, list[Row]]:
    """Log-probabilities of all scored tokens of the batch, row after row, and the order of the rows."""
    head = find_head(model)
    if head is not None:
        with few_lookups(head.backbone, head.linear):
            states, order = scored_states(head.backbone, batch, "last_hidden_state")
        return target_logprobs(head.linear, states, _targets(order, states)), order
    states, order = scored_states(model, batch, "logits")
    return -nn.functional.cross_entropy(states.float(), _targets(order, states), reduction="none"), order


def _backward_flat(model: nn.Module, batch: list[Row], weight: Mapping[Row, float]) -> tuple[Tensor, list[Row]]:
    """The same, detached, after adding the gradient with these weights to the parameters' ``.grad``."""
    head = find_head(model)
    if head is None:
        values, order = _flat_logprobs(model, batch)
        torch.autograd.backward(values, _per_token(order, weight, values))
        return values.detach(), order
    with gradients_in_place(), few_lookups(head.backbone, head.linear):
        states, order = scored_states(head.backbone, batch, "last_hidden_state")
    weights = _per_token(order, weight, states)
    values, grad = accumulate_gradient(head.linear, states.detach(), _targets(order, states), weights)
    if states.requires_grad:
        torch.autograd.backward(states, grad)
    return values, order


def _targets(rows: Iterable[Row], like: Tensor) -> Tensor:
    return torch.tensor([token for _, completion in rows for token in completion], device=like.device)


def _per_token(rows: Iterable[Row], weight: Mapping[Row, float], like: Tensor) -> Tensor:
    return torch.tensor([weight[row] for row in rows for _ in row[1]], dtype=torch.float32, device=like.device)


def _device(model: nn.Module) -> torch.device:
    return next(model.parameters()).device
