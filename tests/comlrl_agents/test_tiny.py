"""The embedded model: its files, its tokens, and what it has and has not learned."""

import math
import os
import subprocess
import sys
from itertools import islice

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from comlrl_agents.policy import LLMPolicy
from comlrl_agents.tiny import FOLDER, load_tiny
from comlrl_agents.tiny.corpus import SOURCES, Document, answers, documents, paragraphs
from comlrl_agents.types import Sampling
from comlrl_env.tasks.partition.partition import Partition
from comlrl_env.tasks.stories.length_ratio import LengthRatio

AS_TRAINED = Sampling(max_new_tokens=160, temperature=1.0, top_p=1.0, top_k=None)


@pytest.fixture(scope="module")
def tiny():
    return load_tiny()


@pytest.fixture(scope="module")
def policy(tiny):
    return LLMPolicy(*tiny, sampling=AS_TRAINED)


def nats_per_token(policy, found):
    prompts = [policy.encode(document.prompt) for document in found]
    ends = [policy.encode_completion(document.answer, finished=True) for document in found]
    with torch.no_grad():
        total = policy.sequence_logprobs(prompts, ends).sum().item()
    return -total / sum(len(ids) for ids in ends)


def test_the_files_fit_the_package():
    sizes = [path.stat().st_size for path in FOLDER.iterdir() if path.suffix in {".json", ".safetensors"}]
    assert sum(sizes) < 8e6


def test_it_is_small_float32_and_on_the_cpu(tiny):
    model, _ = tiny
    weights = list(model.parameters())
    assert sum(weight.numel() for weight in weights) <= 3_000_000
    assert {weight.dtype for weight in weights} == {torch.float32}
    assert {weight.device.type for weight in weights} == {"cpu"}
    assert all(weight.requires_grad for weight in weights)


def test_two_loads_share_nothing():
    first, second = load_tiny()[0], load_tiny()[0]
    with torch.no_grad():
        first.model.embed_tokens.weight.zero_()
    assert second.model.embed_tokens.weight.abs().sum() > 0


def test_it_loads_offline_and_fast():
    code = (
        "import torch, transformers, time, socket\n"
        "def refuse(*a, **k): raise OSError('no network here')\n"
        "socket.socket.connect = refuse\n"
        "from comlrl_agents.tiny import load_tiny\n"
        "from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaForCausalLM\n"
        "start = time.process_time(); load_tiny(); print(time.process_time() - start)"
    )
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    assert float(done.stdout.split()[-1]) < 2.0


def test_importing_it_costs_no_torch():
    code = "import importlib.util, sys; spec = importlib.util.spec_from_file_location('t', sys.argv[1])\n"
    code += "spec.loader.exec_module(importlib.util.module_from_spec(spec)); print('torch' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code, str(FOLDER / "__init__.py")], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "False"


def test_the_folder_is_an_ordinary_checkpoint(tiny):
    model, tokenizer = AutoModelForCausalLM.from_pretrained(FOLDER), AutoTokenizer.from_pretrained(FOLDER)
    assert model.dtype == torch.float32
    ids = torch.tensor([tokenizer.encode("The fox found a boat.")])
    with torch.no_grad():
        assert torch.equal(model(input_ids=ids).logits, tiny[0](input_ids=ids).logits)


def test_special_tokens_agree_and_differ(tiny):
    model, tokenizer = tiny
    ids = (tokenizer.pad_token_id, tokenizer.bos_token_id, tokenizer.eos_token_id)
    assert len(set(ids)) == 3
    for config in (model.config, model.generation_config):
        assert (config.pad_token_id, config.bos_token_id, config.eos_token_id) == ids
    assert model.generation_config.repetition_penalty in (None, 1.0)
    assert len(tokenizer) == model.config.vocab_size
    assert tokenizer.encode("a") == [tokenizer.bos_token_id, *tokenizer.encode("a", add_special_tokens=False)]


