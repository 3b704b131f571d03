"""Policies: a local language model, and a scripted player."""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from comlrl_agents import generation, logprobs, tokens
from comlrl_agents.model_source import context_length, load_model, load_tokenizer
from comlrl_agents.placement import pick_device
from comlrl_agents.types import Generation, Prompt, Sampling
from comlrl_env.errors import ConfigError


class LLMPolicy:
    """A causal language model with its tokenizer, as a policy.

    ``model``: a loaded model object, "tiny", a folder, or a model id; names are loaded with float32 weights.
    An object stays as it is, on its device; without ``tokenizer`` the one of ``model.config._name_or_path``
    is used. ``sampling``: the default way to draw. ``chat``: see :func:`comlrl_agents.tokens.encode_prompt`.

    The model is kept in eval mode: without dropout the margins of a batch are one deterministic function of
    the weights, the same at sampling, in the loss and on resume.

    Raises ConfigError when there is no model of that name, or no tokenizer for an object.
    """

    def __init__(
        self,
        model: nn.Module | str | os.PathLike[str],
        tokenizer: Any = None,
        *,
        sampling: Sampling | None = None,
        chat: bool | None = None,
    ) -> None:
        self.name: str | None
        if isinstance(model, nn.Module):
            self.name = getattr(getattr(model, "config", None), "_name_or_path", "") or None
            self.model: nn.Module = model
            self.tokenizer: Any = tokenizer if tokenizer is not None else _tokenizer_of(model, self.name)
        else:
            self.name = os.fspath(model)
            self.model, loaded = load_model(self.name, with_tokenizer=tokenizer is None)
            self.tokenizer = loaded if tokenizer is None else tokenizer
        self.sampling = sampling if sampling is not None else Sampling()
        self.chat = chat
        self.eos_ids = tokens.eos_ids(self.model, self.tokenizer)
        self.positions = context_length(getattr(self.model, "config", None))
        self._rng = np.random.default_rng(0)
        self.compute_dtype = torch.float32
        self.model.eval()

    @property
    def device(self) -> torch.device:
        """Where the model's weights are."""
        return next(self.model.parameters()).device

    def computing(self) -> AbstractContextManager[Any]:
        """The context in which the model computes: autocast when ``compute_dtype`` is not float32.

        The weights stay as they are, which in training is float32.
        """
        if self.compute_dtype == torch.float32:
            return nullcontext()
        return torch.autocast(self.device.type, self.compute_dtype)

    @property
    def uses_chat(self) -> bool:
        """Whether prompts given as messages go through the tokenizer's chat template."""
        return self.chat is not False and getattr(self.tokenizer, "chat_template", None) is not None

    def encode_completion(self, text: str, *, finished: bool = True) -> list[int]:
        """Token ids of an answer that came as text: nothing in front, the EOS behind unless it was cut; a special token
        that the text spells out stays text.
        """
        ids = tokens.text_ids(self.tokenizer, text)
        if not finished or not self.eos_ids:
            return ids
        own = self.tokenizer.eos_token_id
        return [*ids, min(self.eos_ids) if own is None else int(own)]

    def decode(self, ids: Sequence[int], finished: bool | None) -> str:
        """The text of an answer's tokens, without the EOS that closes a finished one."""
        shown = list(ids[:-1] if finished else ids)
        return str(self.tokenizer.decode(shown, skip_special_tokens=True, clean_up_tokenization_spaces=False))

    def encode(self, prompt: Prompt) -> list[int]:
        """Token ids that the model is fed for this prompt."""
        return tokens.encode_prompt(self.tokenizer, prompt, self.chat)

    def generate(
        self,
        prompts: Sequence[Prompt],
        n: int = 1,
        rng: np.random.Generator | None = None,
        sampling: Sampling | None = None,
    ) -> list[list[Generation]]:
        """``n`` sampled answers for each prompt, in the order of the prompts.

        ``rng``: source of all randomness; None: a generator of the policy's own, seeded with 0 when it was
        made, so that a script repeats itself while its successive calls differ. ``sampling``: instead of the
        policy's own.

        Raises ConfigError when an answer could run past the positions that the model was made for.
        """
        return self.generate_draws(prompts, [(n, self._rng if rng is None else rng)], sampling)[0]

    def generate_draws(
        self,
        prompts: Sequence[Prompt],
        draws: Sequence[tuple[int, np.random.Generator]],
        sampling: Sampling | None = None,
    ) -> list[list[list[Generation]]]:
        """What :meth:`generate` gives for each ``(n, rng)`` of ``draws``, sampled side by side in one batch.

        The random numbers are the same as one after the other; logits may round another way in a larger batch.
        """
        return self._sampled(prompts, [(n, self._source(rng)) for n, rng in draws], sampling)

    def generate_each(self, prompts: Sequence[Prompt], rngs: Sequence[np.random.Generator]) -> list[list[Generation]]:
        """One answer to each prompt with random numbers of its own: what a prompt gets does not depend on the others
        (logits may round another way in another batch).
        """
        return self._sampled(prompts, [(1, [self._source(rng) for rng in rngs])], None)[0]

    def _source(self, rng: np.random.Generator) -> torch.Generator:
        return torch.Generator(self.device).manual_seed(int(rng.integers(2**63 - 1)))

    def _sampled(
        self, prompts: Sequence[Prompt], draws: Sequence[generation.Draw], sampling: Sampling | None
    ) -> list[list[list[Generation]]]:
        sampling = self.sampling if sampling is None else sampling
        prompt_ids = [self.encode(prompt) for prompt in prompts]
        self.refuse_too_long(max(map(len, prompt_ids), default=0), sampling.max_new_tokens)
        with self.computing():
            sampled = generation.generate_draws(self.model, prompt_ids, draws, sampling, self.eos_ids)
        return [
            [
                [Generation(self.decode(ids, ended), tuple(ids), ended, tuple(prompt)) for ids, ended in group]
                for prompt, group in zip(prompt_ids, groups, strict=True)
            ]
            for groups in sampled
        ]

    def sequence_logprobs(
        self,
        prompt_ids: Sequence[Sequence[int]],
        completion_ids: Sequence[Sequence[int]],
        *,
        score_final_token: bool = True,
        micro_batch_tokens: int | None = None,
    ) -> Tensor:
        """Log π(completion | prompt) per row, float32 (B,) with gradient; see
        :mod:`comlrl_agents.logprobs`.
        """
        with self.computing():
            return logprobs.sequence_logprobs(
                self.model,
                prompt_ids,
                completion_ids,
                score_final_token=score_final_token,
                micro_batch_tokens=micro_batch_tokens,
            )

    def parameters(self) -> Iterator[nn.Parameter]:
        """The model's parameters."""
        return self.model.parameters()

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Model and tokenizer in a folder that ``from_pretrained`` loads."""
        self.model.save_pretrained(folder)  # type: ignore[operator]  # every transformers and PEFT model has it
        self.tokenizer.save_pretrained(folder)

    def refuse_too_long(self, prompt: int, answer: int, whose: str = "") -> None:
        """Refuse a prompt and an answer of so many tokens that do not fit into the model's context together.

        A model with rotary positions computes on beyond its context, but was never trained there; an answer that may
        get so long is refused as well, because it would be trained on.

        Raises ConfigError, which begins with ``whose`` prompt it is.
        """
        if self.positions is None or prompt + answer <= self.positions:
            return
        room = self.positions - prompt
        way_out = f"set max_new_tokens to at most {room}" if room > 0 else "shorten the prompt"
        whole = getattr(getattr(self.model, "config", None), "max_position_embeddings", self.positions)
        own = "" if whole == self.positions else f" (of {whole}: beyond, its rotary positions change)"
        raise ConfigError(
            f"{whose}the prompt has {prompt} tokens and the answer up to {answer} (max_new_tokens), but the context of "
            f"{self.name or type(self.model).__name__} has room for {self.positions}{own}; {way_out}, or take a model "
            "with a longer context"
        )


class ScriptedPolicy:
    """A policy that is a plain function: ``function(prompt, rng) -> text``, called once per answer."""

    def __init__(self, function: Callable[[Prompt, np.random.Generator], str]) -> None:
        self.function = function

    def generate(
        self, prompts: Sequence[Prompt], n: int = 1, rng: np.random.Generator | None = None
    ) -> list[list[Generation]]:
        """``n`` answers of the function for each prompt; without ``rng`` a fresh ``default_rng(0)``."""
        rng = np.random.default_rng(0) if rng is None else rng
        return [[Generation(self.function(prompt, rng)) for _ in range(n)] for prompt in prompts]

    def generate_each(self, prompts: Sequence[Prompt], rngs: Sequence[np.random.Generator]) -> list[list[Generation]]:
        """One answer of the function to each prompt, which gets a generator of its own."""
        return [[Generation(self.function(prompt, rng))] for prompt, rng in zip(prompts, rngs, strict=True)]


def load_policy(
    source: str | os.PathLike[str],
    tokenizer: Any = None,
    *,
    gguf_file: str | None = None,
    sampling: Sampling | None = None,
    chat: bool | None = None,
    device: str | None = None,
) -> LLMPolicy:
    """The policy of a folder, a model id or "tiny"; ``gguf_file`` names a GGUF file inside the folder.

    ``device``: where the model goes; None picks the best one here.
    """
    name = os.fspath(source)
    model, loaded = load_model(name, gguf_file=gguf_file, with_tokenizer=tokenizer is None)
    model.to(pick_device(device).value)
    policy = LLMPolicy(model, loaded if tokenizer is None else tokenizer, sampling=sampling, chat=chat)
    policy.name = name
    return policy


def _tokenizer_of(model: nn.Module, name: str | None) -> Any:
    if name is None:
        raise ConfigError(
            f"tokenizer: {type(model).__name__} was given as an object that does not say where it came from; "
            "pass its tokenizer too"
        )
    return load_tokenizer(name)
