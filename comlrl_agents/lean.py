"""Decoding of Llama-like models without module calls, with one copy of a prompt's keys for all its samples.

At a million parameters a step costs as much in calling operations and in reading caches as in computing, at a hundred
million still two fifths. Here projections are fused with each other and with the norms before them, and all samples of
a prompt attend to its keys in one product. Rows that end leave the products at once; their places in the caches are
cleared out now and then.
"""

from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from comlrl_agents.attention import by_mkl
from comlrl_agents.forward import forward, is_as_defined
from comlrl_agents.head import find_head
from comlrl_agents.lean_layer import LeanLayer, Products, eps_of, gain_of, normed
from comlrl_agents.projection import exact_on_cpu, pays, projection
from comlrl_agents.tokens import pad

_KINDS = {"LlamaModel", "Qwen2Model", "Qwen3Model", "MistralModel", "Gemma3TextModel"}
_ROTATIONS = {"default", "linear", "llama3"}
_MOST_PARAMETERS = 30_000_000
"""Above, computing dominates, and copies of the weights are made only where they pay for themselves."""


class LeanDecoder:
    """See :class:`comlrl_agents.decoders.Decoder`. Raises TypeError for a model that it does not cover."""

    def __init__(
        self,
        model: nn.Module,
        prompts: Sequence[Sequence[int]],
        repeat: Sequence[int],
        steps: int,
        top_k: int | None = None,
    ) -> None:
        from transformers import DynamicCache

        backbone, linear, self._is_small = _covered(model)
        device = linear.weight.device
        ids, real = (x.to(device) for x in pad(prompts, "left"))
        past: Any = DynamicCache(config=backbone.config)
        hidden = forward(backbone, ids, real.long(), (real.cumsum(dim=1) - 1).clamp(min=0), past).last_hidden_state
        copies, copy_of = _spread(repeat, len(prompts))
        rows = torch.tensor(repeat, device=device)
        self._project = projection(linear, len(rows), steps, top_k)
        self.logits, self.tokens = self._project(hidden[:, -1][rows])
        self._positions = real.sum(dim=1)[rows]
        self._places = Places(torch.tensor(copy_of, device=device), len(copies))
        if copies != list(range(len(prompts))):
            index = torch.tensor(copies, device=device)
            past.batch_select_indices(index)
            real = real[index]
        products = Products(len(rows), fused=self._is_small or pays(len(rows), steps), laid_out=not self._is_small)
        self._layers = [
            LeanLayer(layer, cached, self._places.count, steps, products)
            for layer, cached in zip(backbone.layers, past.layers, strict=True)
        ]
        self._rotations = _rotations(backbone.rotary_emb, hidden, ids.shape[1] + steps)
        is_one = None in self._rotations
        self._rotation_of = [None if is_one else layer.self_attn.layer_type for layer in backbone.layers]
        self._at = 0
        self._embedding, self._eps, self._gain = backbone.embed_tokens, eps_of(backbone.norm), gain_of(backbone.norm)
        self._bias: Tensor | None = None  # (prompts, 1, positions): no attention to padding
        if not bool(real.all()):
            self._bias = torch.zeros(real.shape, device=device).masked_fill_(~real, float("-inf"))[:, None]

    @torch.inference_mode()
    def step(self, tokens: Tensor) -> None:
        """Append one token to each row."""
        x = self._embedding(tokens)
        turns = {
            kind: (cos.index_select(0, self._positions)[:, None], sin.index_select(0, self._positions)[:, None])
            for kind, (cos, sin) in self._rotations.items()
        }
        # Products of a small model are all small; of a large one, those of attention are.
        with by_mkl() if self._is_small else nullcontext():
            for layer, rotation in zip(self._layers, self._rotation_of, strict=True):
                x = layer.step(x, *turns[rotation], self._at, self._places, self._bias)
            self.logits, self.tokens = self._project(normed(x, self._eps) * self._gain)
        self._at += 1
        self._positions = self._positions + 1

    def keep(self, alive: Tensor) -> Tensor:
        """Drop rows that are not alive."""
        rows = alive.nonzero()[:, 0]
        self._positions = self._positions[rows]
        moved = self._places.keep(rows)
        if moved is not None:
            prompts, places = moved
            for layer in self._layers:
                layer.repack(prompts, places)
            self._bias = None if self._bias is None else self._bias[prompts]
        return rows