@pytest.mark.parametrize(
    "text",
    [
        "",
        " two  blanks and a tail ",
        "The fox's boat — 'naïve', “quoted”.\n\n\tTab\r\n",
        "日本語のテキスト, Ελληνικά, עברית, 🦊🚤",
        "def f(x):\n    return x ** 2  # 1234567890",
        "".join(chr(code) for code in range(0x250)),
    ],
)
def test_any_text_survives_a_round_trip(tiny, text):
    tokenizer = tiny[1]
    assert tokenizer.decode(tokenizer.encode(text, add_special_tokens=False)) == text
    assert tokenizer.decode(tokenizer.encode(text), skip_special_tokens=True) == text


def test_stories_take_few_tokens(tiny):
    task, rng = LengthRatio(), np.random.default_rng(5)
    texts = [text for item in task.items("eval")[:40] for text in task.sample_answers(item, rng).values()]
    tokens = sum(len(tiny[1].encode(text, add_special_tokens=False)) for text in texts)
    assert sum(map(len, texts)) / tokens > 3.5


@pytest.mark.parametrize("task", [LengthRatio(), Partition(), Partition(num_things=12, num_agents=3, level=1)])
def test_held_out_answers_are_far_likelier_than_chance(policy, task):
    rng = np.random.default_rng(3)
    found = []
    for item in task.items("eval")[:30]:
        prompts, texts = task.prompts(item, ()), task.sample_answers(item, rng)
        found += [Document(prompts[agent], texts[agent]) for agent in task.agents]
    assert nats_per_token(policy, found) < 0.3 * math.log(policy.tokenizer.vocab_size)


def test_most_samples_end_by_themselves(policy):
    stories, shares = LengthRatio(), Partition()
    prompts = [text for item in stories.items("eval")[:10] for text in stories.prompts(item, ()).values()]
    prompts += [text for item in shares.items("eval")[:10] for text in shares.prompts(item, ()).values()]
    samples = [one for many in policy.generate(prompts, 4, np.random.default_rng(0)) for one in many]
    assert np.mean([sample.finished for sample in samples]) > 0.9


@pytest.mark.parametrize(("sampling", "longest"), [(AS_TRAINED, 150), (Sampling(max_new_tokens=160), 100)])
def test_lengths_of_fresh_stories_vary_and_do_not_depend_on_the_role(policy, sampling, longest):
    task = LengthRatio()
    lengths = {}
    for agent in task.agents:
        prompts = [task.prompts(item, ())[agent] for item in task.items("eval")[:40]]
        samples = policy.generate(prompts, 4, np.random.default_rng(0), sampling)
        lengths[agent] = np.array([len(one.text) for many in samples for one in many])
    for found in lengths.values():
        low, high = np.percentile(found, [10, 90])
        assert low < 60
        assert high > longest
    short, long = (np.log(lengths[agent]) for agent in task.agents)
    error = math.hypot(short.std(), long.std()) / math.sqrt(len(short))
    assert abs(short.mean() - long.mean()) < 4 * error


def test_a_fresh_team_is_no_better_than_chance(policy):
    task = Partition()
    items = task.items("eval")[:40]
    prompts = [text for item in items for text in task.prompts(item, ()).values()]
    samples = policy.generate(prompts, 8, np.random.default_rng(1))
    rewards = [
        task.score(item, (), dict(zip(task.agents, texts, strict=True))).reward
        for index, item in enumerate(items)
        for texts in zip(*([one.text for one in many] for many in samples[2 * index : 2 * index + 2]), strict=True)
    ]
    assert 0.05 < np.mean(rewards) < task.figures["random"] + 0.08


def test_the_corpus_is_the_same_for_the_same_seed():
    first, again, other = (list(islice(documents(seed), 200)) for seed in (4, 4, 5))
    assert first == again
    assert first != other


def test_every_source_gives_text_that_ends_without_blanks():
    for source in SOURCES:
        for document in source.draw(np.random.default_rng(0)):
            assert document.answer.rstrip() == document.answer != ""
    assert sum(map(len, paragraphs())) > 100_000


def test_documents_of_tasks_are_those_of_the_training_split():
    task = Partition(num_items=16)
    keys = {prompt for item in task.items("train") for prompt in task.prompts(item, ()).values()}
    draw, rng = answers(task), np.random.default_rng(0)
    assert all(document.prompt in keys for _ in range(50) for document in draw(rng))
