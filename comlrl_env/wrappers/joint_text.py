"""The team as one writer: a parallel environment with one agent whose text holds every role's response."""

from collections.abc import Mapping, Sequence
from typing import Any

from pettingzoo import ParallelEnv

from comlrl_env.env import TextEnv
from comlrl_env.errors import ActionError
from comlrl_env.joint_text import JointAdapter, SectionAdapter, joint_prompt, read_roles
from comlrl_env.parallel import advance, begin, scores_itself
from comlrl_env.shared_reward import RewardRule, check_rule, shared_score
from comlrl_env.spaces import UnicodeText
from comlrl_env.types import Score

ACTOR = "actor"
Texts = dict[str, str]
Infos = dict[str, dict[str, Any]]
JointStep = tuple[Texts, dict[str, float], dict[str, bool], dict[str, bool], Infos]


class JointTextEnv(ParallelEnv[str, str, str]):
    """One agent, ``"actor"``, answers for all roles of ``env``; made by :func:`joint_text_env`.

    The adapter builds its prompt from those of the roles and takes its text apart; a text in which nothing can be read
    scores as empty answers of all roles. ``infos["actor"]`` are those of the first role, with the joint prompt as
    ``messages`` and, after a step, ``roles``: what each role said. The reward is the shared one.
    """

    def __init__(self, env: Any, adapter: JointAdapter, reward_rule: RewardRule | None = None) -> None:
        check_rule(reward_rule)
        self.env = env
        self.adapter = adapter
        self.reward_rule = reward_rule
        self.roles = list(env.possible_agents)
        self.metadata = {**env.metadata}
        self.render_mode = getattr(env, "render_mode", None)
        self.possible_agents = [ACTOR]
        self.agents: list[str] = []
        self._space = UnicodeText()
        self._item: Any = None

    @property
    def num_items(self) -> int | None:
        """The number of items of the environment, None where it tells none."""
        return getattr(self.env, "num_items", None)

    @property
    def num_turns(self) -> int:
        """Turns of an episode, as far as the environment tells."""
        return int(getattr(self.env, "num_turns", 1))

    def __str__(self) -> str:
        return f"{type(self).__name__}<{self.env}>"

    def observation_space(self, agent: str) -> UnicodeText:
        """The space of joint prompts."""
        return self._space

    def action_space(self, agent: str) -> UnicodeText:
        """The space of joint texts."""
        return self._space

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Texts, Infos]:
        """Begin an episode; arguments go to the environment."""
        prompts, infos = begin(self.env, seed, options)
        self._item = getattr(getattr(self.env, "item", None), "data", None)
        self.agents = [ACTOR]
        return self._observe(prompts, infos)

    def step(self, actions: Mapping[str, str]) -> JointStep:
        """Play what the text says of each role."""
        joint = self.split(self._text(actions))
        acting = list(self.env.agents)
        prompts, rewards, terminations, _, infos = advance(self.env, {role: joint[role] for role in acting})
        over = not self.env.agents
        score = shared_score(rewards, infos, acting, self.reward_rule)
        self.agents = [] if over else [ACTOR]
        observations, told = self._observe({} if over else prompts, infos)
        status = {"reward_status": score.status, "reward_reason": score.reason}
        told[ACTOR] = {**status, **told[ACTOR], "roles": joint}
        ended = over and all(terminations.get(role, False) for role in acting)
        return observations, {ACTOR: score.reward}, {ACTOR: ended}, {ACTOR: over and not ended}, told

    def split(self, text: str) -> Texts:
        """The response of every role in a joint text, empty ones where nothing can be read."""
        roles = read_roles(self.adapter, text, self._item, len(self.roles))
        return dict(zip(self.roles, roles or [""] * len(self.roles), strict=True))

    def render(self) -> Any:
        """What the environment renders."""
        return self.env.render()

    def close(self) -> None:
        """Close the environment."""
        self.env.close()

    def _observe(self, prompts: Mapping[str, str], infos: Mapping[str, Any]) -> tuple[Texts, Infos]:
        text = joint_prompt(self.adapter, self._item, [prompts.get(role, "") for role in self.roles]) if prompts else ""
        first = dict(infos.get(self.roles[0]) or {})
        return {ACTOR: text}, {ACTOR: {**first, "role": ACTOR, "messages": [{"role": "user", "content": text}]}}

    def _text(self, actions: Mapping[str, str]) -> str:
        if not isinstance(actions, Mapping) or set(actions) != {ACTOR} or not isinstance(actions[ACTOR], str):
            raise ActionError(f"joint action: expected one text of {ACTOR!r} for all roles, actually {actions!r:.200}")
        return str(actions[ACTOR])


class JointTextTask(JointTextEnv):
    """The same around an environment that scores many candidates itself, which stays as fast as it is."""

    env: TextEnv

    @property
    def task(self) -> Any:
        """The task that is played."""
        return self.env.task

    @property
    def item(self) -> Any:
        """The item being played."""
        return self.env.item

    def score_candidates(self, candidates: Sequence[Mapping[str, str]]) -> list[Score]:
        """Raw scores of many joint texts for the current turn."""
        return self.env.score_candidates([self.split(self._text(candidate)) for candidate in candidates])

    def process(self, raw: float) -> float:
        """The environment's reward processor."""
        return self.env.process(raw)


def joint_text_env(
    env: Any, adapter: JointAdapter | None = None, reward_rule: RewardRule | None = None
) -> JointTextEnv:
    """``env`` for one actor that writes all roles; ``adapter`` None: :class:`~comlrl_env.joint_text.SectionAdapter`."""
    kind = JointTextTask if scores_itself(env) else JointTextEnv
    return kind(env, SectionAdapter() if adapter is None else adapter, reward_rule)
