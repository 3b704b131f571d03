import copy

import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import GenerationConfig, PreTrainedTokenizerFast

from comlrl_agents.tokens import encode_prompt, eos_ids, has_chat_template, pad
from comlrl_env.errors import ConfigError

VOCABULARY = {"<s>": 0, "</s>": 1, "?": 2, "hello": 3, "world": 4, "user": 5, ":": 6, "assistant": 7}
TEMPLATE = (
    "{{ bos_token }}{% for m in messages %}{{ m['role'] }} : {{ m['content'] }} {% endfor %}"
    "{% if add_generation_prompt %}assistant :{% endif %}"
)


def tokenizer(frame="$A", chat_template=None, bos="<s>"):
    """``frame``: what the tokenizer puts around a text, e.g. "<s> $A </s>". No padding token."""
    core = Tokenizer(models.WordLevel(VOCABULARY, unk_token="?"))
    core.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    core.post_processor = processors.TemplateProcessing(single=frame, special_tokens=[("<s>", 0), ("</s>", 1)])
    made = PreTrainedTokenizerFast(tokenizer_object=core, bos_token=bos, eos_token="</s>", unk_token="?")
    made.chat_template = chat_template
    return made


@pytest.mark.parametrize(
    ("frame", "text", "expected"),
    [
        ("$A", "hello world", [3, 4]),
        ("<s> $A", "hello world", [0, 3, 4]),
        ("<s> $A", "<s> hello", [0, 3]),  # already templated
        ("<s> $A", "<s> <s> hello", [0, 3]),
        ("<s> $A </s>", "hello", [0, 3]),  # the model is to go on, not to have ended
        ("<s> $A </s>", "hello </s>", [0, 3, 1]),  # the user's own EOS stays
        ("<s> $A </s>", "", [0]),
        ("<s> $A", "", [0]),
    ],
)
def test_special_tokens_of_a_text(frame, text, expected):
    assert encode_prompt(tokenizer(frame), text) == expected
    assert encode_prompt(tokenizer(frame, TEMPLATE), text, chat=False) == expected


def test_a_text_without_any_token_is_refused():
    with pytest.raises(ConfigError, match="'' encodes to no token"):
        encode_prompt(tokenizer("$A"), "")


MESSAGES = [{"role": "user", "content": "hello world"}]


@pytest.mark.parametrize("frame", ["$A", "<s> $A", "<s> $A </s>"])
@pytest.mark.parametrize("template", [TEMPLATE, "{{ bos_token }} " + TEMPLATE])
def test_a_chat_has_one_bos_whatever_tokenizer_and_template_add(frame, template):
    chatty = tokenizer(frame, template)
    expected = [0, 5, 6, 3, 4, 7, 6]
    assert encode_prompt(chatty, MESSAGES) == expected
    assert encode_prompt(chatty, MESSAGES, chat=True) == expected
    assert encode_prompt(chatty, "hello world", chat=True) == expected


def test_without_being_told_a_text_stays_a_text():
    assert encode_prompt(tokenizer("$A", TEMPLATE), "hello world") == [3, 4]


@pytest.mark.parametrize(
    ("chat_template", "prompt", "chat"), [(None, MESSAGES, None), (TEMPLATE, MESSAGES, False), (None, "hello", True)]
)
def test_a_chat_needs_a_template(chat_template, prompt, chat):
    with pytest.raises(ConfigError, match="chat"):
        encode_prompt(tokenizer("$A", chat_template), prompt, chat)


def test_the_tokenizer_stays_as_it_was():
    used = tokenizer("<s> $A", TEMPLATE)
    before = copy.deepcopy(
        (used.padding_side, used.special_tokens_map, used.init_kwargs, used("hello world")["input_ids"])
    )
    encode_prompt(used, "hello")
    encode_prompt(used, MESSAGES)
    assert (used.padding_side, used.special_tokens_map, used.init_kwargs, used("hello world")["input_ids"]) == before
    assert used.pad_token is None
    assert has_chat_template(used)


class ModelWith:
    def __init__(self, eos):
        self.generation_config = GenerationConfig(eos_token_id=eos)


@pytest.mark.parametrize(("eos", "expected"), [(5, {1, 5}), ([5, 7], {1, 5, 7}), (None, {1}), (1, {1})])
def test_every_eos_counts(eos, expected):
    assert eos_ids(ModelWith(eos), tokenizer()) == expected


def test_padding_comes_from_lengths():
    rows = [[7, 0], [], [0, 0, 0]]
    ids, mask = pad(rows, "right")
    assert ids.tolist() == [[7, 0, 0], [0, 0, 0], [0, 0, 0]]
    assert mask.tolist() == [[True, True, False], [False] * 3, [True] * 3]
    ids, mask = pad(rows, "left", 9)
    assert ids.tolist() == [[9, 7, 0], [9, 9, 9], [0, 0, 0]]
    assert mask.tolist() == [[False, True, True], [False] * 3, [True] * 3]
    assert ids.dtype == torch.long
    assert pad([], "left")[0].shape == (0, 0)
