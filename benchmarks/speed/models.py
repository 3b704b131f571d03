"""The two models of the measurements: random weights, one character per token, no reachable EOS."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

FIRST = 0x100  # the first letters after Latin-1: no blanks, no punctuation, nothing that a decoder tidies up
SURROGATES = range(0xD800, 0xE000)


@dataclass(frozen=True)
class Model:
    """Shapes of a model and of the sequences it is measured on; parameters without and of the output head."""

    name: str
    vocabulary: int
    prompt_tokens: int
    completion_tokens: int
    body: int
    head: int
    resident: bool  # whether two processes with two agents each fit into memory at once
    needs_gib: int

    def update_flop(self, sequences: int) -> float:
        """Useful work of training on so many sequences."""
        tokens = self.prompt_tokens + self.completion_tokens
        return 6.0 * sequences * (self.body * tokens + self.head * self.completion_tokens)

    def sampling_flop(self, prompts: int, samples: int) -> float:
        """Useful work of drawing ``samples`` completions for each of ``prompts`` prompts."""
        drawn = prompts * samples * self.completion_tokens
        return 2.0 * (self.body * (prompts * self.prompt_tokens + drawn) + self.head * drawn)


MODELS = {
    "S": Model("S", 300, 33, 28, body=791_680, head=38_400, resident=True, needs_gib=2),
    "G": Model("G", 262_144, 8, 32, body=100_326_016, head=167_772_160, resident=False, needs_gib=14),
}


def text(tokens: list[int]) -> str:
    """The characters of token ids; the tokenizers give the same ids back."""
    return "".join(map(_character, tokens))


def save_agents(model: Model, folder: Path, agents: int, seed: int) -> None:
    """Write ``agent_0``, ``agent_1`` … with weights of their own, and ``closing``: a tokenizer whose EOS is the last
    token of the vocabulary, for libraries that append it themselves.
    """
    import torch

    tokenizer = build_tokenizer(model, eos="<end>")
    for agent in range(agents):
        torch.manual_seed(seed + agent)
        network = build_network(model)
        network.save_pretrained(folder / f"agent_{agent}")
        tokenizer.save_pretrained(folder / f"agent_{agent}")
    build_tokenizer(model, eos=_character(model.vocabulary - 1)).save_pretrained(folder / "closing")


def build_network(model: Model) -> Any:
    """A network with fresh weights from torch's global generator."""
    from transformers import GenerationConfig

    specials: dict[str, Any] = {"bos_token_id": None, "eos_token_id": None, "pad_token_id": None}
    network: Any
    if model.name == "S":
        from transformers import LlamaConfig, LlamaForCausalLM

        network = LlamaForCausalLM(
            LlamaConfig(
                vocab_size=model.vocabulary,
                hidden_size=128,
                intermediate_size=344,
                num_hidden_layers=4,
                num_attention_heads=4,
                max_position_embeddings=512,
                tie_word_embeddings=True,
                **specials,
            )
        )
    else:
        from transformers import Gemma3ForCausalLM, Gemma3TextConfig

        network = Gemma3ForCausalLM(
            Gemma3TextConfig(
                vocab_size=model.vocabulary,
                hidden_size=640,
                intermediate_size=2048,
                num_hidden_layers=18,
                num_attention_heads=4,
                num_key_value_heads=1,
                head_dim=256,
                max_position_embeddings=32_768,
                sliding_window=512,
                tie_word_embeddings=True,
                **specials,
            )
        )
    plain: Any = GenerationConfig  # untyped
    network.generation_config = plain()
    return network


def build_tokenizer(model: Model, eos: str) -> Any:
    """Token i is one character; ``eos`` stands outside the vocabulary of the network unless it is such a character."""
    from tokenizers import Tokenizer, decoders
    from tokenizers import models as kinds
    from transformers import PreTrainedTokenizerFast

    make: Any = PreTrainedTokenizerFast  # untyped
    backend = Tokenizer(kinds.BPE(vocab={_character(i): i for i in range(model.vocabulary)}, merges=[]))
    backend.decoder = decoders.Fuse()
    return make(tokenizer_object=backend, eos_token=eos, pad_token=eos, clean_up_tokenization_spaces=False)


def _character(token: int) -> str:
    point = FIRST + token
    return chr(point if point < SURROGATES.start else point + len(SURROGATES))
