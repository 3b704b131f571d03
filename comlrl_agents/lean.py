"""Decoding of small Llama-like models without module calls: about a third of the operations per token.

At a million parameters a step costs more in calling operations than in computing. This decoder calls few of
them: projections fused with each other and with the norms before them, a cache that is written in place,
tables for the rotary embedding, attention by two batched products.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

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
        self._rows, self._at, length = len(rows), ids.shape[1], ids.shape[1] + steps
        self._layers = [
            _Layer(layer, cached.keys, cached.values, rows, steps)
            for layer, cached in zip(backbone.layers, past.layers, strict=True)
        ]
        self._embedding, self._eps = backbone.embed_tokens.weight, backbone.norm.variance_epsilon
        self._out = _fused(backbone.norm.weight, linear)
        cos, sin = backbone.rotary_emb(hidden, torch.arange(length, device=device)[None])
        half = cos.shape[-1] // 2
        self._cos, self._sin = cos[0], torch.cat([-sin[0, :, :half], sin[0, :, half:]], dim=-1)
        self._positions = real.sum(dim=1)[rows]
        self._bias: Tensor | None = None
        if not bool(real.all()):
            blocked = functional.pad(~real[rows], (0, steps))[:, None, None, :]
            self._bias = torch.zeros(blocked.shape, device=device).masked_fill_(blocked, float("-inf"))

    @torch.inference_mode()
    def step(self, tokens: Tensor) -> None:
        """Append one token to each row."""
        x = self._embedding.index_select(0, tokens)
        cos = self._cos.index_select(0, self._positions)[:, None]
        sin = self._sin.index_select(0, self._positions)[:, None]
        bias = None if self._bias is None else self._bias[: self._rows, :, :, : self._at + 1]
        for layer in self._layers:
            x = layer.step(x, cos, sin, self._at, bias)
        self.logits = functional.linear(_normed(x, self._eps), *self._out)
        self._at += 1
        self._positions = self._positions + 1

    def keep(self, alive: Tensor) -> Tensor:
        """Drop rows that are not alive: the last ones move into the gaps, so that few are copied."""
        count = int(alive.sum())
        order = torch.arange(count, device=alive.device)
        gaps = (~alive[:count]).nonzero()[:, 0]
        movers = alive[count:].nonzero()[:, 0] + count
        order[gaps] = movers
        for layer in self._layers:
            layer.keys[gaps], layer.values[gaps] = layer.keys[movers], layer.values[movers]
        if self._bias is not None:
            self._bias[gaps] = self._bias[movers]
        self._positions = self._positions[order]
        self._rows = count
        return order


class _Layer:
    """One transformer layer: its fused weights, and its keys and values as (rows, heads, positions,
    features).
    """

    def __init__(self, layer: Any, keys: Tensor, values: Tensor, rows: Tensor, steps: int) -> None:
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
        self.keys, self.values = (functional.pad(kept[rows], (0, 0, 0, steps)) for kept in (keys, values))

    def step(self, x: Tensor, cos: Tensor, sin: Tensor, at: int, bias: Tensor | None) -> Tensor:
        rows, heads, features = len(x), self.heads, self.features
        qkv = functional.linear(_normed(x, self.eps), self.qkv, self.bias).view(rows, -1, features)
        queries_keys = qkv[:, :-heads]
        turned = torch.addcmul(queries_keys * cos, queries_keys.roll(features // 2, -1), sin)
        self.keys[:rows, :, at] = turned[:, -heads:]
        self.values[:rows, :, at] = qkv[:, -heads:]
        keys, values = (kept.flatten(0, 1)[: rows * heads, : at + 1] for kept in (self.keys, self.values))
        # Query heads that share a key head stand where the query positions would.
        scores = torch.bmm(turned[:, :-heads].reshape(rows * heads, -1, features), keys.transpose(1, 2))
        if bias is not None:
            scores = (scores.view(rows, heads, -1, at + 1) + bias).flatten(0, 1)
        seen = torch.bmm(scores.softmax(dim=-1), values)
        x = torch.addmm(x, seen.view(rows, -1), self.out)
        gate, up = functional.linear(_normed(x, self.eps), self.gate_up).chunk(2, dim=-1)
        return torch.addmm(x, functional.silu(gate).mul_(up), self.down)


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
