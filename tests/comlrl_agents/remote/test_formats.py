"""What is sent and read, by hand and against the types of the official packages."""

import pytest

from comlrl_agents.remote.endpoint import Endpoint
from comlrl_agents.remote.formats import (
    Answer,
    Question,
    UnreadableError,
    read_answers,
    request_body,
    request_sizes,
)
from comlrl_agents.types import Sampling
from comlrl_env.errors import ConfigError

SAMPLING = Sampling(max_new_tokens=9, temperature=0.7, top_p=0.8, top_k=5)
CHAT = [{"role": "system", "content": "be brief"}, {"role": "user", "content": "hello"}]


def endpoint(kind="generic", **fields):
    return Endpoint(**{"url": "http://localhost:1/v1", "format": kind, "model": "m", **fields})


def body(kind, prompt="hello", n=3, **fields):
    return request_body(endpoint(kind, **fields), Question(prompt, SAMPLING, 1, {"id": 4}), n)


@pytest.mark.parametrize(
    ("kind", "fields", "sizes"),
    [
        ("generic", {}, [5]),
        ("openai", {}, [5]),
        ("openai", {"max_n_per_request": 2}, [2, 2, 1]),
        ("openai", {"max_n_per_request": 5}, [5]),
        ("openai", {"max_n_per_request": 9}, [5]),
        ("openai", {"url": "https://api.deepseek.com/v1"}, [1] * 5),
        ("anthropic", {}, [1] * 5),
        ("openai_responses", {}, [1] * 5),
    ],
)
def test_number_of_requests(kind, fields, sizes):
    assert request_sizes(endpoint(kind, **fields), 5) == sizes


def test_bodies_by_hand():
    assert body("generic") == {
        "prompt": "hello", "agent_idx": 1, "num_return_sequences": 3, "max_new_tokens": 9, "temperature": 0.7,
        "top_p": 0.8, "top_k": 5, "batch_item": {"id": 4}, "model": "m",
    }  # fmt: skip
    assert "model" not in body("generic", model=None)
    assert body("openai") == {
        "model": "m", "messages": [{"role": "user", "content": "hello"}], "n": 3, "max_tokens": 9, "temperature": 0.7,
        "top_p": 0.8,
    }  # fmt: skip
    assert body("openai", url="https://api.openai.com/v1")["max_completion_tokens"] == 9
    assert body("anthropic", CHAT) == {
        "model": "m", "max_tokens": 9, "messages": [CHAT[1]], "system": "be brief", "temperature": 0.7, "top_p": 0.8,
        "top_k": 5,
    }  # fmt: skip
    assert body("openai_responses") == {
        "model": "m", "input": "hello", "max_output_tokens": 9, "temperature": 0.7, "top_p": 0.8,
    }  # fmt: skip
    assert body("openai_responses", CHAT)["input"] == CHAT


def test_extra_body_is_merged_last_and_takes_away():
    sent = body("openai", extra_body={"temperature": 1, "top_p": None, "seed": 3})
    assert (sent["temperature"], sent["seed"], "top_p" in sent) == (1, 3, False)


@pytest.mark.parametrize(
    ("payload", "texts"),
    [
        ({"completions": ["a", "b"]}, ["a", "b"]),
        (
            {"responses": [{"text": "a"}, {"content": "b"}, {"completion": "c"}, {"response": "d"}]},
            ["a", "b", "c", "d"],
        ),
        ({"outputs": [{"message": {"content": "a"}}, {"message": {}}, 7]}, ["a", None, None]),
        ({"choices": "one"}, ["one"]),
        (["a"], ["a"]),
        ({"completions": []}, []),
    ],
)
def test_generic_answers(payload, texts):
    assert [a and a.text for a in read_answers(endpoint(), payload)] == texts


def test_generic_answers_at_a_dotted_place():
    payload = {"data": [{"texts": ["a"]}], "completions": ["wrong"]}
    assert read_answers(endpoint(response_field="data.0.texts"), payload) == [Answer("a")]


@pytest.mark.parametrize("kind", ["generic", "openai", "anthropic", "openai_responses"])
@pytest.mark.parametrize("payload", [None, 7, "text", {}, {"choices": 3, "content": 3, "output": 3}, {"error": {}}])
def test_other_shapes_are_unreadable(kind, payload):
    with pytest.raises(UnreadableError, match="expected a"):
        read_answers(endpoint(kind), payload)


def test_a_cut_answer_has_not_finished_and_one_without_text_is_none():
    choices = [
        {"message": {"content": "a"}, "finish_reason": "length"},
        {"message": {"content": None}},
        {"text": "b"},
        {"message": {"content": [{"type": "text", "text": "c"}, {"type": "text", "text": "d"}]}},
        5,
        {"message": {"content": ""}},
    ]
    read = read_answers(endpoint("openai"), {"choices": choices})
    assert read == [Answer("a", False), None, Answer("b"), Answer("cd"), None, Answer("")]


