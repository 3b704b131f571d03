"""Servers that nobody here wrote, on loopback: llm-katan for two formats, ``transformers serve`` for one."""

import contextlib
import importlib.util
import os
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest

from comlrl_agents.remote import Endpoint, RemotePolicy
from comlrl_agents.types import Sampling

TINY = Path(__file__).parents[3] / "comlrl_agents" / "tiny"


@contextlib.contextmanager
def running(tmp_path, *command, ready):
    """A server process on a free port; ``{port}`` in the command."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    log = (tmp_path / "server.log").open("w+")
    process = subprocess.Popen(
        [sys.executable, *(part.format(port=port) for part in command)],
        stdout=log,
        stderr=log,
        env={**os.environ, "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1", "HOME": str(tmp_path)},
    )
    try:
        deadline = time.monotonic() + 180
        while True:
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{port}{ready}", timeout=5).close()
                break
            except OSError:
                log.seek(0)
                assert process.poll() is None, log.read()
                assert time.monotonic() < deadline, log.read()
                time.sleep(0.2)
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        process.kill()
        process.wait()
        log.close()


@pytest.mark.slow
def test_llm_katan_answers_both_formats(tmp_path):
    if importlib.util.find_spec("llm_katan") is None:
        pytest.skip("llm-katan is not installed")
    command = [
        "-m", "llm_katan.cli", "--model", "m", "--backend", "echo", "--host", "127.0.0.1", "--port", "{port}",
        "--providers", "openai,anthropic", "--validate-keys", "--api-keys", "openai=sk-12345678,anthropic=ant-12345678",
        "--stats-file", str(tmp_path / "stats.json"), "--max-concurrent", "4",
    ]  # fmt: skip
    with running(tmp_path, *command, ready="/health") as url:
        for kind, key in (("openai", "sk-12345678"), ("anthropic", "ant-12345678")):
            for right in (True, False):
                endpoint = Endpoint(url, kind, "m", key=key if right else "sk-wrong-0000", timeout=30, max_retries=0,
                                    max_n_per_request=1 if kind == "openai" else None)  # fmt: skip
                policy = RemotePolicy(endpoint, sampling=Sampling(8))
                groups = policy.generate(["hello there"], 2)
                policy.close()
                assert [len(group) for group in groups] == [2 if right else 0], policy.last_failure
                if right:
                    assert all(answer.text for answer in groups[0])
                else:
                    assert "HTTP 401" in policy.last_failure


@pytest.mark.slow
def test_transformers_serve_answers_chat_completions(tmp_path):
    for package in ("fastapi", "uvicorn", "openai", "accelerate"):
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"`transformers serve` needs {package}")
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(TINY)
    tokenizer.chat_template = "{% for m in messages %}{{ m['content'] }} {% endfor %}"
    tokenizer.save_pretrained(tmp_path / "model")
    AutoModelForCausalLM.from_pretrained(TINY).save_pretrained(tmp_path / "model")
    name = str(tmp_path / "model")
    start = (
        "import sys; from transformers.cli.transformers import main; sys.argv = ['transformers', *sys.argv[1:]]; main()"
    )
    command = ["-c", start.replace("{", "{{").replace("}", "}}"), "serve", "--host", "127.0.0.1", "--port", "{port}"]
    with running(tmp_path, *command, "--device", "cpu", ready="/health") as url:
        # It makes one choice, whatever n says: fewer than asked, which is counted.
        policy = RemotePolicy(
            Endpoint(url, "openai", name, timeout=120, max_retries=0, max_n_per_request=1), sampling=Sampling(8)
        )
        groups = policy.generate(["Once upon a time", [{"role": "user", "content": "A goat"}]], 2)
        policy.close()
        assert [len(group) for group in groups] == [2, 2], policy.last_failure
        assert all(answer.text for group in groups for answer in group)
