"""Decoding of small Llama-like models without module calls, with one copy of a prompt's keys for all its
samples.

At a million parameters a step costs as much in calling operations and in reading caches as in computing. Here
projections are fused with each other and with the norms before them, and all samples of a prompt attend to
its keys in one product. Rows that end leave the products at once; their places in the caches are cleared out
now and then.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from comlrl_agents.attention import by_mkl
from comlrl_agents.forward import forward
from comlrl_agents.head import find_head
from comlrl_agents.tokens import pad

_KINDS = {"LlamaModel", "Qwen2Model", "MistralModel"}
_MOST_PARAMETERS = 30_000_000
"""Above, computing dominates, and the fused copies of the weights would cost memory."""


class LeanDecoder:
    """See :class:`comlrl_agents.decoders.Decoder`. Raises TypeError for a model that it does not cover."""

    def __init__(self, model: nn.Module, prompts: Sequence[Sequence[int]], repeat: Sequence[int], steps: int) -> None:
        from transformers import DynamicCache

        backbone, linear = _covered(model)
        device = linear.weight.device
        ids, real = (x.to(device) for x in pad(prompts, "left"))
        past: Any = DynamicCache(config=backbone.config)
        hidden = forward(backbone, ids, real.long(), (real.cumsum(dim=1) - 1).clamp(min=0), past).last_hidden_state
        rows = torch.tensor(repeat, device=device)
        self.logits = linear(hidden[:, -1])[rows]
        self._positions = real.sum(dim=1)[rows]
        self._places = _Places(rows, len(prompts))
        self._layers = [
            _Layer(layer, cached.keys, cached.values, self._places.count, steps)
            for layer, cached in zip(backbone.layers, past.layers, strict=True)
        ]
        self._at = 0
        self._embedding, self._eps = backbone.embed_tokens.weight, backbone.norm.variance_epsilon
        self._out = _fused(backbone.norm.weight, linear)
        cos, sin = backbone.rotary_emb(hidden, torch.arange(ids.shape[1] + steps, device=device)[None])
        half = cos.shape[-1] // 2
        self._cos, self._sin = cos[0], torch.cat([-sin[0, :, :half], sin[0, :, half:]], dim=-1)
        self._bias: Tensor | None = None  # (prompts, 1, positions): no attention to padding
        if not bool(real.all()):
            self._bias = torch.zeros(real.shape, device=device).masked_fill_(~real, float("-inf"))[:, None]

    @torch.inference_mode()
    def step(self, tokens: Tensor) -> None:
        """Append one token to each row."""
        x = self._embedding.index_select(0, tokens)
        cos = self._cos.index_select(0, self._positions)[:, None]
        sin = self._sin.index_select(0, self._positions)[:, None]
        with by_mkl():
            for layer in self._layers:
                x = layer.step(x, cos, sin, self._at, self._places, self._bias)
            self.logits = functional.linear(_normed(x, self._eps), *self._out)
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


class _Places:
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


class _Layer:
    """One transformer layer: fused weights, the prompts' keys and values, and those of the sampled tokens.

    Prompts: (heads · prompts, positions, features). Samples: (heads, places, steps, features).
    """

    def __init__(self, layer: Any, keys: Tensor, values: Tensor, places: int, steps: int) -> None:
        attention, mlp = layer.self_attn, layer.mlp
        norms = layer.input_layernorm, layer.post_attention_layernorm
        self.eps = norms[0].variance_epsilon
        self.qkv, self.bias = _fused(norms[0].weight, attention.q_proj, attention.k_proj, attention.v_proj)
        queries = attention.q_proj.out_features
        self.qkv[:queries] *= attention.scaling
        if self.bias is not None:
            self.bias[:queries] *= attention.scaling
        self.gate_up, _ = _fused(norms[1].weight, mlp.gate_proj, mlp.up_proj)
        self.out, self.down = attention.o_proj.weight.T, mlp.down_proj.weight.T
        _, self.heads, _, self.features = keys.shape
        self.prompt_keys, self.prompt_values = (kept.transpose(0, 1).flatten(0, 1) for kept in (keys, values))
        self.keys, self.values = (keys.new_zeros((self.heads, places, steps, self.features)) for _ in range(2))

    def step(self, x: Tensor, cos: Tensor, sin: Tensor, at: int, places: _Places, bias: Tensor | None) -> Tensor:
        rows, heads, features = len(x), self.heads, self.features
        qkv = functional.linear(_normed(x, self.eps), self.qkv, self.bias).view(rows, -1, features)
        queries_keys = qkv[:, :-heads]
        turned = torch.addcmul(queries_keys * cos, queries_keys.roll(features // 2, -1), sin)
        new_values = qkv[:, -heads:]
        if places.row_at is not None:
            turned, new_values = turned.index_select(0, places.row_at), new_values.index_select(0, places.row_at)
        self.keys[:, :, at] = turned[:, -heads:].transpose(0, 1)
        self.values[:, :, at] = new_values.transpose(0, 1)
        # Query heads that share a key head, and samples that share a prompt, stand where positions would.
        queries = turned[:, :-heads].view(places.count, heads, -1, features).transpose(0, 1)
        apart = queries.reshape(heads * places.count, -1, features)
        together = apart.view(heads * places.prompts, -1, features)
        to_prompt = torch.bmm(together, self.prompt_keys.transpose(1, 2))
        if bias is not None:
            to_prompt = (to_prompt.view(heads, places.prompts, -1, bias.shape[-1]) + bias).view_as(to_prompt)
        keys, values = (kept.flatten(0, 1)[:, : at + 1] for kept in (self.keys, self.values))
        to_own = torch.bmm(apart, keys.transpose(1, 2))
        width = to_prompt.shape[-1]
        probs = torch.cat([to_prompt.view(*to_own.shape[:2], width), to_own], dim=-1).softmax(dim=-1)
        seen = torch.bmm(probs.view(*together.shape[:2], -1)[..., :width], self.prompt_values)
        seen = seen.view_as(apart) + torch.bmm(probs[..., width:], values)
        seen = seen.view(heads, places.count, -1).transpose(0, 1).reshape(places.count, -1)
        if places.row_at is not None:
            seen = seen.index_select(0, places.of_row)
        x = torch.addmm(x, seen, self.out)
        gate, up = functional.linear(_normed(x, self.eps), self.gate_up).chunk(2, dim=-1)
        return torch.addmm(x, functional.silu(gate).mul_(up), self.down)

    def repack(self, prompts: Tensor, places: Tensor) -> None:
        """Keep these prompts and these places only, in this order."""
        self.keys, self.values = self.keys[:, places], self.values[:, places]
        by_head = (kept.view(self.heads, -1, *kept.shape[1:]) for kept in (self.prompt_keys, self.prompt_values))
        self.prompt_keys, self.prompt_values = (kept[:, prompts].flatten(0, 1) for kept in by_head)


def _normed(x: Tensor, eps: float) -> Tensor:
    """RMS norm without its weight, which the next projection has taken in."""
    return x * x.square().mean(dim=-1, keepdim=True).add_(eps).rsqrt_()


def _fused(norm: Tensor, *linears: nn.Linear) -> tuple[Tensor, Tensor | None]:
    """The linears one below the other, behind a norm with these weights."""
    biases: list[Tensor] = [linear.bias for linear in linears if linear.bias is not None]
    weights: list[Tensor] = [linear.weight for linear in linears]
    return torch.cat(weights) * norm, torch.cat(biases) if biases else None


def _covered(model: nn.Module) -> tuple[Any, nn.Linear]:
    head = find_head(model)
    backbone: Any = None if head is None else head.backbone
    if head is None or type(backbone).__name__ not in _KINDS:
        raise TypeError(f"{type(model).__name__} is not built like a Llama")
    config = backbone.config
    linears = [m for layer in backbone.layers for name, m in layer.named_modules() if name.endswith("_proj")]
    if (
        sum(parameter.numel() for parameter in model.parameters()) > _MOST_PARAMETERS
        or any(type(linear) is not nn.Linear for linear in linears)
        or config.hidden_act != "silu"
        or (config.rope_parameters or {}).get("rope_type", "default") not in ("default", "linear", "llama3")
        or set(getattr(config, "layer_types", None) or ["full_attention"]) != {"full_attention"}
        or (type(backbone).__name__ == "MistralModel" and config.sliding_window is not None)
    ):
        raise TypeError(f"this {type(model).__name__} is too large or has parts that the lean decoder does not know")
    return backbone, head.linear
