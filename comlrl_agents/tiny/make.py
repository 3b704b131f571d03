"""Builds the embedded model: tokenizer, training and the files of the package, from one seed.

``python -m comlrl_agents.tiny.make`` rewrites the shipped files; ``--out DIR`` writes elsewhere and ``--minutes N``
trains for about N minutes of one CPU core. Minutes are turned into a fixed number of steps, so the same arguments give
the same model on the same machine and library versions however busy it is.
"""

import argparse
import math
import time
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from comlrl_agents.tiny import FOLDER
from comlrl_agents.tiny.corpus import Document, documents

SPECIAL = PAD, BOS, EOS = "<|pad|>", "<|begin|>", "<|end|>"
PAD_ID, BOS_ID, EOS_ID = 0, 1, 2
VOCABULARY = 1536
CONTEXT = 2048
STEPS_PER_MINUTE = 400
BATCH_TOKENS = 1024
TOKENIZER_DOCUMENTS = 8000
POOL = 1024  # documents that are sorted by length together
PEAK_RATE = 3e-3
LONGEST = 512  # tokens of one training document; longer ones are cut

Example = tuple[list[int], int]
"""Token ids with BOS and EOS, and how many of them belong to the prompt."""


def build_tokenizer(texts: Iterable[str]) -> Tokenizer:
    """Train a byte-level BPE tokenizer: any text survives a round trip; digits are one token each."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=list(SPECIAL),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{BOS} $A", pair=f"{BOS} $A $B", special_tokens=[(BOS, BOS_ID)]
    )
    return tokenizer


def build_model() -> LlamaForCausalLM:
    """A fresh model of two layers: at this size a CPU pays more per operation than per number."""
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=VOCABULARY,
            hidden_size=128,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            intermediate_size=384,
            max_position_embeddings=CONTEXT,
            tie_word_embeddings=True,
            dtype="float32",
            pad_token_id=PAD_ID,
            bos_token_id=BOS_ID,
            eos_token_id=EOS_ID,
        )
    )


def encode(tokenizer: Tokenizer, document: Document) -> Example:
    """BOS + prompt, then answer + EOS, tokenised apart as a policy feeds them."""
    prompt = tokenizer.encode(document.prompt).ids
    answer = tokenizer.encode(document.answer, add_special_tokens=False).ids
    return [*prompt, *answer, EOS_ID][:LONGEST], len(prompt)


def batches(examples: Iterator[Example]) -> Iterator[list[Example]]:
    """Batches of documents of like length and about ``BATCH_TOKENS`` tokens, in an order that is not sorted."""
    order = np.random.default_rng(0)
    while drawn := sorted(islice(examples, POOL), key=lambda example: len(example[0])):
        groups: list[list[Example]] = [[]]
        for example in drawn:
            if (len(groups[-1]) + 1) * len(example[0]) > BATCH_TOKENS:
                groups.append([])
            groups[-1].append(example)
        for index in order.permutation(len(groups)):
            yield groups[index]


def batch_loss(model: LlamaForCausalLM, batch: list[Example]) -> torch.Tensor:
    """Mean cross-entropy per token of the answers, in nats; prompts are read, not learned by heart."""
    width = max(len(ids) for ids, _ in batch)
    tokens = torch.full((len(batch), width), PAD_ID)
    answered = torch.zeros(len(batch), width, dtype=torch.bool)
    for row, (ids, prompt) in enumerate(batch):
        tokens[row, : len(ids)] = torch.tensor(ids)
        answered[row, prompt : len(ids)] = True
    # Padding is on the right, where causal attention never reads it; the head works on answers only.
    hidden = model.model(input_ids=tokens[:, :-1]).last_hidden_state[answered[:, 1:]]
    return torch.nn.functional.cross_entropy(model.lm_head(hidden), tokens[:, 1:][answered[:, 1:]])


def train(model: LlamaForCausalLM, examples: Iterator[Example], steps: int) -> None:
    """Train in place with AdamW, a short warm-up and a linear decay to zero; prints the mean loss on the way."""
    decay = [weight for weight in model.parameters() if weight.dim() > 1]
    scale = [weight for weight in model.parameters() if weight.dim() <= 1]
    optimizer = torch.optim.AdamW(
        [{"params": decay, "weight_decay": 0.1}, {"params": scale, "weight_decay": 0.0}],
        lr=PEAK_RATE,
        betas=(0.9, 0.95),
        fused=True,
    )
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min((step + 1) / 100, 1 - step / steps))
    recent, began = [], time.monotonic()
    for step, batch in enumerate(islice(batches(examples), steps), start=1):
        loss = batch_loss(model, batch)
        torch.autograd.backward(loss)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        schedule.step()
        recent.append(loss.item())
        if step % 100 == 0 or step == steps:
            mean, seconds = math.fsum(recent) / len(recent), time.monotonic() - began
            print(f"step {step}/{steps}  loss {mean:.3f}  {seconds:.0f} s", flush=True)  # noqa: T201 (a script)
            recent.clear()


def save(model: LlamaForCausalLM, tokenizer: Tokenizer, folder: Path) -> None:
    """Write the files of the package. Weights are stored in half precision; ``config.json`` says float32 to load."""
    folder.mkdir(parents=True, exist_ok=True)
    weights = {name: weight.half().contiguous() for name, weight in model.state_dict().items()}
    del weights["lm_head.weight"]  # tied to the embedding
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    model.config.save_pretrained(folder)
    model.generation_config.save_pretrained(folder)
    wrapper: Any = PreTrainedTokenizerFast
    wrapper(
        tokenizer_object=tokenizer,
        pad_token=PAD,
        bos_token=BOS,
        eos_token=EOS,
        model_max_length=CONTEXT,
        clean_up_tokenization_spaces=False,
    ).save_pretrained(folder)


def main(arguments: Sequence[str] | None = None) -> None:
    """Command line of this module."""
    parser = argparse.ArgumentParser(description="Build the embedded default model.")
    parser.add_argument("--out", type=Path, default=FOLDER, help="folder for the files (default: the package)")
    parser.add_argument("--minutes", type=float, default=10.0, help="length of training on one CPU core")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    steps = max(1, round(options.minutes * STEPS_PER_MINUTE))
    torch.set_num_threads(1)  # sums depend on the number of threads
    torch.manual_seed(options.seed)
    sample = islice(documents(options.seed), TOKENIZER_DOCUMENTS)
    tokenizer = build_tokenizer(text for document in sample for text in document)
    model = build_model()
    examples = (encode(tokenizer, document) for document in documents(options.seed + 1))
    train(model, examples, steps)
    save(model, tokenizer, options.out)


if __name__ == "__main__":
    main()
