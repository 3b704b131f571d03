"""The README keeps its word: its tree names what is there, its examples run."""

import re
from pathlib import Path

import pytest

from comlrl_env import registry

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
TREE = README.split("## The house")[1]
EXAMPLES = re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL)


def test_the_tree_names_every_module_and_nothing_else():
    modules = {
        path.name
        for package in ("comlrl_env", "comlrl_agents")
        for path in (ROOT / package).rglob("*.py")
        if not path.name.startswith("__")
    }
    named = set(re.findall(r"\b(\w+\.py)\b", TREE))
    assert sorted(modules - named) == [], "modules that the README does not name"
    assert sorted(named - modules) == [], "names in the README that are no modules"


def test_its_links_and_commands_exist():
    from typer.main import get_command

    from comlrl_agents.cli import app

    for target in re.findall(r"\]\(([^)#:]+)\)", README):
        assert (ROOT / target).exists(), target
    commands = set(get_command(app).commands)  # type: ignore[attr-defined]  # it is a group
    assert set(re.findall(r"^comlrl ([\w-]+)", README, flags=re.MULTILINE)) <= commands


def test_its_examples_run_in_order(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """All but the training, which tests/comlrl_agents does: here it must only be spelled right."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(registry, "_entries", dict(registry._entries))
    names: dict[str, object] = {"__name__": "readme"}
    for example in EXAMPLES:
        code = compile(example, "README.md", "exec")
        if "trainer.train()" not in example:
            exec(code, names)
    assert len(EXAMPLES) == 6
    env = names["env"]
    prompts, _ = env.reset(seed=0)  # type: ignore[attr-defined]  # the one of from_functions
    _, rewards, *_ = env.step(dict(zip(prompts, ["short", "much longer"], strict=True)))  # type: ignore[attr-defined]
    assert set(rewards.values()) == {1.0}
