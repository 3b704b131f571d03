"""Several texts per agent as joint candidates, and what becomes of each of them in an episode."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec

from comlrl_env.errors import ActionError, RewardError
from comlrl_env.shared_reward import read_number
from comlrl_env.types import Score, Status

Candidates = Mapping[str, Sequence[str]]
ScoreFunction = Callable[[Mapping[str, str], Sequence[Mapping[str, str]]], Sequence[float]]


class Candidate(msgspec.Struct):
    """One candidate's episode so far: its texts, and its raw and processed returns, NaN once a score failed.

    ``score`` and ``turn_reward`` (processed) are of the latest turn, None and NaN where the candidate's episode was
    over before it.
    """

    texts: tuple[str, ...] = ()
    raw: float = 0.0
    processed: float = 0.0
    status: Status = "ok"
    score: Score | None = None
    turn_reward: float = math.nan

    def add_turn(
        self, score: Score | None, texts: tuple[str, ...], process: Callable[[float], float] | None = None
    ) -> None:
        """Note one more turn; ``process`` is the reward processor."""
        self.score = score
        self.turn_reward = math.nan
        if score is None:
            return
        if score.status == "ok":
            self.turn_reward = score.reward if process is None else process(score.reward)
        elif self.status == "ok":
            self.status = score.status
        self.texts += texts
        self.raw += score.reward
        self.processed += self.turn_reward


def joint_responses(candidates: Candidates, agents: Sequence[str]) -> list[dict[str, str]]:
    """Per-agent lists of texts as a list of joint responses; ActionError when they do not fit together."""
    if not isinstance(candidates, Mapping) or set(candidates) != set(agents):
        actual = sorted(candidates) if isinstance(candidates, Mapping) else type(candidates).__name__
        raise ActionError(f"candidates: expected a list of texts for each of {list(agents)}, actually {actual}")
    for agent in agents:
        texts = candidates[agent]
        if isinstance(texts, str) or not isinstance(texts, Sequence):
            raise ActionError(
                f"candidates of {agent!r}: expected a list of texts, actually {type(texts).__name__}: one joint "
                "response is a list of one text per agent"
            )
        for number, text in enumerate(texts):
            if not isinstance(text, str):
                raise ActionError(f"candidates of {agent!r}: expected text {number} to be a str, actually {text!r}")
    counts = {agent: len(candidates[agent]) for agent in agents}
    if len(set(counts.values())) != 1 or 0 in counts.values():
        raise ActionError(f"candidates: expected the same number of texts (at least 1) per agent, actually {counts}")
    rows = zip(*(candidates[agent] for agent in agents), strict=True)
    return [dict(zip(agents, row, strict=True)) for row in rows]


def given_scores(
    score: ScoreFunction, prompts: Mapping[str, str], joint: Sequence[Mapping[str, str]]
) -> list[Score | None]:
    """Ask a score function about joint responses to one item; NaN from it is a failed score.

    Raises RewardError for a wrong number of scores, for infinite ones and for what is no number.
    """
    given = score(prompts, joint)
    if not isinstance(given, Iterable):
        raise RewardError(
            f"score=: expected a list with one number per candidate ({len(joint)}), actually {given!r:.80}, which is "
            "no list; return e.g. [0.5] for one candidate"
        )
    values = list(given)
    numbers = [read_number(value) for value in values]
    if len(values) != len(joint):
        raise RewardError(
            f"score=: expected a list with one number per candidate ({len(joint)}), actually {len(values)} of them"
        )
    failed = Score.failed("error", "the score function gave NaN")
    scores: list[Score | None] = []
    for index, number in enumerate(numbers):
        if number is None or math.isinf(number):
            wrong = values[index]
            raise RewardError(f"score=: expected a finite number or NaN for candidate {index}, actually {wrong!r:.80}")
        scores.append(failed if math.isnan(number) else Score(reward=number))
    return scores
