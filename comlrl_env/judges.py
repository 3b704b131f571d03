"""A judge model as an oracle: a prompt about the joint response goes out, a number is read from the answer."""

import math
from collections.abc import Callable

from comlrl_env.errors import TaskError
from comlrl_env.scoring import failure
from comlrl_env.task import History, JointResponse
from comlrl_env.types import Item, Score


def judge_reward(
    ask: Callable[[str], str], template: str, parse: Callable[[str], float]
) -> Callable[[Item, History, JointResponse], Score]:
    """Return a scorer, to be called in ``Task.score``, that asks a judge model.

    ``ask``: sends a prompt to the model and returns its answer. ``template``: the prompt with ``{name}`` fields, which
    are the item's data, the agents' names (their responses) and ``{responses}`` (all responses, each under its
    agent's name). ``parse``: reads the reward out of the answer.

    A judge that cannot be asked, or whose answer ``parse`` does not turn into a finite number, makes a failed score
    (``"timeout"`` for TimeoutError). The scorer raises TaskError when the template names an unknown field.
    """

    def score(item: Item, history: History, responses: JointResponse) -> Score:
        everything = "\n\n".join(f"{agent}:\n{text}" for agent, text in responses.items())
        fields = {**item.data, **responses, "responses": everything}
        try:
            prompt = template.format(**fields)
        except (KeyError, IndexError, AttributeError) as error:
            raise TaskError(
                f"judge template: expected fields among {sorted(fields)}, actually {error} for item {item.key!r}"
            ) from error
        try:
            answer = ask(prompt)
            reward = float(parse(answer))
        except Exception as error:  # noqa: BLE001 - the judge's trouble is data
            return failure(error)
        if not math.isfinite(reward):
            return Score.failed("error", f"the judge's answer gives no finite number: {answer!r:.500}")
        return Score(reward=reward, parts={"judge": reward})

    return score
