"""A task made of three functions and a dataset, for users who move over from such an interface."""

import inspect
import math
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from typing import Any, overload

from comlrl_env.env import TextEnv
from comlrl_env.errors import TaskError
from comlrl_env.items import SPLITS, check_count, check_split
from comlrl_env.scoring import failure
from comlrl_env.shared_reward import read_number
from comlrl_env.task import History, JointResponse
from comlrl_env.types import Item, Score

Formatter = Callable[[dict[str, Any]], str]


class DatasetItems(Sequence[Item]):
    """The rows of a dataset as items; their keys are ``split/0``, ``split/1`` and so on."""

    def __init__(self, rows: Any, split: str) -> None:
        self.rows = rows
        self.split = split

    def __len__(self) -> int:
        return len(self.rows)

    @overload
    def __getitem__(self, index: int) -> Item: ...

    @overload
    def __getitem__(self, index: slice) -> list[Item]: ...

    def __getitem__(self, index: int | slice) -> Item | list[Item]:
        positions = range(len(self))[index]
        if isinstance(positions, range):
            return [self[i] for i in positions]
        return Item(key=f"{self.split}/{positions}", data=dict(self.rows[positions]))

    def __iter__(self) -> Iterator[Item]:
        return (self[index] for index in range(len(self)))

    def position(self, key: str) -> int | None:
        """Return the index of the item with this key, ``None`` when there is none."""
        tail = key.rpartition("/")[2]
        known = tail.isascii() and tail.isdigit() and key == f"{self.split}/{int(tail)}" and int(tail) < len(self)
        return int(tail) if known else None


class FunctionTask:
    """Prompts from formatters and scores from ``reward_func``; see :func:`from_functions`."""

    num_turns = 1

    def __init__(
        self,
        datasets: Mapping[str, Any],
        reward_func: Callable[..., Sequence[float]],
        formatters: Formatter | Sequence[Formatter],
        agents: Sequence[str],
    ) -> None:
        self.agents = tuple(agents)
        self._items = {split: DatasetItems(check_rows(rows, split), split) for split, rows in datasets.items()}
        if not callable(reward_func):
            raise TaskError(f"reward_func: expected a function, actually {reward_func!r:.80}")
        self._reward_func = reward_func
        self._takes_items = accepts(reward_func, "batch_items")
        several = isinstance(formatters, Sequence)
        self._formatters = list(formatters) if isinstance(formatters, Sequence) else [formatters] * len(self.agents)
        if len(self._formatters) != len(self.agents) or not all(map(callable, self._formatters)):
            given = [getattr(each, "__name__", repr(each)) for each in self._formatters] if several else formatters
            raise TaskError(
                f"formatters: expected one function for all or one for each of {list(self.agents)}, actually {given!r}"
            )

    def items(self, split: str) -> DatasetItems:
        """The rows of one dataset. Raises :class:`TaskError` for ``"eval"`` when no such dataset was given."""
        if check_split(split) not in self._items:
            raise TaskError(f"{split} items: expected {split}_dataset=…, actually none was given to from_functions")
        return self._items[split]

    def prompts(self, item: Item, history: History) -> dict[str, str]:
        """What each agent's formatter makes of the row. Raises :class:`TaskError` when that is no str."""
        prompts = {}
        for agent, formatter in zip(self.agents, self._formatters, strict=True):
            prompt = formatter(dict(item.data))
            if not isinstance(prompt, str):
                raise TaskError(f"formatter of {agent}: expected a str for item {item.key!r}, actually {prompt!r:.80}")
            prompts[agent] = prompt
        return prompts

    def score(self, item: Item, history: History, responses: JointResponse) -> Score:
        """The reward of one joint response, or a failed score with the reason."""
        return self._call(item, [responses])[0]

    def score_many(self, item: Item, history: History, joint_responses: Sequence[JointResponse]) -> list[Score]:
        """The rewards of several joint responses from one call.

        When that call raises, they are scored one by one, so that a bad answer does not spoil the others.
        """
        scores = self._call(item, joint_responses)
        if len(scores) > 1 and all(score.reason.startswith(_RAISED) for score in scores):
            return [self._call(item, [responses])[0] for responses in joint_responses]
        return scores

    def _call(self, item: Item, joint_responses: Sequence[JointResponse]) -> list[Score]:
        count = len(joint_responses)
        texts = [[responses[agent] for responses in joint_responses] for agent in self.agents]
        keywords = {"batch_items": [dict(item.data) for _ in range(count)]} if self._takes_items else {}
        try:
            values = self._reward_func(*texts, **keywords)
        # SystemExit too: a reward function that calls exit() must not end a training run.
        except (Exception, SystemExit) as error:  # noqa: BLE001
            return [failure(error, _RAISED)] * count
        if isinstance(values, str | bytes | Mapping | Set) or not hasattr(values, "__len__"):
            problem = f"returned {type(values).__name__} {values!r:.80}"
        elif len(values) != count:
            problem = f"returned {len(values)} rewards"
        else:
            return [as_score(value) for value in values]
        return [Score.failed("error", f"reward_func {problem} for {count} joint responses; expected a list")] * count