class Places:
    """Where rows stand in the caches: prompt p owns the places p·width … p·width + width − 1, some perhaps
    empty.
    """

    def __init__(self, prompt_of: Tensor, prompts: int) -> None:
        self.prompts = prompts
        self._assign(prompt_of)

    def _assign(self, prompt_of: Tensor) -> None:
        taken = functional.one_hot(prompt_of, self.prompts).cumsum(dim=0)
        self.width = int(taken[-1].max())
        self.of_row = prompt_of * self.width + taken.gather(1, prompt_of[:, None])[:, 0] - 1
        self.count = self.prompts * self.width
        self._fill()

    def _fill(self) -> None:
        """``row_at``: the row at each place, any row at an empty one; None when rows and places are the
        same.
        """
        rows = torch.arange(len(self.of_row), device=self.of_row.device)
        self.row_at: Tensor | None = None
        if not (len(rows) == self.count and torch.equal(self.of_row, rows)):
            self.row_at = rows.new_zeros(self.count).index_copy_(0, self.of_row, rows)

    def keep(self, rows: Tensor) -> tuple[Tensor, Tensor] | None:
        """Only these rows stay. When most places are empty: the prompts and places that move together, in
        order.
        """
        self.of_row = self.of_row[rows]
        if 2 * len(rows) > self.count:
            self._fill()
            return None
        before = self.of_row
        prompts, prompt_of = torch.unique(before // self.width, return_inverse=True)
        self.prompts = len(prompts)
        self._assign(prompt_of)
        return prompts, before.new_zeros(self.count).index_copy_(0, self.of_row, before)


def _spread(repeat: Sequence[int], prompts: int) -> tuple[list[int], list[int]]:
    """Which prompt each copy is of, and the copy that each row continues: a prompt with more rows than the mean gets
    several copies, because all of them get as many places as the one with the most rows.
    """
    width = -(-len(repeat) // prompts)
    copies: list[int] = []
    copy_of: list[int] = []
    latest: dict[int, tuple[int, int]] = {}  # copy, and how many rows it has
    for prompt in repeat:
        copy, count = latest.get(prompt, (0, width))
        if count == width:
            copy, count = len(copies), 0
            copies.append(prompt)
        latest[prompt] = copy, count + 1
        copy_of.append(copy)
    return copies, copy_of


def _rotations(rotary: Any, like: Tensor, positions: int) -> dict[str | None, tuple[Tensor, Tensor]]:
    """Cosines and signed sines (positions, features) by the kind of layer, or for None where all layers turn alike."""
    places = torch.arange(positions, device=like.device)[None]
    kinds = list(rotary.rope_type) if isinstance(rotary.rope_type, dict) else [None]
    tables = {}
    for kind in kinds:
        cos, sin = rotary(like, places) if kind is None else rotary(like, places, kind)
        half = cos.shape[-1] // 2
        tables[kind] = cos[0], torch.cat([-sin[0, :, :half], sin[0, :, half:]], dim=-1)
    return tables


def _covered(model: nn.Module) -> tuple[Any, nn.Linear, bool]:
    """Backbone, head, and whether the model is small."""
    head = find_head(model)
    backbone: Any = None if head is None else head.backbone
    if head is None or type(backbone).__name__ not in _KINDS:
        raise TypeError(f"{type(model).__name__} is not built like a Llama")
    linears = [m for layer in backbone.layers for name, m in layer.named_modules() if name.endswith("_proj")]
    is_changed = any(not is_as_defined(module) for module in model.modules())
    rotations = backbone.rotary_emb.rope_type
    is_small = sum(parameter.numel() for parameter in model.parameters()) <= _MOST_PARAMETERS
    if (
        not (is_small or exact_on_cpu(head.linear.weight))
        or is_changed
        or any(type(linear) is not nn.Linear for linear in linears)
        or not set(rotations.values() if isinstance(rotations, dict) else [rotations]) <= _ROTATIONS
        or getattr(backbone.config, "attn_logit_softcapping", None) is not None
        or getattr(backbone.config, "use_bidirectional_attention", False)
    ):
        raise TypeError(f"this {type(model).__name__} has parts or hooks that the lean decoder does not know")
    return backbone, head.linear, is_small