def test_urls():
    assert endpoint("openai").target == "http://localhost:1/v1/chat/completions"
    assert endpoint("openai", url="http://localhost:1").target == "http://localhost:1/v1/chat/completions"
    assert endpoint("anthropic", url="https://h/v1/").target == "https://h/v1/messages"
    assert endpoint("openai_responses", url="https://h/v1/responses").target == "https://h/v1/responses"
    assert endpoint("openai", url="https://h/my/proxy?v=1").target == "https://h/my/proxy?v=1"
    assert endpoint("generic", url="http://h/generate").target == "http://h/generate"
    for bad in ("localhost:8000", "ftp://h", "http://", "http://me:pass@h/v1", "http://h/?api_key=x"):
        with pytest.raises(ConfigError, match="comparator_api_url") as error:
            endpoint(url=bad)
        assert "pass" not in str(error.value).replace("password", "")


def test_headers(monkeypatch):
    monkeypatch.setenv("MY_KEY", "sk-from-env\n")
    assert endpoint(key="sk-12345678").request_headers()["authorization"] == "Bearer sk-12345678"
    both = endpoint("anthropic", key="sk-12345678", key_env="MY_KEY").request_headers()
    assert (both["x-api-key"], both["anthropic-version"]) == ("sk-from-env", "2023-06-01")
    assert "authorization" not in both
    own = endpoint(key="sk-12345678", key_header="X-Key", key_prefix=None, headers={"X-Team": "a b"}).request_headers()
    assert (own["x-key"], own["x-team"]) == ("sk-12345678", "a b")
    for bad in (endpoint(key="two words here"), endpoint(key="sk-\nX: y"), endpoint(headers={"A": "sk\r\nB: c"})):
        with pytest.raises(ConfigError) as error:
            bad.request_headers()
        assert "sk" not in str(error.value)
        assert "two" not in str(error.value)
    with pytest.raises(ConfigError, match="the environment variable NOT_THERE is not set"):
        endpoint(key_env="NOT_THERE").request_headers()


# ------------------------------------------------------------------ the official packages' types


def valid(body, typed):
    """The body keeps the package's type, and has no field that the type does not know."""
    pydantic = pytest.importorskip("pydantic")
    assert set(body) <= set(typed.__annotations__)
    pydantic.TypeAdapter(typed).validate_python(body)


@pytest.mark.parametrize("prompt", ["hello", CHAT])
def test_request_bodies_are_those_of_the_official_clients(prompt):
    openai_chat = pytest.importorskip("openai.types.chat.completion_create_params")
    valid(body("openai", prompt), openai_chat.CompletionCreateParamsNonStreaming)
    responses = pytest.importorskip("openai.types.responses.response_create_params")
    valid(body("openai_responses", prompt), responses.ResponseCreateParamsNonStreaming)
    anthropic = pytest.importorskip("anthropic.types.message_create_params")
    # The package's second major version has no sampling fields any more; servers that refuse them are served with
    # comparator_api_extra_body={"temperature": None, "top_p": None, "top_k": None}, which takes them away.
    typed = anthropic.MessageCreateParamsNonStreaming
    dropped = {"temperature", "top_p", "top_k"} - set(typed.__annotations__)
    valid(body("anthropic", prompt, extra_body=dict.fromkeys(dropped)), typed)
    assert set(body("anthropic", prompt)) - set(typed.__annotations__) == dropped


def test_chat_completions_of_the_official_type_are_read():
    chat = pytest.importorskip("openai.types.chat.chat_completion")
    message = {"role": "assistant", "content": "hi", "refusal": None}
    choices = [
        {"index": k, "finish_reason": reason, "message": message, "logprobs": None}
        for k, reason in enumerate(("stop", "length"))
    ]
    official = chat.ChatCompletion.model_validate(
        {"id": "1", "object": "chat.completion", "created": 1, "model": "m", "choices": choices}
    )
    assert read_answers(endpoint("openai"), official.model_dump()) == [Answer("hi"), Answer("hi", False)]


def test_messages_of_the_official_type_are_read():
    types = pytest.importorskip("anthropic.types")
    official = types.Message.model_validate({
        "id": "1", "type": "message", "role": "assistant", "model": "m", "stop_reason": "max_tokens",
        "stop_sequence": None, "usage": {"input_tokens": 1, "output_tokens": 2},
        "content": [
            {"type": "thinking", "thinking": "hm", "signature": "s"}, {"type": "text", "text": "a", "citations": None},
            {"type": "text", "text": "b", "citations": None},
        ],
    })  # fmt: skip
    assert read_answers(endpoint("anthropic"), official.model_dump()) == [Answer("ab", False)]


@pytest.mark.parametrize(("status", "finished"), [("completed", True), ("incomplete", False)])
def test_responses_of_the_official_type_are_read(status, finished):
    responses = pytest.importorskip("openai.types.responses")
    official = responses.Response.model_validate({
        "id": "1", "object": "response", "created_at": 1, "model": "m", "status": status, "parallel_tool_calls": False,
        "tool_choice": "auto", "tools": [],
        "output": [
            {"type": "reasoning", "id": "r", "summary": [{"type": "summary_text", "text": "not this"}]},
            {
                "type": "message", "id": "m", "role": "assistant", "status": status,
                "content": [
                    {"type": "output_text", "text": "a", "annotations": []},
                    {"type": "refusal", "refusal": "no"},
                    {"type": "output_text", "text": "b", "annotations": []},
                ],
            },
        ],
    })  # fmt: skip
    assert official.output_text == "ab"
    assert read_answers(endpoint("openai_responses"), official.model_dump()) == [Answer("ab", finished)]
