"""What is sent and how an answer is read, for each of the four formats; pure functions of plain data."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from comlrl_agents.remote.endpoint import Endpoint
from comlrl_agents.types import Prompt, Sampling

Body = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Question:
    """What one agent is asked about one item, and how the answer is drawn."""

    prompt: Prompt
    sampling: Sampling
    agent_idx: int = 0
    item: Any = None


@dataclass(frozen=True, slots=True)
class Answer:
    """One text; ``finished`` is False when the server says that a limit cut it."""

    text: str
    finished: bool = True


class UnreadableError(Exception):
    """An answer of another shape; the text says what was expected."""


def request_sizes(endpoint: Endpoint, n: int) -> list[int]:
    """How many answers each request for ``n`` answers asks for (the table of ALGORITHMS 6)."""
    if endpoint.format == "generic":
        return [n]
    if endpoint.format == "openai" and "deepseek" not in endpoint.host:
        most = min(n, endpoint.max_n_per_request or n)
        return [most] * (n // most) + ([n % most] if n % most else [])
    return [1] * n


def request_body(endpoint: Endpoint, question: Question, n: int) -> Body:
    """The body of one request; ``extra_body`` is merged last, and a None in it takes a field away."""
    body = _BODIES[endpoint.format](endpoint, question, n)
    for name, value in (endpoint.extra_body or {}).items():
        body[name] = value
        if value is None:
            del body[name]
    return body


def read_answers(endpoint: Endpoint, payload: Any) -> list[Answer | None]:
    """The answers of a parsed response, None for one without text.

    Raises:
        UnreadableError: there is no list of answers where the format has one.

    """
    if endpoint.format == "generic":
        return [_item_answer(item) for item in _generic_items(payload, endpoint.response_field)]
    if not isinstance(payload, Mapping):
        raise UnreadableError(f"expected a JSON object, actually {_kind(payload)}")
    if endpoint.format == "openai":
        return [_choice(choice) for choice in _list(payload, "choices")]
    if endpoint.format == "anthropic":
        text = _joined(_list(payload, "content"), "text")
        return [None if text is None else Answer(text, payload.get("stop_reason") != "max_tokens")]
    parts: list[Any] = []
    for output in _list(payload, "output"):
        content = output.get("content") if isinstance(output, Mapping) else None
        parts += content if isinstance(content, list) else []
    text = _joined(parts, "output_text")
    return [None if text is None else Answer(text, payload.get("status") != "incomplete")]


# ------------------------------------------------------------------ what is sent


def _generic(endpoint: Endpoint, question: Question, n: int) -> Body:
    sampling = question.sampling
    body: Body = {
        "prompt": question.prompt,
        "agent_idx": question.agent_idx,
        "num_return_sequences": n,
        "max_new_tokens": sampling.max_new_tokens,
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "top_k": sampling.top_k,
        "batch_item": question.item,
    }
    return body if endpoint.model is None else {**body, "model": endpoint.model}


def _openai(endpoint: Endpoint, question: Question, n: int) -> Body:
    # OpenAI's own newer models refuse the older name, which every other server knows.
    limit = "max_completion_tokens" if endpoint.host == "api.openai.com" else "max_tokens"
    return {
        "model": endpoint.model,
        "messages": _messages(question.prompt),
        "n": n,
        limit: question.sampling.max_new_tokens,
        "temperature": question.sampling.temperature,
        "top_p": question.sampling.top_p,
    }


def _anthropic(endpoint: Endpoint, question: Question, n: int) -> Body:
    messages = _messages(question.prompt)
    system = "\n\n".join(m["content"] for m in messages if m["role"] == "system")
    body: Body = {
        "model": endpoint.model,
        "max_tokens": question.sampling.max_new_tokens,
        "messages": [m for m in messages if m["role"] != "system"],
        "temperature": question.sampling.temperature,
        "top_p": question.sampling.top_p,
    }
    if question.sampling.top_k is not None:
        body["top_k"] = question.sampling.top_k
    return {**body, "system": system} if system else body


def _responses(endpoint: Endpoint, question: Question, n: int) -> Body:
    return {
        "model": endpoint.model,
        "input": question.prompt if isinstance(question.prompt, str) else _messages(question.prompt),
        "max_output_tokens": question.sampling.max_new_tokens,
        "temperature": question.sampling.temperature,
        "top_p": question.sampling.top_p,
    }


_BODIES: dict[str, Callable[[Endpoint, Question, int], Body]] = {
    "generic": _generic,
    "openai": _openai,
    "anthropic": _anthropic,
    "openai_responses": _responses,
}


def _messages(prompt: Prompt) -> list[dict[str, str]]:
    if isinstance(prompt, str):
        return [{"role": "user", "content": prompt}]
    return [{"role": message["role"], "content": message["content"]} for message in prompt]


# ------------------------------------------------------------------ what comes back


def _choice(choice: Any) -> Answer | None:
    if not isinstance(choice, Mapping):
        return None
    message = choice.get("message")
    content = message.get("content") if isinstance(message, Mapping) else None
    if isinstance(content, list):
        content = _joined(content, "text")
    text = content if content is not None else choice.get("text")
    return Answer(text, choice.get("finish_reason") != "length") if isinstance(text, str) else None


def _joined(parts: Sequence[Any], kind: str) -> str | None:
    """The texts of all parts of one type; None when there is none."""
    texts = [
        part["text"]
        for part in parts
        if isinstance(part, Mapping) and part.get("type") == kind and isinstance(part.get("text"), str)
    ]
    return "".join(texts) if texts else None


def _generic_items(payload: Any, field: str) -> Sequence[Any]:
    for place in (field, "completions", "responses", "outputs", "choices"):
        found = payload
        for name in place.split("."):
            if isinstance(found, Mapping):
                found = found.get(name)
            elif isinstance(found, list) and name.isdecimal() and int(name) < len(found):
                found = found[int(name)]
            else:
                found = None
        if isinstance(found, str | list):
            return [found] if isinstance(found, str) else found
    if isinstance(payload, list):
        return payload
    raise UnreadableError(f"expected a list of texts under {field!r}, completions, responses, outputs or choices")


def _item_answer(item: Any) -> Answer | None:
    if isinstance(item, str):
        return Answer(item)
    if not isinstance(item, Mapping):
        return None
    message = item.get("message")
    candidates = [item.get(name) for name in ("text", "content", "completion", "response")]
    candidates.append(message.get("content") if isinstance(message, Mapping) else None)
    text = next((candidate for candidate in candidates if isinstance(candidate, str)), None)
    return None if text is None else Answer(text, item.get("finish_reason") != "length")


def _list(payload: Mapping[str, Any], name: str) -> list[Any]:
    found = payload.get(name)
    if not isinstance(found, list):
        raise UnreadableError(f"expected a list under {name!r}, actually {_kind(found)}")
    return found


def _kind(value: Any) -> str:
    return "nothing" if value is None else f"{type(value).__name__} {value!r:.60}"
