"""One decoding step after another over a growing cache. Prompts are prefilled once and their cache is
repeated.
"""

from collections.abc import Hashable, Sequence
from typing import Protocol
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from comlrl_agents.forward import forward
from comlrl_agents.head import find_head
from comlrl_agents.lean import LeanDecoder
from comlrl_agents.projection import PackedLayers, Projected, projection
from comlrl_agents.tokens import pad


class Decoder(Protocol):
    """A batch of rows that grows by one token per step."""

    def __init__(
        self,
        model: nn.Module,
        prompts: Sequence[Sequence[int]],
        repeat: Sequence[int],
        steps: int,
        top_k: int | None = None,
    ) -> None:
        """Prefill the distinct ``prompts``; row r of the batch continues prompt ``repeat[r]`` for up to ``steps``.

        With ``top_k`` only logits that may be among the k largest of a row are wanted.
        """
        ...

    logits: Tensor
    """What follows each row, (R, C); -inf where a row has fewer than others."""

    tokens: Tensor | None
    """Which token each logit is of, (R, C), in ascending order; None where column v is token v."""

    def step(self, tokens: Tensor) -> None:
        """Append one token (R,) to each row and renew ``logits`` and ``tokens``."""
        ...

    def keep(self, alive: Tensor) -> Tensor:
        """Drop the rows where ``alive`` (R,) is False; the result says which old row each new row is."""
        ...


class CachedDecoder:
    """Decoding through the model's own forward pass and transformers' dynamic cache."""

    def __init__(
        self,
        model: nn.Module,
        prompts: Sequence[Sequence[int]],
        repeat: Sequence[int],
        steps: int,
        top_k: int | None = None,
    ) -> None:
        from transformers import DynamicCache

        from comlrl_agents.reserved_cache import reserve

        self._model, self._head = model, find_head(model)
        if self._head is not None:
            self._project = projection(self._head.linear, len(repeat), steps, top_k)
        self._layers = PackedLayers(model if self._head is None else self._head.backbone, len(repeat), steps)
        device = next(model.parameters()).device
        ids, real = (x.to(device) for x in pad(prompts, "left"))
        self._cache = DynamicCache(config=model.config)  # type: ignore[arg-type]  # a PreTrainedConfig
        positions = (real.cumsum(dim=1) - 1).clamp(min=0)
        logits, tokens = self._forward(ids, real.long(), positions)
        rows = torch.tensor(repeat, device=device)
        self._cache.batch_select_indices(rows)
        reserve(self._cache, steps)
        self.logits, self.tokens = logits[rows], None if tokens is None else tokens[rows]
        self._positions = positions[rows, -1:]
        self._width = ids.shape[1]
        self._real = torch.cat([real[rows].long(), real.new_ones((len(rows), steps)).long()], dim=1)

    def step(self, tokens: Tensor) -> None:
        """Append one token to each row."""
        self._width += 1
        self._positions = self._positions + 1
        with self._layers:
            self.logits, self.tokens = self._forward(tokens[:, None], self._real[:, : self._width], self._positions)

    def keep(self, alive: Tensor) -> Tensor:
        """Drop rows that are not alive."""
        rows = alive.nonzero()[:, 0]
        self._cache.batch_select_indices(rows)
        self._real, self._positions = self._real[rows], self._positions[rows]
        return rows

    def _forward(self, ids: Tensor, real: Tensor, positions: Tensor) -> Projected:
        if self._head is None:
            return forward(self._model, ids, real, positions, self._cache, last_only=True).logits[:, -1], None
        outputs = forward(self._head.backbone, ids, real, positions, self._cache)
        hidden = outputs.last_hidden_state[:, -1]
        return self._project(hidden)


def find_decoder(model: nn.Module) -> type[Decoder] | None:
    """The fastest decoder that is right for this model; None when only the model's own ``generate`` is.

    Tried out once per model, and again when its device, number format, parts or hooks change, on two prompts of
    different length against the forward pass without a cache.
    """
    known, state = _known.setdefault(model, {}), _state(model)
    if state not in known:
        if len(known) >= _MOST_STATES:  # hooks that come and go
            known.clear()
        known[state] = next((kind for kind in (LeanDecoder, CachedDecoder) if _agrees(model, kind)), None)
    return known[state]


_MOST_STATES = 16
_known: "WeakKeyDictionary[nn.Module, dict[Hashable, type[Decoder] | None]]" = WeakKeyDictionary()


def _state(model: nn.Module) -> Hashable:
    """What may change in a model so that another decoder is right for it."""
    weight = next(model.parameters())
    device = weight.device.type
    autocast = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else None
    parts = tuple(
        (type(module), *module._forward_hooks, *module._forward_pre_hooks, id(vars(module).get("forward")))
        for module in model.modules()
    )
    return device, weight.dtype, autocast, parts


def inherit_decoder(model: nn.Module, twin: nn.Module) -> None:
    """What :func:`find_decoder` knows of ``model`` holds for ``twin``, a copy of it."""
    if model in _known:
        _known[twin] = dict(_known[model])


@torch.no_grad()
def _agrees(model: nn.Module, kind: type[Decoder]) -> bool:
    try:
        size = model.get_input_embeddings().num_embeddings  # type: ignore[operator]  # transformers' method
        prompts = [[at % size for at in range(5)], [3 % size, 1 % size]]
        decoder = kind(model, prompts, [1, 0, 1], 4)
        texts = [prompts[1], prompts[0], prompts[1]]
        for step in range(4):
            device = decoder.logits.device
            expected = torch.stack([model(torch.tensor([t], device=device)).logits[0, -1] for t in texts]).float()
            bound = 1e-3 * float(expected.nan_to_num().abs().max()) + 1e-6
            if not torch.allclose(decoder.logits.float(), expected, rtol=0, atol=bound, equal_nan=True):
                return False
            if step == 1:
                texts = [texts[row] for row in decoder.keep(torch.tensor([True, False, True], device=device)).tolist()]
            tokens = [(7 * step + row) % size for row in range(len(texts))]
            texts = [[*text, token] for text, token in zip(texts, tokens, strict=True)]
            decoder.step(torch.tensor(tokens, device=device))
    except torch.OutOfMemoryError:
        raise  # says nothing about the decoder
    except Exception:  # noqa: BLE001  # a trial on code we know nothing about: whatever it raises means no
        return False
    return True
