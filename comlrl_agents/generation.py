"""Batched sampling over prompts × n: one prefill per distinct prompt, one cache row per sample, no finished
rows.
"""

import itertools
from collections.abc import Collection, Iterator, Sequence
from threading import Lock
from typing import Any, cast

import torch
from torch import Tensor, nn

from comlrl_agents.decoders import Decoder, find_decoder
from comlrl_agents.forward import evaluating
from comlrl_agents.sampler import Sampler
from comlrl_agents.types import Sampling
from comlrl_env.errors import TrainingError

Sampled = tuple[list[int], bool]

_borrowing = Lock()

CACHE_BYTES = 2 << 30
"""How much memory the keys and values of one batch may take; more rows are decoded in several batches."""


Draw = tuple[int, torch.Generator | Sequence[torch.Generator]]
"""How many samples per prompt, and where their random numbers come from: one source, or one for each prompt."""


def generate(
    model: nn.Module,
    prompt_ids: Sequence[Sequence[int]],
    n: int,
    sampling: Sampling,
    eos_ids: Collection[int],
    generator: torch.Generator,
) -> list[list[Sampled]]:
    """``n`` samples per prompt: token ids with a closing EOS if there is one, and whether it ended by itself.

    Only ``sampling`` rules: nothing is taken from the model's own generation settings. The random numbers of
    the call come from ``generator``, in an order that does not depend on the answers. Raises TrainingError
    when the model's logits are not numbers.
    """
    return generate_draws(model, prompt_ids, [(n, generator)], sampling, eos_ids)[0]


@torch.no_grad()
def generate_draws(
    model: nn.Module,
    prompt_ids: Sequence[Sequence[int]],
    draws: Sequence[Draw],
    sampling: Sampling,
    eos_ids: Collection[int],
) -> list[list[list[Sampled]]]:
    """What :func:`generate` gives for each of ``draws``, with all of them in one batch."""
    if not prompt_ids or not sum(n for n, _ in draws) or sampling.max_new_tokens < 1:
        return [[[([], False) for _ in range(n)] for _ in prompt_ids] for n, _ in draws]
    with evaluating(model):
        kind = find_decoder(model)
        if kind is None:
            samples = [
                sample
                for n, source in draws
                for some, own in _by_source(prompt_ids, source)
                for sample in _generate_by_model(model, some, n, sampling, eos_ids, own)
            ]
        else:
            samples = _generate_in_batches(kind, model, prompt_ids, draws, sampling, eos_ids)
    rest = iter(samples)
    return [[[next(rest) for _ in range(n)] for _ in prompt_ids] for n, _ in draws]


def _by_source(
    prompt_ids: Sequence[Sequence[int]], source: torch.Generator | Sequence[torch.Generator]
) -> list[tuple[Sequence[Sequence[int]], torch.Generator]]:
    """Which prompts are answered with whose random numbers, in order."""
    if isinstance(source, torch.Generator):
        return [(prompt_ids, source)]
    return [([prompt], own) for prompt, own in zip(prompt_ids, source, strict=True)]


def _generate_in_batches(
    kind: type[Decoder],
    model: nn.Module,
    prompt_ids: Sequence[Sequence[int]],
    draws: Sequence[Draw],
    sampling: Sampling,
    eos_ids: Collection[int],
) -> list[Sampled]:
    """Draw after draw, prompt after prompt."""
    rows_of: dict[tuple[int, ...], list[int]] = {}
    numbers = itertools.count()
    for n, _ in draws:
        for prompt in prompt_ids:
            rows_of.setdefault(tuple(prompt), []).extend(itertools.islice(numbers, n))
    sources = [(len(some) * n, own) for n, source in draws for some, own in _by_source(prompt_ids, source)]
    sampler = Sampler(sampling, sources)
    samples: list[Sampled] = [([], False)] * sum(map(len, rows_of.values()))
    for batch in _batches(model, rows_of, sampling.max_new_tokens):
        repeat = [at for at, rows in enumerate(batch.values()) for _ in rows]
        places = [row for rows in batch.values() for row in rows]
        decoder = kind(model, list(batch), repeat, sampling.max_new_tokens, sampler.top_k)
        for row, sample in zip(places, _decode(decoder, sampler, places, eos_ids), strict=True):
            samples[row] = sample
    return samples


