"""From prompts to token ids and from ragged id lists to rectangles. Nothing here changes the user's
tokenizer.
"""

from collections.abc import Sequence
from typing import Any, Literal

import torch
from torch import Tensor

from comlrl_agents.types import Prompt
from comlrl_env.errors import ConfigError


def encode_prompt(tokenizer: Any, prompt: Prompt, chat: bool | None = None) -> list[int]:
    """Token ids of a prompt that the model is to continue.

    ``chat`` True puts the prompt through the tokenizer's chat template (a plain text becomes one user
    message), False encodes plain text; None uses the template when there is one and the prompt is a list of
    messages. BOS stands at the front exactly once if the tokenizer or the template wants it; a text that
    already went through a template gets no second one, and closing special tokens (EOS, SEP) are never added,
    because the prompt is to be continued.

    Raises ConfigError for messages without a template and for a prompt that encodes to no token at all.
    """
    if chat is None:
        chat = has_chat_template(tokenizer) and not isinstance(prompt, str)
    if chat:
        ids = _encode_chat(tokenizer, prompt)
    elif isinstance(prompt, str):
        ids = _encode_text(tokenizer, prompt)
    else:
        raise ConfigError(
            "prompt: a list of messages needs a chat template, but the policy's chat is off or its tokenizer "
            f"({type(tokenizer).__name__}) has none; pass the prompt as text, or set tokenizer.chat_template"
        )
    bos = tokenizer.bos_token_id
    while bos is not None and ids[:2] == [bos, bos]:
        ids = ids[1:]
    if not ids:
        raise ConfigError(
            f"prompt: {prompt!r} encodes to no token, and {type(tokenizer).__name__} puts no BOS in front, "
            "so the model has nothing to continue; write at least one character"
        )
    return ids


def text_ids(tokenizer: Any, text: str) -> list[int]:
    """Token ids of an answer alone: what it spells out, such as "<eos>", is text and not the token of that name."""
    return [int(i) for i in tokenizer.encode(valid(text), add_special_tokens=False, split_special_tokens=True)]


def valid(text: str) -> str:
    """The text with U+FFFD for halves of characters (lone surrogates), which JSON can bring and no tokenizer takes."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def opening_ids(tokenizer: Any) -> list[int]:
    """What the tokenizer puts in front of a text: its BOS, or nothing."""
    return _encode_text(tokenizer, "")


def has_chat_template(tokenizer: Any) -> bool:
    """Whether the tokenizer brings a template for chats."""
    return bool(getattr(tokenizer, "chat_template", None))


def eos_ids(model: Any, tokenizer: Any) -> frozenset[int]:
    """Every token id that ends an answer: all of the model's ``generation_config`` and the tokenizer's
    own.
    """
    configured = getattr(getattr(model, "generation_config", None), "eos_token_id", None)
    found = [configured] if isinstance(configured, int) else list(configured or ())
    own = getattr(tokenizer, "eos_token_id", None)
    return frozenset(found if own is None else [*found, own])


def pad(rows: Sequence[Sequence[int]], side: Literal["left", "right"], value: int = 0) -> tuple[Tensor, Tensor]:
    """Rectangle ``(len(rows), longest)`` of int64 ids and the bool mask of real tokens.

    The mask comes from the lengths, so a pad id that is also an EOS or an ordinary token does no harm.
    """
    lengths = torch.tensor([len(row) for row in rows], dtype=torch.long)
    width = int(lengths.max()) if len(rows) else 0
    columns = torch.arange(width)
    if side == "left":
        mask = columns >= (width - lengths)[:, None]
    else:
        mask = columns < lengths[:, None]
    ids = torch.full((len(rows), width), value, dtype=torch.long)
    ids[mask] = torch.tensor([token for row in rows for token in row], dtype=torch.long)
    return ids, mask


def _encode_chat(tokenizer: Any, prompt: Prompt) -> list[int]:
    if not has_chat_template(tokenizer):
        raise ConfigError(
            f"chat=True: {type(tokenizer).__name__} has no chat template; set tokenizer.chat_template, or chat=False"
        )
    messages = [{"role": "user", "content": valid(prompt)}] if isinstance(prompt, str) else [dict(m) for m in prompt]
    ids = tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=True, return_dict=False)
    return list(ids)


def _encode_text(tokenizer: Any, text: str) -> list[int]:
    text = valid(text)
    bare = list(tokenizer(text, add_special_tokens=False)["input_ids"])
    if bare and bare[0] == tokenizer.bos_token_id:
        return bare
    full = list(tokenizer(text, add_special_tokens=True)["input_ids"])
    for start in range(len(full) - len(bare) + 1):
        end = start + len(bare)
        if full[start:end] == bare:
            # An empty text has no place of its own: everything but a closing token stands before it.
            return full[:end] if bare else [t for t in full if t == tokenizer.bos_token_id]
    return full
