"""What must hold of a pretrained model before it is trained: a badly converted one is silently bad.

A lost ``+1`` of a norm, a wrong rope base, an ignored attention window or other merges of a tokenizer raise no error;
it shows in what the model finds likely.
"""

import math
import random
from collections.abc import Iterator
from dataclasses import dataclass
from pydoc_data.topics import topics

import torch
from torch import Tensor

from comlrl_agents.logprobs import token_logprobs
from comlrl_agents.policy import LLMPolicy
from comlrl_agents.types import Sampling
from comlrl_env.errors import ConfigError

ENGLISH = (
    "The history of the Roman Empire covers the history of ancient Rome from the fall of the Roman Republic in 27 BC "
    "until the abdication of the last Western emperor in AD 476. Rome had begun expanding shortly after the founding "
    "of the Republic in the 6th century BC."
)
CODE = 'def area(w, h):\n    """Area.\n\n    >>> area(2, 3)\n    6\n    """\n\tif w < 0:\r\n\t\treturn "é漢字🙂"\n\n\n'
SUM = 'def add(a, b):\n    """Return the sum of a and b."""\n    return'
WINDOW = 512
"""Tokens that most layers of Gemma 3 look back."""


@dataclass(frozen=True, slots=True)
class Check:
    """One property: what it is, what was found, and whether that will do."""

    name: str
    found: str
    holds: bool

    def __str__(self) -> str:
        return f"  {'ok ' if self.holds else 'BAD'} {self.name}: {self.found}"


def check_model(policy: LLMPolicy) -> list[Check]:
    """All checks, printed one by one.

    Raises:
        ConfigError: a check failed; its name and what was found are in the text.

    """
    checks = []
    for check in [*_tokenizer(policy), *_language(policy)]:
        print(check, flush=True)
        checks.append(check)
    failed = [f"{check.name}: {check.found}" for check in checks if not check.holds]
    if failed:
        raise ConfigError(
            f"model {policy.name}: {'; '.join(failed)}; it must not be trained like this. Delete the folder to have it "
            "made again, and try the versions of transformers and gguf that benchmarks/results names"
        )
    return checks


def surprise(policy: LLMPolicy, text: str, most: int = 1000) -> Tensor:
    """−log p of each of the first ``most`` tokens of ``text`` (at most) after BOS, in nats, float32 (tokens,)."""
    ids = policy.encode(text)[: most + 1]
    with torch.no_grad():
        return -token_logprobs(policy.model, [ids[:1]], [ids[1:]])[0][0].cpu()


def greedy(policy: LLMPolicy, prompt: str, tokens: int) -> str:
    """The most likely continuation."""
    sampling = Sampling(max_new_tokens=tokens, temperature=0.0, top_p=1.0, top_k=None)
    return policy.generate([prompt], 1, sampling=sampling)[0][0].text


def _tokenizer(policy: LLMPolicy) -> Iterator[Check]:
    tokenizer = policy.tokenizer
    ids = policy.encode(CODE)
    bos, eos, pad = tokenizer.bos_token_id, tokenizer.eos_token_id, tokenizer.pad_token_id
    yield Check("BOS once, at the front", f"{ids[:3]} with BOS {bos}", ids.count(bos) == 1 and ids[0] == bos)
    yield Check(
        "EOS ends answers", f"EOS {eos}, pad {pad}, answers end with {sorted(policy.eos_ids)}", eos in policy.eos_ids
    )
    back = tokenizer.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)
    yield Check("code survives encoding and decoding", f"{len(CODE)} characters, {len(ids)} tokens", back == CODE)
    blanks = len(tokenizer("\n\n" + " " * 8, add_special_tokens=False)["input_ids"])
    yield Check("newlines and indentation are tokens of their own", f"{blanks} tokens", blanks == 2)


def _language(policy: LLMPolicy) -> Iterator[Check]:
    words = ENGLISH.split()
    random.Random(0).shuffle(words)
    plain, shuffled = (math.exp(surprise(policy, text).mean()) for text in (ENGLISH, " ".join(words)))
    yield Check("perplexity of plain English", f"{plain:.1f} (at most 15)", plain < 15)
    yield Check("the same words shuffled", f"{shuffled:.0f} (at least 10 times as much)", shuffled > 10 * plain)
    long = surprise(policy, topics["debugger"])
    near, far = math.exp(long[WINDOW // 2 : WINDOW].mean()), math.exp(long[WINDOW:].mean())
    yield Check(
        f"perplexity of a long text before and behind the attention window of {WINDOW} tokens",
        f"{near:.1f}, {far:.1f} (no jump)",
        far < 1.5 * near,
    )
    said = greedy(policy, SUM, 5)
    yield Check("writes the obvious code", repr(said), said.lstrip().startswith("a + b"))
