"""One transformer layer of the lean decoder, and how it multiplies."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from comlrl_agents.attention import by_mkl
from comlrl_agents.projection import Product, packed

if TYPE_CHECKING:
    from comlrl_agents.lean import Places


@dataclass(frozen=True, slots=True)
class Products:
    """How layers multiply ``rows`` rows: with copies of their weights, ``fused``, or as they are.

    ``laid_out``: the copies are laid out anew for oneDNN, which is worth it from some hundred thousand weights on.
    """

    rows: int
    fused: bool
    laid_out: bool

    def of(self, *linears: nn.Linear, gain: Tensor | None = None, scale: float = 1.0) -> Product:
        """The linears' outputs side by side, of inputs times ``gain``; the first one's outputs times ``scale``."""
        if not self.fused:
            return _apart(linears, gain, scale)
        weights: list[Tensor] = [linear.weight for linear in linears]
        biases: list[Tensor] = [linear.bias for linear in linears if linear.bias is not None]
        weight = torch.cat(weights) if len(weights) > 1 else weights[0]
        bias = torch.cat(biases) if biases else None
        if gain is not None:
            weight = weight * gain
        if scale != 1.0:
            factors = weight.new_ones(len(weight))
            factors[: len(weights[0])] = scale
            weight, bias = weight * factors[:, None], None if bias is None else bias * factors
        if self.laid_out:
            return packed(weight, bias, self.rows) or _apart(linears, gain, scale)
        return _together(weight, bias)


def _together(weight: Tensor, bias: Tensor | None) -> Product:
    def product(x: Tensor, plus: Tensor | None = None) -> Tensor:
        if plus is not None and bias is None:
            return torch.addmm(plus, x, weight.T)
        outputs = functional.linear(x, weight, bias)
        return outputs if plus is None else plus + outputs

    return product


def _apart(linears: tuple[nn.Linear, ...], gain: Tensor | None, scale: float) -> Product:
    def product(x: Tensor, plus: Tensor | None = None) -> Tensor:
        x = x if gain is None else x * gain
        first, *others = (linear(x) for linear in linears)
        first = first if scale == 1.0 else first * scale
        outputs = torch.cat([first, *others], dim=-1) if others else first
        return outputs if plus is None else plus + outputs

    return product


class LeanLayer:
    """The layer's products, the prompts' keys and values, and those of the sampled tokens.

    Prompts: (heads · prompts, positions, features). Samples: (heads, places, steps, features).
    """

    def __init__(self, layer: Any, cached: Any, places: int, steps: int, products: Products) -> None:
        attention, mlp = layer.self_attn, layer.mlp
        before_mlp = getattr(layer, "pre_feedforward_layernorm", layer.post_attention_layernorm)
        self.eps = eps_of(before_mlp)
        heads_normed = hasattr(attention, "q_norm")
        projections = attention.q_proj, attention.k_proj, attention.v_proj
        scale = 1.0 if heads_normed else attention.scaling
        self.qkv = products.of(*projections, gain=gain_of(layer.input_layernorm), scale=scale)
        self.out, self.down = products.of(attention.o_proj), products.of(mlp.down_proj)
        self.gate_up = products.of(mlp.gate_proj, mlp.up_proj, gain=gain_of(before_mlp))
        self.activation = mlp.act_fn
        # Gemma: outputs are normed too, before they are added.
        is_sandwich = before_mlp is not layer.post_attention_layernorm
        self.gain_out = gain_of(layer.post_attention_layernorm) if is_sandwich else None
        self.gain_down = gain_of(layer.post_feedforward_layernorm) if is_sandwich else None
        keys, values = cached.keys, cached.values
        _, self.heads, _, self.features = keys.shape
        self.gain_heads: Tensor | None = None
        if heads_normed:
            queries = attention.q_proj.out_features // self.features
            gains = gain_of(attention.q_norm) * attention.scaling, gain_of(attention.k_norm)
            self.gain_heads = torch.stack([gains[0]] * queries + [gains[1]] * self.heads)
        self.window: int | None = getattr(cached, "sliding_window", None)
        self.prompt_keys, self.prompt_values = (kept.transpose(0, 1).flatten(0, 1) for kept in (keys, values))
        self.keys, self.values = (keys.new_zeros((self.heads, places, steps, self.features)) for _ in range(2))

    def step(self, x: Tensor, cos: Tensor, sin: Tensor, at: int, places: "Places", bias: Tensor | None) -> Tensor:
        """States (rows, features) of the tokens at step ``at``, from those of the layer below."""
        heads, features = self.heads, self.features
        qkv = self.qkv(normed(x, self.eps)).view(len(x), -1, features)
        queries_keys = qkv[:, :-heads]
        if self.gain_heads is not None:
            queries_keys = normed(queries_keys, self.eps).mul_(self.gain_heads)
        turned = torch.addcmul(queries_keys * cos, queries_keys.roll(features // 2, -1), sin)
        with by_mkl():
            seen = self._attend(turned, qkv[:, -heads:], at, places, bias)
        if self.gain_out is None:
            x = self.out(seen, x)
        else:
            x = torch.addcmul(x, normed(self.out(seen), self.eps), self.gain_out)
        gate, up = self.gate_up(normed(x, self.eps)).chunk(2, dim=-1)
        inner = self.activation(gate).mul_(up)
        if self.gain_down is None:
            return self.down(inner, x)
        return torch.addcmul(x, normed(self.down(inner), self.eps), self.gain_down)

    def _attend(self, turned: Tensor, new_values: Tensor, at: int, places: "Places", bias: Tensor | None) -> Tensor:
        """What each row's queries see (rows, heads · features), its new key and value included."""
        heads, features = self.heads, self.features
        if places.row_at is not None:
            turned, new_values = turned.index_select(0, places.row_at), new_values.index_select(0, places.row_at)
        self.keys[:, :, at] = turned[:, -heads:].transpose(0, 1)
        self.values[:, :, at] = new_values.transpose(0, 1)
        keys, values = (kept.flatten(0, 1)[:, : at + 1] for kept in (self.keys, self.values))
        prompt_keys, prompt_values = self.prompt_keys, self.prompt_values
        if self.window is not None:
            # Prompts end at the same column, so what lies before the window is the same for all rows.
            first = max(at + 1 - self.window, 0)
            first_of_prompt = min(max(prompt_keys.shape[1] + at + 1 - self.window, 0), prompt_keys.shape[1])
            keys, values = keys[:, first:], values[:, first:]
            prompt_keys, prompt_values = prompt_keys[:, first_of_prompt:], prompt_values[:, first_of_prompt:]
        # Query heads that share a key head, and samples that share a prompt, stand where positions would.
        queries = turned[:, :-heads].view(places.count, heads, -1, features).transpose(0, 1)
        apart = queries.reshape(heads * places.count, -1, features).contiguous()
        together = apart.view(heads * places.prompts, -1, features)
        to_prompt = torch.bmm(together, prompt_keys.transpose(1, 2))
        width = to_prompt.shape[-1]
        if bias is not None:
            seen_of_prompt = bias[..., bias.shape[-1] - width :]
            to_prompt = (to_prompt.view(heads, places.prompts, together.shape[1], width) + seen_of_prompt).view_as(
                to_prompt
            )
        to_own = torch.bmm(apart, keys.transpose(1, 2))
        probs = torch.cat([to_prompt.view(*to_own.shape[:2], width), to_own], dim=-1).softmax(dim=-1)
        seen = torch.bmm(probs.view(*together.shape[:2], -1)[..., :width], prompt_values)
        seen = seen.view_as(apart) + torch.bmm(probs[..., width:], values)
        seen = seen.view(heads, places.count, -1).transpose(0, 1).reshape(places.count, -1)
        return seen if places.row_at is None else seen.index_select(0, places.of_row)

    def repack(self, prompts: Tensor, places: Tensor) -> None:
        """Keep these prompts and these places only, in this order."""
        self.keys, self.values = self.keys[:, places], self.values[:, places]
        by_head = (kept.view(self.heads, -1, *kept.shape[1:]) for kept in (self.prompt_keys, self.prompt_values))
        self.prompt_keys, self.prompt_values = (kept[:, prompts].flatten(0, 1) for kept in by_head)


def normed(x: Tensor, eps: float) -> Tensor:
    """RMS norm without its gain, which the next product takes in where it can."""
    return x * x.square().mean(dim=-1, keepdim=True).add_(eps).rsqrt_()


def gain_of(norm: Any) -> Tensor:
    """What an RMS norm multiplies with; Gemma keeps how far it is from 1."""
    weight: Tensor = norm.weight
    return weight + 1.0 if type(norm).__name__.startswith("Gemma") else weight


def eps_of(norm: Any) -> float:
    """What an RMS norm adds to the mean square."""
    return float(norm.eps if hasattr(norm, "eps") else norm.variance_epsilon)
