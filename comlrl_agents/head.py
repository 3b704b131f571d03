"""The vocabulary head: log-probabilities of target tokens from hidden states, with one vocabulary-sized
buffer.

Softmax cross-entropy needs, per position, exp(logit − max) and its sum. The forward pass leaves these
exponentials where the logits were; the backward pass turns the same buffer into the gradient of the logits, g
· (one-hot − softmax), and multiplies it through the head. No second buffer of that size exists.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from threading import Lock
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from comlrl_agents.embedding_rows import is_large_lookup
from comlrl_agents.forward import evaluating, is_as_defined

_ELEMENTS_IN_CACHE = 1 << 20
"""Rows are worked on in blocks of about this many logits, so that successive passes find them in the cache."""

_ELEMENTS_WITHOUT_GRAPH = 1 << 26
"""Without a graph the logits are not kept: this many at a time, 256 MiB in float32, so that wide
weights are read seldom."""


@dataclass(frozen=True, slots=True, eq=False)
class Head:
    """A model taken apart: ``model(ids).logits == linear(backbone(ids).last_hidden_state)``, bit for bit."""

    backbone: nn.Module
    linear: nn.Linear


_in_place: ContextVar[bool] = ContextVar("gradients_in_place", default=False)


@contextmanager
def gradients_in_place() -> Iterator[None]:
    """Within, log-probabilities are made whose backward pass adds the head's and the embedding's gradients straight
    into ``.grad``.

    Each of the two otherwise gets a gradient of its own beside it, for 262 144 tokens of the weights' size. For
    learners that call ``backward``; ``torch.autograd.grad`` would not see the head's gradient.
    """
    token = _in_place.set(True)
    try:
        yield
    finally:
        _in_place.reset(token)


@contextmanager
def few_lookups(backbone: nn.Module, head: nn.Linear | None = None) -> Iterator[None]:
    """Within :func:`gradients_in_place`, the backbone's large embedding gets a gradient for tokens that it saw only.

    Where a ``head`` is not tied to it, only if a dense ``.grad`` is there to be added to.
    """
    embedding: Any = backbone.get_input_embeddings() if _in_place.get() else None  # type: ignore[operator]  # transformers' method
    apart = head is not None and is_large_lookup(embedding) and embedding.weight is not head.weight
    if not is_large_lookup(embedding) or (apart and embedding.weight.grad is None):
        yield
        return
    before, embedding.sparse = embedding.sparse, True
    try:
        yield
    finally:
        embedding.sparse = before


_known: "WeakKeyDictionary[nn.Module, tuple[nn.Module | None, Head | None]]" = WeakKeyDictionary()


def find_head(model: nn.Module) -> Head | None:
    """The model's backbone and linear head, or None when its logits are anything else (soft-capped, scaled,
    …).

    Verified once per model by running a few tokens through both ways; anything but equality is a None.
    """
    outer: Any = model
    linear = outer.get_output_embeddings() if hasattr(model, "get_output_embeddings") else None
    if type(linear) is not nn.Linear or not is_as_defined(linear):
        return None
    if model in _known and _known[model][0] is linear:
        return _known[model][1]
    head = None
    if hasattr(model, "get_decoder"):
        backbone = outer.get_decoder()
        if isinstance(backbone, nn.Module) and backbone is not model and _agrees(model, backbone, linear):
            head = Head(backbone, linear)
    _known[model] = (linear, head)
    return head


def inherit_head(model: nn.Module, twin: nn.Module) -> None:
    """What :func:`find_head` knows of ``model`` holds for ``twin``, a copy of it."""
    linear, head = _known.get(model, (None, None))
    if linear is None:
        return
    names = {own: name for name, own in model.named_modules()}
    taken = None
    if head is not None:
        own: Any = twin.get_submodule(names[head.linear])
        taken = Head(twin.get_submodule(names[head.backbone]), own)
    _known[twin] = (twin.get_submodule(names[linear]), taken)


@torch.no_grad()
def _agrees(model: nn.Module, backbone: nn.Module, linear: nn.Linear) -> bool:
    ids = torch.arange(6, device=linear.weight.device).view(2, 3) % linear.out_features
    inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids), "use_cache": False}
    with evaluating(model):
        hidden = getattr(backbone(**inputs), "last_hidden_state", None)
        logits = model(**inputs).logits
    # Of a head of zeros nothing can be told: what comes behind it may leave 0 as it is.
    return hidden is not None and torch.equal(linear(hidden), logits) and bool(logits.any())


def target_logprobs(linear: nn.Linear, hidden: Tensor, targets: Tensor) -> Tensor:
    """Log softmax(linear(hidden))[target] for each row: float32 (N,), from (N, D) hidden states.

    Differentiable once in ``hidden`` and the head's parameters, any number of times over.
    """
    if torch.is_autocast_enabled(hidden.device.type):
        hidden = hidden.to(torch.get_autocast_dtype(hidden.device.type))
    if torch.is_grad_enabled() and (hidden.requires_grad or linear.weight.requires_grad):
        apply: Callable[..., Tensor] = _TargetLogProbs.apply
        return apply(hidden, linear.weight, linear.bias, targets)
    return torch.cat(
        [
            _exponentials_(_logits(hidden[part], linear.weight, linear.bias), targets[part])[0]
            for part in _blocks(len(hidden), _ELEMENTS_WITHOUT_GRAPH // linear.out_features)
        ]
    )


@torch.no_grad()
def accumulate_gradient(linear: nn.Linear, hidden: Tensor, targets: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
    """Adds the gradient of Σ weights · log-probability to the head's ``.grad``, a block of logits at a time.

    Returns the log-probabilities (N,), float32, and the gradient with respect to ``hidden`` (N, D).
    """
    compute = hidden.dtype
    if torch.is_autocast_enabled(hidden.device.type):
        compute = torch.get_autocast_dtype(hidden.device.type)
    weight = linear.weight.to(compute)
    values, grads = [], []
    for part in _blocks(len(hidden), _ELEMENTS_WITHOUT_GRAPH // linear.out_features):
        rows = hidden[part].to(compute)
        buffer = _logits(rows, weight, linear.bias)
        logprobs, sums = _exponentials_(buffer, targets[part])
        _to_gradient_(buffer, sums, targets[part], weights[part])
        values.append(logprobs)
        grads.append(buffer @ weight)
        if linear.weight.requires_grad:
            _add_product_to_grad(linear.weight, buffer.T, rows)
        if linear.bias is not None and linear.bias.requires_grad:
            total = buffer.sum(0, dtype=linear.bias.dtype)
            linear.bias.grad = total if linear.bias.grad is None else linear.bias.grad.add_(total)
    return torch.cat(values), torch.cat(grads).to(hidden.dtype)


def _add_product_to_grad(parameter: Tensor, left: Tensor, right: Tensor) -> None:
    if parameter.grad is None:
        parameter.grad = (left @ right).to(parameter.dtype)
    elif parameter.grad.dtype == left.dtype:
        parameter.grad.addmm_(left, right)
    else:
        parameter.grad += left @ right


class _TargetLogProbs(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, hidden: Tensor, weight: Tensor, bias: Tensor | None, targets: Tensor) -> Tensor:
        ctx.in_place, on_cpu = _in_place.get() and weight.is_leaf, hidden.device.type == "cpu"
        ctx.borrowed = _borrow(len(hidden) * len(weight), hidden.dtype) if ctx.in_place and on_cpu else None
        buffer = _logits(hidden, weight, bias, ctx.borrowed)
        logprobs, sums = _exponentials_(buffer, targets)
        ctx.save_for_backward(hidden, weight, bias, targets)
        ctx.kept = (buffer, sums)
        return logprobs

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None, None]:
        hidden, weight, bias, targets = ctx.saved_tensors
        if ctx.kept is None:  # a second backward through the same graph: the first one used the buffer up
            buffer = _logits(hidden, weight, bias)
            ctx.kept = (buffer, _exponentials_(buffer, targets)[1])
        buffer, sums = ctx.kept
        ctx.kept = None
        _to_gradient_(buffer, sums, targets, grad)
        if ctx.in_place and ctx.needs_input_grad[1]:
            _add_product_to_grad(weight, buffer.T, hidden)
        found = (
            buffer @ weight.to(buffer.dtype) if ctx.needs_input_grad[0] else None,
            (buffer.T @ hidden).to(weight.dtype) if ctx.needs_input_grad[1] and not ctx.in_place else None,
            buffer.sum(0, dtype=bias.dtype) if ctx.needs_input_grad[2] else None,
            None,
        )
        if ctx.borrowed is not None:
            _spare.append(ctx.borrowed)
            ctx.borrowed = None
        return found


_borrowing = Lock()
_spare: list[Tensor] = []
"""Buffers of past updates on the CPU. The next update needs as many: made anew they would come to lie elsewhere, and
the memory freed around them would not serve again (0.5 GiB more at the second update of two 270 M models)."""


def _borrow(size: int, dtype: torch.dtype) -> Tensor:
    """A flat buffer of at least this size; a spare one that is too small goes when a larger one comes."""
    with _borrowing:  # agents may be at work side by side
        fit = [at for at, spare in enumerate(_spare) if spare.dtype == dtype and len(spare) >= size]
        if fit:
            return _spare.pop(fit[0])
        if _spare:
            _spare.pop()
    return torch.empty(size, dtype=dtype)


def _logits(hidden: Tensor, weight: Tensor, bias: Tensor | None, flat: Tensor | None = None) -> Tensor:
    """The logits (N, V), at the beginning of ``flat`` if that is given."""
    place = None if flat is None else flat[: len(hidden) * len(weight)].view(len(hidden), len(weight))
    with torch.autocast(hidden.device.type, enabled=False):
        # Not nn.functional.linear, which through oneDNN has the logits twice for a moment.
        logits = torch.mm(hidden, weight.to(hidden.dtype).T, out=place)
        return logits if bias is None else logits.add_(bias.to(hidden.dtype))


def _exponentials_(logits: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """Turns logits into exp(logit − row maximum) in place; gives log-probability and sum per row, float32."""
    logprobs = torch.empty(len(logits), dtype=torch.float32, device=logits.device)
    sums = torch.empty_like(logprobs)
    for part in _blocks(len(logits), _ELEMENTS_IN_CACHE // logits.shape[1]):
        block = logits[part]
        exact = block.float()
        exact.sub_(exact.amax(dim=1, keepdim=True))
        chosen = exact.gather(1, targets[part, None])[:, 0]
        exact.exp_()
        torch.sum(exact, dim=1, out=sums[part])
        torch.sub(chosen, sums[part].log(), out=logprobs[part])
        if exact is not block:
            block.copy_(exact)
    return logprobs, sums


def _to_gradient_(exponentials: Tensor, sums: Tensor, targets: Tensor, grad: Tensor) -> None:
    """Turns the exponentials into the gradient of the logits in place."""
    scale = (-grad / sums).to(exponentials.dtype)
    for part in _blocks(len(exponentials), _ELEMENTS_IN_CACHE // exponentials.shape[1]):
        exponentials[part].mul_(scale[part, None])
        exponentials[part].scatter_add_(1, targets[part, None], grad[part, None].to(exponentials.dtype))


def _blocks(count: int, step: int) -> Iterator[slice]:
    return (slice(start, start + max(step, 1)) for start in range(0, count, max(step, 1)))
