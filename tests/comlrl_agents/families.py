"""Random tiny models of several families, with weights large enough that every part of them matters."""

from functools import cache
from typing import Any

import torch
import transformers

_COMMON: dict[str, Any] = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": None,
}
_WINDOWS = ["sliding_attention", "full_attention"]


@cache
def family(name: str, vocabulary: int = 24) -> Any:
    torch.manual_seed(0)
    common = {**_COMMON, "vocab_size": vocabulary}
    if name == "llama":
        model: Any = transformers.LlamaForCausalLM(transformers.LlamaConfig(**common, tie_word_embeddings=True))
    elif name == "qwen2":
        model = transformers.Qwen2ForCausalLM(transformers.Qwen2Config(**common))
    elif name == "qwen3":
        model = transformers.Qwen3ForCausalLM(transformers.Qwen3Config(**common, head_dim=8))
    elif name == "mistral":
        model = transformers.MistralForCausalLM(transformers.MistralConfig(**common, sliding_window=5))
    elif name == "gpt2":
        model = transformers.GPT2LMHeadModel(
            transformers.GPT2Config(
                n_embd=32, n_layer=2, n_head=4, n_positions=64, vocab_size=vocabulary, bos_token_id=1, eos_token_id=2
            )
        )
    elif name == "gemma3":
        config = transformers.Gemma3TextConfig(**common, head_dim=8, sliding_window=5, layer_types=_WINDOWS)
        model = transformers.Gemma3ForCausalLM(config)
    elif name == "gemma3 with one key head":  # as Gemma 3 270M has it
        one = {**common, "num_key_value_heads": 1}
        config = transformers.Gemma3TextConfig(**one, head_dim=8, sliding_window=5, layer_types=_WINDOWS)
        model = transformers.Gemma3ForCausalLM(config)
    elif name == "gemma2":
        config = transformers.Gemma2Config(**common, head_dim=8, sliding_window=5, layer_types=_WINDOWS)
        model = transformers.Gemma2ForCausalLM(config)
    elif name == "mamba":
        model = transformers.MambaForCausalLM(
            transformers.MambaConfig(vocab_size=vocabulary, hidden_size=16, num_hidden_layers=1, state_size=4)
        )
    else:
        raise KeyError(name)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.3 * torch.randn_like(parameter)
    return model.eval()
