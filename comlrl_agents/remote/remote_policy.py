"""RemotePolicy: a model behind an HTTP interface answers prompts, as comparator or as agent in evaluation."""

import json
from collections.abc import Sequence
from typing import Any

import numpy as np

from comlrl_agents.remote.answer_cache import AnswerCache
from comlrl_agents.remote.endpoint import Endpoint
from comlrl_agents.remote.formats import (
    Answer,
    Question,
    UnreadableError,
    read_answers,
    request_body,
    request_sizes,
)
from comlrl_agents.remote.transport import Reply, Transport
from comlrl_agents.types import Generation, Prompt, Sampling


class RemotePolicy:
    """Answers prompts over HTTP.

    An answer that cannot be had is left out: ``generate`` then gives fewer answers than asked, ``last_failure`` says
    why, and ``take_counts`` how many requests, retries and failures there were.

    Raises:
        ConfigError: the key or a header cannot be sent.

    """

    takes_items = True

    def __init__(
        self,
        endpoint: Endpoint,
        *,
        agent_idx: int = 0,
        sampling: Sampling | None = None,
        transport: Transport | None = None,
    ) -> None:
        self.endpoint = endpoint
        self.agent_idx = agent_idx
        self.sampling = Sampling() if sampling is None else sampling
        self.last_failure = ""
        self._counts = {"requests": 0, "retries": 0, "cached": 0}
        self._transport = Transport(endpoint) if transport is None else transport
        folder = endpoint.cache_folder
        self._cache = None if folder is None else AnswerCache(folder)

    @property
    def uses_chat(self) -> bool:
        """Whether it takes prompts as messages; the generic format takes text."""
        return self.endpoint.format != "generic"

    def generate(
        self,
        prompts: Sequence[Prompt],
        n: int = 1,
        rng: np.random.Generator | None = None,
        sampling: Sampling | None = None,
        items: Sequence[Any] | None = None,
    ) -> list[list[Generation]]:
        """At most ``n`` answers per prompt, in the order of the prompts.

        ``rng``: one number is drawn from it per call; it tells the cache which draw this is. ``items``: the data of the
        prompts' items, which the generic format sends along. The server's own randomness is not ours to seed.
        """
        draw = 0 if rng is None else int(rng.integers(2**63 - 1))
        sampling = self.sampling if sampling is None else sampling
        items = [None] * len(prompts) if items is None else items
        sizes = request_sizes(self.endpoint, n)
        asked: list[tuple[int, int]] = []  # (prompt, answers) of each request
        bodies: list[bytes] = []
        for number, (prompt, item) in enumerate(zip(prompts, items, strict=True)):
            question = Question(prompt, sampling, self.agent_idx, item)
            for size in sizes:
                asked.append((number, size))
                bodies.append(_encoded(request_body(self.endpoint, question, size)))
        groups: list[list[Generation]] = [[] for _ in prompts]
        for (number, size), reply in zip(asked, self._replies(bodies, draw), strict=True):
            groups[number] += [Generation(a.text, (), a.finished) for a in self._answers(reply, size)]
        return groups

    def take_counts(self) -> dict[str, int]:
        """Requests sent, retries among them, and answers from the cache, since the last call."""
        counts, self._counts = self._counts, dict.fromkeys(self._counts, 0)
        return counts

    def close(self) -> None:
        """Close the connections; the next call opens them again."""
        self._transport.close()

    def _replies(self, bodies: Sequence[bytes], draw: int) -> list[Reply]:
        replies: list[Reply | None] = [None] * len(bodies)
        places = []
        if self._cache is not None:
            target = self.endpoint.target
            places = [self._cache.place(target, body, draw, number) for number, body in enumerate(bodies)]
            for number, path in enumerate(places):
                payload = self._cache.read(path)
                if payload is not None:
                    replies[number] = Reply(payload)
                    self._counts["cached"] += 1
        missing = [number for number, reply in enumerate(replies) if reply is None]
        if missing:
            for number, reply in zip(missing, self._transport.post_all([bodies[i] for i in missing]), strict=True):
                replies[number] = reply
                self._counts["requests"] += reply.attempts
                self._counts["retries"] += reply.attempts - 1
                if self._cache is not None and not reply.failure and self._answers(reply, 1):
                    self._cache.write(places[number], reply.payload)
        return [reply for reply in replies if reply is not None]

    def _answers(self, reply: Reply, size: int) -> list[Answer]:
        if reply.failure:
            self._note(reply.failure)
            return []
        try:
            answers = read_answers(self.endpoint, reply.payload)
        except UnreadableError as error:
            self._note(str(error))
            return []
        texts = [answer for answer in answers if answer is not None][:size]
        if len(texts) < size:
            self._note(f"{len(texts)} answers with text instead of {size}")
        return texts

    def _note(self, failure: str) -> None:
        self.last_failure = f"{self.endpoint.shown}: {self._transport.scrubbed(failure)}"


def remote_team(endpoint: Endpoint, num_agents: int, sampling: Sampling) -> list[RemotePolicy]:
    """One policy per agent at one endpoint, over one client."""
    transport = Transport(endpoint)
    return [
        RemotePolicy(endpoint, agent_idx=agent, sampling=sampling, transport=transport) for agent in range(num_agents)
    ]


def _encoded(body: dict[str, Any]) -> bytes:
    """JSON; data of an item that JSON does not know is sent as its text, a lone surrogate as its escape."""
    return json.dumps(body, default=str).encode()
