"""TextEnv: a cooperative language task as a PettingZoo parallel environment with one shared reward."""

import copy
import math
import secrets
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from gymnasium.spaces import Space
from gymnasium.utils import seeding
from pettingzoo import ParallelEnv

from comlrl_env.errors import ActionError, ConfigError, TaskError
from comlrl_env.items import check_count, check_split, find_item
from comlrl_env.oracles import Oracle
from comlrl_env.rendering import render_episode
from comlrl_env.shared_reward import read_number
from comlrl_env.spaces import UnicodeText
from comlrl_env.task import History, Task, as_messages, check_task
from comlrl_env.types import Item, Score, Turn

Infos = dict[str, dict[str, Any]]
StepResult = tuple[dict[str, str], dict[str, float], dict[str, bool], dict[str, bool], Infos]


class Latency(float):
    """Seconds that an oracle took. Two clock readings count as equal.

    How long a call took is no part of an environment's behaviour, and PettingZoo's ``parallel_seed_test``
    compares infos; compared with any other number it is a plain float.
    """

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Latency) or float.__eq__(self, other) is True

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = float.__hash__


class TextEnv(ParallelEnv[str, str, str]):
    """One task, played item by item: prompts out, one text per agent in, the same float for every agent back.

    Observations and actions are plain ``str`` in :class:`UnicodeText` spaces. After the last turn the
    observation is the empty text and ``agents`` is empty. ``infos[agent]`` holds ``item`` (key), ``role``
    and ``messages`` (the chat form of the prompt), and after a step also ``raw_reward``,
    ``reward_components``, ``reward_status``, ``reward_reason``, ``oracle_latency`` (seconds) and
    ``is_success``. When the oracle fails the reward is NaN and ``reward_status`` says why; it is never a
    number made up.

    Copies by ``copy.deepcopy`` share the task and the oracle, which are pure, and have their own episode.

    Args:
        task: what is played.
        split: ``"train"`` or ``"eval"``: where ``reset`` takes its items from.
        reward_processor: finite raw reward -> finite reward, applied to ``rewards`` only.
        render_mode: ``"ansi"`` or ``None``.
        oracle_workers: threads that score candidates at once, for oracles that wait on processes.
        oracle_cache: how many scores to remember, of an oracle that is pure and slow; failed ones are not remembered.
        oracle_timeout: seconds after which scoring one joint response is given up (status ``"timeout"``).
        max_cycles: truncate episodes after so many turns.

    Raises:
        TaskError: the task breaks its contract or the split has no items.
        ConfigError: an argument has an illegal value.

    """

    def __init__(
        self,
        task: Task,
        split: str = "train",
        *,
        reward_processor: Callable[[float], Any] | None = None,
        render_mode: str | None = None,
        oracle_workers: int = 0,
        oracle_timeout: float | None = None,
        oracle_cache: int = 0,
        max_cycles: int | None = None,
    ) -> None:
        check_task(task)
        if reward_processor is not None and not callable(reward_processor):
            raise ConfigError(
                f"reward_processor: expected a function of one number or None, actually {reward_processor!r}"
            )
        if render_mode not in (None, "ansi"):
            raise ConfigError(f"render_mode: expected None or 'ansi', actually {render_mode!r}")
        self.task = task
        self.split = check_split(split)
        self.reward_processor = reward_processor
        self.render_mode = render_mode
        self.max_cycles = None if max_cycles is None else check_count("max_cycles", max_cycles, 1)
        self.metadata = {"name": type(task).__name__, "render_modes": ["ansi"]}
        self.possible_agents = list(task.agents)
        self.agents: list[str] = []
        self.observation_spaces = {agent: UnicodeText() for agent in self.possible_agents}
        self.action_spaces = {agent: UnicodeText() for agent in self.possible_agents}
        self._oracle = Oracle(task, workers=oracle_workers, timeout=oracle_timeout, cache_size=oracle_cache)
        self._splits: dict[str, Sequence[Item]] = {}
        self._items(self.split)
        self._seed: int | None = None
        self._rng: np.random.Generator | None = None
        self._item: Item | None = None
        self._prompts: dict[str, str] = {}
        self._history: History = ()

    @property
    def num_items(self) -> int:
        """The number of items in this environment's split."""
        return len(self._items(self.split))

    @property
    def split_items(self) -> Sequence[Item]:
        """The items of this environment's split, the very ones that are played."""
        return self._items(self.split)

    @property
    def num_turns(self) -> int:
        """The number of turns of an episode."""
        return int(self.task.num_turns)

    @property
    def item(self) -> Item:
        """The item being played. Raises :class:`ActionError` before the first reset."""
        if self._item is None:
            raise ActionError("item: the environment has not been reset; call reset() first")
        return self._item

    @property
    def history(self) -> History:
        """The finished turns of the running episode."""
        return self._history

    def observation_space(self, agent: str) -> Space[str]:
        """The space of the agent's prompts, the same object each time."""
        return self.observation_spaces[agent]

    def action_space(self, agent: str) -> Space[str]:
        """The space of the agent's answers, the same object each time."""
        return self.action_spaces[agent]

    def reset(self, seed: int | None = None, options: Mapping[str, Any] | None = None) -> tuple[dict[str, str], Infos]:
        """Begin an episode and return every agent's prompt and info.

        ``options``: ``"item"``, the key or the index of the item to play (otherwise a random one, from the
        stream that ``seed`` starts), and ``"split"``, for this episode only. Other options are ignored, as
        PettingZoo asks.

        Raises :class:`TaskError` for an unknown split, key or index.
        """
        options = options or {}
        items = self._items(options.get("split", self.split))
        if seed is not None:
            # The generator is made at the first draw: it costs more than all the rest of a reset.
            self._seed, self._rng = check_count("seed", seed, 0), None
        elif self._seed is None:
            self._seed = secrets.randbits(128)
        chosen = options.get("item")
        index = int(self._draws().integers(len(items))) if chosen is None else find_item(items, chosen)
        item = items[index]
        self._prompts = self._ask(item, ())
        self._item, self._history = item, ()
        self.agents = list(self.possible_agents)
        return dict(self._prompts), self._infos()

    def step(self, actions: Mapping[str, str]) -> StepResult:
        """Score the joint answer and go on to the next turn.

        ``actions`` holds one text per agent; any text is data. Raises :class:`ActionError` when an agent is
        missing or unknown, a value is no str, or the episode is over.
        """
        responses = self._check_actions(actions)
        scored = self._oracle.score_many(self.item, self._history, [responses])[0]
        score = scored.score
        reward = self.process(score.reward) if score.status == "ok" else math.nan
        history = (*self._history, Turn(dict(self._prompts), responses, score))
        over = len(history) >= self.task.num_turns
        cut = not over and self.max_cycles is not None and len(history) >= self.max_cycles
        prompts = dict.fromkeys(self.possible_agents, "") if over or cut else self._ask(self.item, history)
        self._history, self._prompts = history, prompts
        if over or cut:
            self.agents = []
        infos = self._infos()
        for info in infos.values():
            info |= {
                "raw_reward": score.reward,
                "reward_components": dict(score.parts),
                "reward_status": score.status,
                "reward_reason": score.reason,
                "oracle_latency": Latency(scored.latency),
                "is_success": score.is_success,
            }
        everyone = self.possible_agents
        return (
            dict(prompts),
            dict.fromkeys(everyone, reward),
            dict.fromkeys(everyone, over),
            dict.fromkeys(everyone, cut),
            infos,
        )

    def score_candidates(self, candidates: Sequence[Mapping[str, str]]) -> list[Score]:
        """Score many joint answers to the current turn at once, without playing any of them.

        Returns the raw scores, before ``reward_processor``. Raises :class:`ActionError` as ``step`` does.
        """
        checked = [self._check_actions(candidate) for candidate in candidates]
        return [scored.score for scored in self._oracle.score_many(self.item, self._history, checked)]

    def process(self, raw: float) -> float:
        """Apply ``reward_processor``; raise :class:`TaskError` unless the result is a finite number."""
        if self.reward_processor is None:
            return float(raw)
        value = self.reward_processor(raw)
        processed = read_number(value)
        if processed is None or not math.isfinite(processed):
            raise TaskError(
                f"reward_processor: expected a finite number for the raw reward {raw!r}, actually {value!r}; "
                "mend the function, nothing is put in its place"
            )
        return processed

    def render(self) -> str:
        """The episode so far as text: prompts, answers and the parts of each score.

        Raises :class:`ConfigError` unless the environment was made with ``render_mode="ansi"``.
        """
        if self.render_mode != "ansi":
            raise ConfigError("render: the environment has render_mode=None; make it with render_mode='ansi'")
        title = f"{self.metadata['name']} · {self.split}"
        if self._item is None:
            return f"{title} · not reset yet\n"
        waiting = self._prompts if self.agents else None
        return render_episode(f"{title} · item {self._item.key}", self._history, waiting)

    def close(self) -> None:
        """Stop the oracle's workers; they come back when something is scored again."""
        self._oracle.close()

    def __deepcopy__(self, memo: dict[int, Any]) -> "TextEnv":
        twin = copy.copy(self)
        memo[id(self)] = twin
        for name in ("_rng", "agents", "possible_agents", "metadata", "observation_spaces", "action_spaces"):
            setattr(twin, name, copy.deepcopy(getattr(self, name), memo))
        return twin

    def on_split(self, split: str) -> "TextEnv":
        """A copy that takes its items from this split. Raises :class:`TaskError` when the split has none."""
        twin = copy.deepcopy(self)
        twin.split = check_split(split)
        twin.agents, twin._item, twin._seed, twin._rng, twin._splits = [], None, None, None, dict(self._splits)
        twin._prompts, twin._history = {}, ()
        twin._items(split)
        return twin

    def _items(self, split: str) -> Sequence[Item]:
        if split not in self._splits:
            items = self.task.items(check_split(split))
            if len(items) == 0:
                raise TaskError(f"{type(self.task).__name__}: expected at least one {split} item, actually none")
            self._splits[split] = items
        return self._splits[split]

    def _draws(self) -> np.random.Generator:
        if self._rng is None:
            self._rng = seeding.np_random(self._seed)[0]
        return self._rng

    def _ask(self, item: Item, history: History) -> dict[str, str]:
        prompts = self.task.prompts(item, history)
        if set(prompts) != set(self.possible_agents) or not all(isinstance(p, str) for p in prompts.values()):
            raise TaskError(
                f"{type(self.task).__name__}.prompts: expected one str for each of {self.possible_agents}, "
                f"actually { ({agent: type(p).__name__ for agent, p in prompts.items()}) } for item {item.key!r}"
            )
        return {agent: prompts[agent] for agent in self.possible_agents}

    def _infos(self) -> Infos:
        messages: Mapping[str, Any] = dict.fromkeys(self.possible_agents, ())
        if self.agents:
            chat = getattr(self.task, "messages", None)
            messages = chat(self.item, self._history) if chat else as_messages(self._prompts)
        return {
            agent: {"item": self.item.key, "role": agent, "messages": list(messages[agent])}
            for agent in self.possible_agents
        }

    def _check_actions(self, actions: Mapping[str, str]) -> dict[str, str]:
        if not self.agents:
            raise ActionError("step: the episode is over or has not begun; call reset() first")
        if not isinstance(actions, Mapping) or set(actions) != set(self.possible_agents):
            given = sorted(map(str, actions)) if isinstance(actions, Mapping) else repr(actions)
            raise ActionError(f"joint action: expected one text for each of {self.possible_agents}, actually {given}")
        for agent, text in actions.items():
            if not isinstance(text, str):
                raise ActionError(
                    f"action of {agent}: expected a str, actually {type(text).__name__} {text!r:.80}; "
                    "decode tokens before step()"
                )
        return {agent: str(actions[agent]) for agent in self.possible_agents}