_RAISED = "reward_func raised "


def from_functions(
    train_dataset: Any,
    reward_func: Callable[..., Sequence[float]],
    formatters: Formatter | Sequence[Formatter],
    reward_processor: Callable[[float], Any] | None = None,
    *,
    eval_dataset: Any = None,
    agents: Sequence[str] | None = None,
    num_agents: int | None = None,
    split: str = "train",
    render_mode: str | None = None,
    oracle_workers: int = 0,
    oracle_timeout: float | None = None,
    oracle_cache: int = 0,
) -> TextEnv:
    """Make an environment from a dataset, a reward function and prompt formatters.

    Args:
        train_dataset: a sequence of mappings (a list of dicts, a ``datasets.Dataset``).
        reward_func: called as ``reward_func(texts of agent 0, texts of agent 1, …, batch_items=rows)`` with equally
            long lists (``batch_items`` only when it accepts that name); returns one number for each joint response. An
            exception, a wrong length, NaN or a value that is no number costs a score with status ``"error"``.
        formatters: ``row -> prompt``, one for all agents or a list with one for each.
        reward_processor: raw reward -> reward.
        eval_dataset: the rows of ``split="eval"``; the counterpart is ``TextEnv(env.task, split="eval")``.
        agents: the role names; default ``agent_0``, ``agent_1``, …
        num_agents: how many; default the number of formatters or of role names, and 2 with one formatter for all.
        split, render_mode, oracle_workers, oracle_timeout, oracle_cache: see :class:`TextEnv`.

    Raises:
        TaskError: a dataset is empty or no sequence of mappings, or the numbers of agents do not agree.

    """
    datasets = {"train": train_dataset} | ({} if eval_dataset is None else {"eval": eval_dataset})
    task = FunctionTask(datasets, reward_func, formatters, agent_names(formatters, agents, num_agents))
    return TextEnv(
        task,
        split,
        reward_processor=reward_processor,
        render_mode=render_mode,
        oracle_workers=oracle_workers,
        oracle_timeout=oracle_timeout,
        oracle_cache=oracle_cache,
    )


def agent_names(formatters: Any, agents: Sequence[str] | None, num_agents: int | None) -> tuple[str, ...]:
    """Return the role names; raise :class:`TaskError` when names and number do not agree."""
    if agents is not None:
        if isinstance(agents, str) or not all(isinstance(agent, str) for agent in agents):
            raise TaskError(f"agents: expected a sequence of role names, actually {agents!r}")
        if num_agents is not None and num_agents != len(agents):
            raise TaskError(f"num_agents: expected {len(agents)} as in agents={list(agents)}, actually {num_agents}")
        return tuple(agents)
    if num_agents is None:
        num_agents = len(formatters) if isinstance(formatters, Sequence) else 2
    return tuple(f"agent_{i}" for i in range(check_count("num_agents", num_agents, 1)))


def check_rows(rows: Any, split: str) -> Any:
    """Return the dataset; raise :class:`TaskError` unless it is a sequence of mappings with at least one row."""
    rule = f"{split}_dataset: expected a sequence of mappings (a list of dicts, a datasets.Dataset)"
    if split not in SPLITS:
        raise TaskError(f"datasets: expected the names {SPLITS}, actually {split!r}")
    sized = hasattr(rows, "__len__") and hasattr(rows, "__getitem__")
    if not sized or isinstance(rows, str | bytes | Mapping):
        raise TaskError(f"{rule}, actually {type(rows).__name__}; list(…) turns an iterable into one")
    if len(rows) == 0:
        raise TaskError(f"{rule} with at least one row, actually an empty {type(rows).__name__}")
    # A list costs nothing to look through; another kind of dataset may read every row from disk.
    for index in range(len(rows)) if isinstance(rows, list | tuple) else (0,):
        try:
            row = rows[index]
        except (KeyError, IndexError, TypeError) as error:
            raise TaskError(f"{rule}, but row {index} of {type(rows).__name__} raises {error!r}") from error
        if not isinstance(row, Mapping):
            raise TaskError(f"{rule}, actually row {index} is {type(row).__name__} {row!r:.80}")
    return rows


def accepts(function: Callable[..., Any], keyword: str) -> bool:
    """Whether a function takes this keyword argument (by name or through ``**kwargs``)."""
    try:
        parameters = inspect.signature(function).parameters
    except (TypeError, ValueError):
        return False
    kinds = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    named = keyword in parameters and parameters[keyword].kind in kinds
    return named or any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters.values())


def as_score(value: Any) -> Score:
    """Return a reward as a score; what is not a finite number becomes a failed one."""
    reward = read_number(value)
    if reward is None or not math.isfinite(reward):
        return Score.failed("error", f"reward_func returned {value!r:.80}; expected a finite number")
    return Score(reward=reward)
