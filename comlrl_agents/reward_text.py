"""A joint response as one text for the reward model, and as tokens that fit into a limit.

A title, then for each agent its prompt under "Agent i prompt:" and its response under "Agent i response:", counted
from 1, with blank lines between the blocks. Each block is tokenised on its own, so that the tokens before the first
response are the same for all responses to an item.
"""

from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

from comlrl_agents.model_source import context_length
from comlrl_agents.scored_states import Row
from comlrl_agents.tokens import opening_ids, valid
from comlrl_env.errors import ConfigError

TITLE = "A task and what a team answered"

Joint: TypeAlias = tuple[Sequence[str], Sequence[str]]
"""The prompts and the responses of all agents."""


def joint_text(prompts: Sequence[str], responses: Sequence[str]) -> str:
    """The whole text, as a person may read it."""
    return "".join(_blocks(prompts, responses))


def encode_joint(tokenizer: Any, texts: Sequence[Joint], max_length: int | None = None) -> list[Row]:
    """Token rows of joint responses: the part before the first response, and the rest.

    With ``max_length`` the prompts are cut first, the longest first, so that all agents' end up equally short; each
    keeps its end. Only when no prompt is left are the responses cut in the same way; each keeps its beginning.

    Raises ConfigError when not even the headings and one token of each response fit.
    """
    blocks = [_blocks(prompts, responses) for prompts, responses in texts]
    ids = _encode_all(tokenizer, (block for text in blocks for block in text))
    opening = tuple(opening_ids(tokenizer))
    return [_row(opening, [ids[block] for block in text], max_length) for text in blocks]


def text_room(config: Any, max_length: int | None) -> int | None:
    """How many tokens a text may have: ``max_length``, or what fits into the context of the model with ``config``.

    Raises ConfigError when ``max_length`` is no number of tokens or more than fit.
    """
    context = context_length(config)
    if max_length is None:
        return context
    if type(max_length) is not int or max_length < 1 or (context is not None and max_length > context):
        raise ConfigError(
            f"reward_max_length: must be None or a number of tokens from 1 to the context of the model "
            f"({'not limited' if context is None else context}), actually {max_length!r}; lower it, or leave it out"
        )
    return max_length


def encode_plan(tokenizer: Any, texts: Sequence[Joint]) -> list[Row]:
    """Token rows for a critic of the whole team: all prompts first, then the responses, if there are any."""
    asked = [_listed(prompts, "prompt") for prompts, _ in texts]
    said = [_listed(responses, "response") for _, responses in texts]
    ids = _encode_all(tokenizer, (*asked, *said))
    opening = tuple(opening_ids(tokenizer))
    return [(opening + ids[before] or (0,), ids[behind]) for before, behind in zip(asked, said, strict=True)]


def _listed(texts: Sequence[str], what: str) -> str:
    blocks = (f"Agent {number} {what}:\n{text}\n\n" for number, text in enumerate(texts, start=1))
    return "".join(blocks)


def _blocks(prompts: Sequence[str], responses: Sequence[str]) -> list[str]:
    """heading, prompt, heading, response, … of all agents; together they are the text."""
    blocks = []
    for number, (prompt, response) in enumerate(zip(prompts, responses, strict=True), start=1):
        before = f"{TITLE}\n\n" if number == 1 else "\n\n"
        blocks += [f"{before}Agent {number} prompt:\n", prompt, f"\n\nAgent {number} response:\n", response]
    return blocks


def _encode_all(tokenizer: Any, texts: Iterable[str]) -> dict[str, tuple[int, ...]]:
    distinct = list(dict.fromkeys(texts))
    # What an answer spells out, such as "<eos>", is text and not the token of that name.
    written = {"add_special_tokens": False, "split_special_tokens": True}
    rows = tokenizer([valid(text) for text in distinct], **written)["input_ids"] if distinct else []
    return {text: tuple(row) for text, row in zip(distinct, rows, strict=True)}


def _row(opening: tuple[int, ...], blocks: list[tuple[int, ...]], max_length: int | None) -> Row:
    if max_length is not None:
        blocks = _shortened(blocks, max_length - len(opening))
    beginning = opening + tuple(token for block in blocks[:3] for token in block)
    rest = tuple(token for block in blocks[3:] for token in block)
    # Without any token in front (no BOS, nothing that the tokenizer knows) the text begins with what there is.
    return (beginning, rest) if beginning else (rest[:1] or (0,), rest[1:])


def _shortened(blocks: list[tuple[int, ...]], room: int) -> list[tuple[int, ...]]:
    headings, prompts, responses = blocks[0::4] + blocks[2::4], blocks[1::4], blocks[3::4]
    room -= sum(map(len, headings))
    if room < len(responses):
        raise ConfigError(
            f"reward_max_length: must leave a token for each of {len(responses)} responses, actually {room} are left "
            "behind the headings; raise it"
        )
    longest = _even_limit([len(r) for r in responses], room)
    responses = [r[:longest] for r in responses]
    longest = _even_limit([len(p) for p in prompts], room - sum(map(len, responses)))
    prompts = [p[len(p) - min(longest, len(p)) :] for p in prompts]
    kept = list(blocks)
    kept[1::4], kept[3::4] = prompts, responses
    return kept


def _even_limit(lengths: Sequence[int], room: int) -> int:
    """The largest limit under which lengths cut to it fit into the room together."""
    limit = max(lengths, default=0)
    while sum(min(length, limit) for length in lengths) > room:
        limit -= 1
    return limit
