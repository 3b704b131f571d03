"""A language model that answers with one number: its body, and a linear head on the last token's state.

The reward model and the critics are such models. Neither vocabulary logits nor the states of inner layers exist.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from comlrl_agents.embedding_rows import is_large_lookup
from comlrl_agents.forward import forward
from comlrl_agents.head import few_lookups, gradients_in_place
from comlrl_agents.logprobs import micro_batches, without_dropout
from comlrl_agents.model_source import load_tokenizer, load_whole
from comlrl_agents.scored_states import Row, scored_states

HEAD = "scalar_head.safetensors"


class ScalarModel(nn.Module):
    """``backbone`` (without a vocabulary head) and a scalar head; float32 weights.

    ``seed`` draws the head's fresh weights: normal with standard deviation 1/√(features + 1), bias 0.
    """

    def __init__(self, backbone: nn.Module, seed: int = 0) -> None:
        super().__init__()
        self.backbone = backbone
        features = feature_count(backbone)
        parameter = next(backbone.parameters())
        self.head = nn.Linear(features, 1)
        with torch.no_grad():
            drawn = torch.randn(self.head.weight.shape, generator=torch.Generator().manual_seed(seed))
            self.head.weight.copy_(drawn / (features + 1) ** 0.5)
            self.head.bias.zero_()
        self.head.to(parameter.device)
        self.compute_dtype = torch.float32

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return self.head.weight.device

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """One number per row, float32 (B,), from ids and mask (B, T) padded on any side."""
        real = attention_mask.long()
        positions = (real.cumsum(dim=1) - 1).clamp(min=0)
        with self._computing():
            states: Tensor = forward(self.backbone, input_ids, real, positions).last_hidden_state
        return self._read(pool_last(states, attention_mask))

    def values(self, rows: Sequence[Row], micro_batch_tokens: int | None = None) -> Tensor:
        """One number per row, float32 (N,), with gradient.

        A row is its beginning, at least one token, and the rest, which may be empty: beginnings that rows have in
        common are computed once where that pays, equal rows always. ``micro_batch_tokens`` bounds a forward pass.
        """
        if not rows:
            return torch.zeros(0, device=self.device)
        without_dropout(self.backbone)
        place: dict[Row, int] = {}
        parts = []
        for batch in micro_batches((_open(row) for row in rows), micro_batch_tokens):
            values, order = self._batch(batch)
            parts.append(values)
            for row in order:
                place[row] = len(place)
        index = torch.tensor([place[_open(row)] for row in rows], device=self.device)
        return torch.cat(parts)[index]

    def backward_weighted(self, rows: Sequence[Row], weights: Tensor, micro_batch_tokens: int | None = None) -> None:
        """Adds the gradient of Σ weights · value to ``.grad``, one micro-batch at a time."""
        total: dict[Row, float] = {}
        for row, weight in zip(rows, weights.tolist(), strict=True):
            total[_open(row)] = total.get(_open(row), 0.0) + weight
        without_dropout(self.backbone)
        for batch in micro_batches(total, micro_batch_tokens):
            with gradients_in_place():
                values, order = self._batch(batch)
            values.backward(torch.tensor([total[row] for row in order], device=values.device))  # type: ignore[no-untyped-call]  # torch's own annotation

    def _batch(self, batch: Sequence[Row]) -> tuple[Tensor, list[Row]]:
        with self._computing(), few_lookups(self.backbone):
            states, order = scored_states(self.backbone, batch, "last_hidden_state")
        ends = torch.tensor([len(tokens) for _, tokens in order], device=states.device).cumsum(0) - 1
        return self._read(states[ends]), order

    def _read(self, states: Tensor) -> Tensor:
        values: Tensor = self.head(states.float())
        return values[:, 0]

    def _computing(self) -> AbstractContextManager[Any]:
        if self.compute_dtype == torch.float32:
            return nullcontext()
        return torch.autocast(self.device.type, self.compute_dtype)


def lookups(models: Mapping[int, ScalarModel]) -> dict[int, nn.Embedding]:
    """The embeddings that are large, learned, and nothing but looked up in one of the models, by its index."""
    modules = [module for model in models.values() for module in model.modules()]
    users = Counter(id(weight) for module in modules for weight in module.parameters(recurse=False))
    found = {index: model.backbone.get_input_embeddings() for index, model in models.items()}  # type: ignore[operator]  # transformers' method
    return {
        index: embedding
        for index, embedding in found.items()
        if is_large_lookup(embedding) and embedding.weight.requires_grad and users[id(embedding.weight)] == 1
    }


def save_scalar(model: ScalarModel, tokenizer: Any, folder: Path) -> None:
    """Body, tokenizer and head in a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    model.backbone.save_pretrained(folder)  # type: ignore[operator]  # every transformers model has it
    tokenizer.save_pretrained(folder)
    save_head(model, folder / HEAD)


def save_head(model: ScalarModel, path: Path) -> None:
    """The head alone."""
    save_file({name: tensor.contiguous() for name, tensor in model.head.state_dict().items()}, path)


def load_body(folder: Path) -> tuple[nn.Module, Any]:
    """Body and tokenizer that :func:`save_scalar` wrote.

    Raises ConfigError when a weight or the tokenizer is missing, one of
    :data:`~comlrl_agents.model_source.UNREADABLE` when a file is missing or damaged.
    """
    from transformers import AutoModel

    return load_whole(AutoModel, str(folder), local_files_only=True), load_tokenizer(str(folder))


def load_head(model: ScalarModel, path: Path) -> None:
    """What :func:`save_head` wrote. Raises one of UNREADABLE when it is missing, damaged, or of another width."""
    model.head.load_state_dict(load_file(path))


def pool_last(states: Tensor, mask: Tensor) -> Tensor:
    """The state at each row's last position whose mask is 1: (B, D) from (B, T, D).

    Raises ValueError for a row without any.
    """
    empty = torch.nonzero(~mask.bool().any(dim=1))
    if len(empty):
        raise ValueError(f"attention_mask: row {int(empty[0])} must have a position with mask 1, actually none")
    places = torch.arange(mask.shape[1], device=mask.device)
    last = (mask.long() * (places + 1)).argmax(dim=1)
    return states[torch.arange(len(states), device=states.device), last]


def backbone_of(model: nn.Module) -> nn.Module:
    """The body of a causal language model, without its vocabulary head."""
    outer: Any = model
    inner = outer.get_decoder() if hasattr(model, "get_decoder") else model
    backbone = getattr(model, "base_model", model) if inner is None or inner is model else inner
    assert isinstance(backbone, nn.Module)
    return backbone


def feature_count(backbone: nn.Module) -> int:
    """The width of the backbone's states."""
    config: Any = backbone.config
    config = config.get_text_config(decoder=True)
    return int(getattr(config, "word_embed_proj_dim", config.hidden_size))  # OPT projects its states


def _open(row: Row) -> Row:
    """The row as one whose last state "predicts" one more token; that token is never fed."""
    beginning, rest = row
    return tuple(beginning), (*rest, 0)