def _decode(decoder: Decoder, sampler: Sampler, numbers: list[int], eos_ids: Collection[int]) -> list[Sampled]:
    """Decode one batch; ``numbers`` are the rows' places in the sampler's random numbers."""
    steps, device = sampler.sampling.max_new_tokens, decoder.logits.device
    ends = torch.tensor(sorted(eos_ids), dtype=torch.long, device=device)
    out = torch.zeros((len(numbers), steps), dtype=torch.long, device=device)
    lengths = torch.full((len(numbers),), steps, device=device)
    finished = torch.zeros(len(numbers), dtype=torch.bool, device=device)
    rows, number = torch.arange(len(numbers), device=device), torch.tensor(numbers, device=device)
    alive = torch.ones_like(finished)
    for step in range(steps):
        logits = decoder.logits.float()
        highest = logits.amax(dim=1)
        if not bool(highest.isfinite().all()):
            value = float(highest[~highest.isfinite()][0])
            raise TrainingError(
                f"sampling: the model's logits must be numbers, actually {value} at token {step + 1} of an answer; "
                "its weights have diverged or were damaged: lower the learning rate, or load an earlier checkpoint"
            )
        tokens = sampler.draw(logits, step, number[rows])
        if decoder.tokens is not None:
            tokens = decoder.tokens.gather(1, tokens[:, None])[:, 0]
        out[rows, step] = tokens
        ended = torch.isin(tokens, ends) & alive
        if bool(ended.any()):
            finished[rows[ended]] = True
            lengths[rows[ended]] = step + 1
            alive = alive & ~ended
            if not bool(alive.any()):
                break
            # Moving the others together costs too, so a few finished rows are carried along.
            if step + 1 < steps and int(alive.sum()) <= 0.9 * len(rows):
                kept = decoder.keep(alive)
                rows, tokens = rows[kept], tokens[kept]
                alive = torch.ones_like(rows, dtype=torch.bool)
        if step + 1 < steps:
            decoder.step(tokens)
    rows_of_tokens = zip(out.tolist(), lengths.tolist(), finished.tolist(), strict=True)
    return [(ids[:length], end) for ids, length, end in rows_of_tokens]


def _batches(
    model: nn.Module, rows_of: dict[tuple[int, ...], list[int]], steps: int
) -> Iterator[dict[tuple[int, ...], list[int]]]:
    """Prompts of similar length together, as many rows at a time as the memory for their cache allows."""
    config: Any = model.config
    config = config.get_text_config(decoder=True)
    heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
    features = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    per_token = 2 * 4 * config.num_hidden_layers * heads * features
    batch: dict[tuple[int, ...], list[int]] = {}
    count = 0
    for prompt in sorted(rows_of, key=len, reverse=True):
        longest = len(next(iter(batch), prompt)) + steps
        if batch and (count + len(rows_of[prompt])) * longest * per_token > CACHE_BYTES:
            yield batch
            batch, count = {}, 0
        batch[prompt] = rows_of[prompt]
        count += len(rows_of[prompt])
    yield batch


def _generate_by_model(
    model: nn.Module,
    prompt_ids: Sequence[Sequence[int]],
    n: int,
    sampling: Sampling,
    eos_ids: Collection[int],
    generator: torch.Generator,
) -> list[Sampled]:
    """The model's own ``generate``, one prompt at a time, without anything from its own generation
    settings.
    """
    import transformers

    whole, make_settings = cast("Any", model), cast("Any", transformers.GenerationConfig)
    greedy = sampling.temperature == 0
    fields: dict[str, Any] = {
        "max_new_tokens": sampling.max_new_tokens,
        "do_sample": not greedy,
        "num_return_sequences": 1 if greedy else n,
        "repetition_penalty": 1.0,
        "eos_token_id": sorted(eos_ids) or None,
        "pad_token_id": min(eos_ids, default=0),
    }
    if not greedy:
        fields |= {"temperature": sampling.temperature, "top_k": sampling.top_k or 0, "top_p": sampling.top_p}
    device = next(model.parameters()).device
    samples: list[Sampled] = []
    settings, whole.generation_config = whole.generation_config, make_settings()
    try:
        # The torch-wide random state is borrowed: agents that generate at the same time take turns here.
        with _borrowing, torch.random.fork_rng([device] if device.type == "cuda" else []):
            torch.manual_seed(int(torch.randint(2**62, (1,), generator=generator, device=device)))
            for prompt in prompt_ids:
                ids = torch.tensor([prompt], device=device)
                rows: Tensor = whole.generate(input_ids=ids, attention_mask=torch.ones_like(ids), **fields)
                answers = [_cut(row[len(prompt) :], eos_ids) for row in rows.tolist()]
                samples.extend(answers * n if greedy else answers)
    finally:
        whole.generation_config = settings
    return samples


def _cut(tokens: list[int], eos_ids: Collection[int]) -> Sampled:
    end = next((at + 1 for at, token in enumerate(tokens) if token in eos_ids), None)
    return (tokens, False) if end is None else (tokens[:end], True)
