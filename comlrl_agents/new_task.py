"""``comlrl new-task``: a small working task and its test as files, to start from."""

import re
from pathlib import Path

from comlrl_env.errors import ConfigError

TASK = '''\
"""{title}: two agents name numbers that must add up to a target. Replace all of it by your own task.

Try it: ``comlrl check {module}:{name}``, ``comlrl play {module}:{name}``, ``pytest test_{module}.py``.
"""

import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from comlrl_env import Item, Score
from comlrl_env.procedural import ProceduralTask
from comlrl_env.task import History, JointResponse


class {name}(ProceduralTask):
    """Everyone sees the target and names one number; together they must make the target."""

    # Measured by `python -m comlrl_env.figures {module}:{name}`: gold reaches the maximum, one agent alone does not.
    figures: Mapping[str, float] = {{"gold": 1.0, "solo": 0.5, "random": 0.67}}
    role = "partner"  # the agents are partner_0, partner_1, …
    levels = (0, 1)

    def build(self, rng: np.random.Generator, split: str) -> dict[str, Any]:
        """One item: draw everything from rng. The class keeps training and evaluation items apart."""
        steps = int(rng.integers(3, 20 if self.level == 0 else 200))
        return {{"target": 4 * steps + self.item_class(split)}}

    def instructions(self, item: Item, history: History) -> dict[str, str]:
        """What each agent is told: all that it needs, and nothing of the answer."""
        target = item.data["target"]
        return {{
            agent: f"You are {{agent}} of {{len(self.agents)}}. Each writes one number; together they make {{target}}."
            for agent in self.agents
        }}

    def score(self, item: Item, history: History, responses: JointResponse) -> Score:
        """A pure function in [0, 1] that never raises: an answer that makes no sense is worth 0, and says why."""
        found = [re.findall(r"\\b[0-9]{{1,6}}\\b", responses[agent][:1000]) for agent in self.agents]
        total = sum(int(numbers[0]) for numbers in found if numbers)
        distance = abs(total - item.data["target"]) / item.data["target"]
        return Score(
            reward=max(0.0, 1 - distance),
            parts={{"total": float(total), "silent": float(sum(not numbers for numbers in found))}},
            reason=f"the numbers make {{total}}" if distance else "",
            is_success=distance == 0,
        )

    def gold(self, item: Item, history: History = ()) -> dict[str, str]:
        """A joint answer that reaches the maximum; `solo`, one agent alone, follows from it."""
        share, rest = divmod(item.data["target"], len(self.agents))
        return {{agent: str(share + (i < rest)) for i, agent in enumerate(self.agents)}}

    def sample_answers(self, item: Item, rng: np.random.Generator, history: History = ()) -> dict[str, str]:
        """A random valid joint answer."""
        return {{agent: str(int(rng.integers(1, item.data["target"]))) for agent in self.agents}}
'''
TEST = """\
import pytest
from {module} import {name}

from comlrl_env import Item, TextEnv
from comlrl_env.figures import measure
from comlrl_env.testing import check_env


@pytest.mark.parametrize("level", [0, 1])
def test_it_keeps_the_rules(level):
    check_env(TextEnv({name}(level=level)))


def test_scores_by_hand():
    item = Item(key="x", data={{"target": 20}})
    for one, two, reward in [("12", "8", 1), ("10", "", 0.5), ("20", "1", 0.95), ("", "what?", 0)]:
        answers = {{"partner_0": one, "partner_1": two}}
        assert {name}().score(item, (), answers).reward == pytest.approx(reward)


def test_its_figures_are_true():
    measured = measure({name}(), num_items=64)
    assert measured == pytest.approx(dict({name}.figures), abs=0.05)
"""


def write_task(name: str, folder: Path) -> str:
    """Write ``name`` as a task and its test into the folder, and return what to do next.

    Raises ConfigError for a name that is no class name, and for files that are there already.
    """
    if not re.fullmatch(r"[A-Z][A-Za-z0-9]*", name) or not name.isascii():
        raise ConfigError(f"NAME: expected a class name such as RhymePair, actually {name!r}")
    module = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()
    texts = {folder / f"{module}.py": TASK, folder / f"test_{module}.py": TEST}
    for path in texts:
        if path.exists():
            raise ConfigError(f"NAME: {path} is there already; choose another name or another --folder")
    folder.mkdir(parents=True, exist_ok=True)
    for path, text in texts.items():
        path.write_text(text.format(name=name, module=module, title=name), encoding="utf-8")
    return (
        f"{' and '.join(map(str, texts))} are written. Next, in that folder:\n"
        f"  comlrl check {module}:{name}\n  comlrl play {module}:{name}\n  pytest test_{module}.py"
    )
