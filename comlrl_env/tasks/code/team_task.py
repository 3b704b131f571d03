"""The base of tasks in which a helper and an author write one program: prompts, answers that are known, scoring.

A subclass names its data: an :class:`~comlrl_env.types.Item` holds ``prompt`` (imports, helper functions and the stub
of the entry function with its docstring), ``entry_point``, ``canonical_solution`` (the body) and ``test``
(``check(candidate)``).
"""

import ast
import os
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from typing import cast, get_args

import numpy as np

from comlrl_env.errors import TaskError
from comlrl_env.sandbox import SandboxError
from comlrl_env.syntax import parse
from comlrl_env.task import History, JointResponse
from comlrl_env.tasks.code import team
from comlrl_env.tasks.code.checks import read_checks
from comlrl_env.types import Item, Score

HELPER, AUTHOR = "helper_0", "author_1"
_SETTING = """\
# Two programmers write one Python program together, at the same time, without seeing each other's code:
# {helper} writes a function `aux` that does part of the work, and
# {author} writes `{entry}`, which calls `aux` and needs the value that it returns.
# `aux` takes the same arguments as `{entry}` and returns plain data (numbers, strings, lists, dictionaries, ...).
"""
_HELPER_ROLE = "# You are {helper}. Write only `aux`, with the imports that it needs, as Python code.\n"
_AUTHOR_ROLE = (
    "# You are {author}. Write only `{entry}`, with the imports that it needs, as Python code. `aux` is defined.\n"
)
_HELPER_OPENING = "def aux("
PROBLEM_FIELDS = ("prompt", "entry_point", "canonical_solution", "test")


class TeamTask:
    """One turn, two roles, one program; see :mod:`comlrl_env.tasks.code.team` for the two rewards.

    ``workers``: how many joint responses ``score_many`` scores at once, all processors when ``None``.
    """

    agents: tuple[str, ...] = (HELPER, AUTHOR)
    num_turns = 1

    def __init__(self, reward: str = "strict", *, workers: int | None = None) -> None:
        if sys.platform != "linux":
            raise TaskError(f"{type(self).__name__}: its sandbox needs Linux, actually this is {sys.platform}")
        if reward not in get_args(team.RewardName):
            raise TaskError(f"{type(self).__name__}: reward must be 'strict' or 'reference', actually {reward!r}")
        if workers is not None and workers < 1:
            raise TaskError(
                f"{type(self).__name__}: workers must be at least 1, actually {workers}; None uses all processors"
            )
        self.reward = cast(team.RewardName, reward)
        self.limits = team.STRICT_LIMITS if reward == "strict" else team.REFERENCE_LIMITS
        self.workers = workers or len(os.sched_getaffinity(0))

    def prompts(self, item: Item, history: History) -> dict[str, str]:
        """Instructions as comments, then code that the answer goes on from: each role can also start afresh."""
        prompt, entry = item.data["prompt"], item.data["entry_point"]
        setting = _SETTING.format(helper=HELPER, author=AUTHOR, entry=entry)
        helper = (
            setting
            + _HELPER_ROLE.format(helper=HELPER)
            + f"# The problem:\n\n{prompt}\n\n# The function aux:\n\n{_HELPER_OPENING}"
        )
        author = setting + _AUTHOR_ROLE.format(author=AUTHOR, entry=entry) + f"\n{prompt}"
        return {HELPER: helper, AUTHOR: author}

    def messages(self, item: Item, history: History) -> dict[str, list[dict[str, str]]]:
        """The same for chat models: one message, which asks for one block of code."""
        prompt, entry = item.data["prompt"], item.data["entry_point"]
        setting = _SETTING.format(helper=HELPER, author=AUTHOR, entry=entry)
        roles = {HELPER: _HELPER_ROLE.format(helper=HELPER), AUTHOR: _AUTHOR_ROLE.format(author=AUTHOR, entry=entry)}
        return {
            agent: [
                {
                    "role": "user",
                    "content": (setting + role).replace("# ", "")
                    + f"Answer with one block of Python code.\n\nThe problem:\n```python\n{prompt}\n```",
                }
            ]
            for agent, role in roles.items()
        }

    def score(self, item: Item, history: History, responses: JointResponse) -> Score:
        """Strict or reference reward; a broken sandbox is a failed score, never a zero."""
        problem = parsed_problem(item.data)
        try:
            return team.score(problem, responses[HELPER], responses[AUTHOR], self.reward, self.limits)
        except SandboxError as error:
            return Score.failed("error", str(error))

    def score_many(self, item: Item, history: History, joint_responses: Sequence[JointResponse]) -> list[Score]:
        """``score`` of each, several at once: threads that wait for sandboxed processes keep all processors busy."""
        with ThreadPoolExecutor(max_workers=self.workers) as threads:
            return list(threads.map(lambda responses: self.score(item, history, responses), joint_responses))

    def gold(self, item: Item, history: History = ()) -> dict[str, str]:
        """The canonical solution cut in two so that neither part does without the other.

        ``aux`` solves the problem, but takes the arguments in one tuple, by name, and returns a table with the answer
        under the question; the entry function packs its arguments and looks its own question up.
        """
        prompt, entry = item.data["prompt"], item.data["entry_point"]
        solution = _renamed(prompt + item.data["canonical_solution"], entry, "solve_alone")
        helper = (
            f"{solution}\n\ndef aux(*, question):\n    asked = repr(question)\n"
            f"    return {{asked: solve_alone(*question)}}\n"
        )
        parameters, names = _parameters(prompt, entry)
        question = f"({', '.join(names)},)"
        author = (
            f"def {entry}({parameters}):\n    question = {question}\n    asked = repr(question)\n"
            f"    return aux(question=question)[asked]\n"
        )
        return {HELPER: helper, AUTHOR: author}

    def solo(self, item: Item, history: History = ()) -> dict[str, str]:
        """The author solves everything, the helper says nothing."""
        return {HELPER: "", AUTHOR: item.data["prompt"] + item.data["canonical_solution"]}

    def sample_answers(self, item: Item, rng: np.random.Generator, history: History = ()) -> dict[str, str]:
        """Two random functions of the right form; each returns an argument, a constant or (the author) aux's."""
        entry = item.data["entry_point"]
        parameters, names = _parameters(item.data["prompt"], entry)
        values = [*names, "0", "1", "''", "[]", "True", "False", "None"]
        call = f"aux({', '.join(names)})"
        chosen, returned = _pick(values, rng), _pick([call, f"[{call}]", f"not {call}", *values], rng)
        return {
            HELPER: f"def aux({parameters}):\n    return {chosen}\n",
            AUTHOR: f"def {entry}({parameters}):\n    return {returned}\n",
        }


def _pick(values: Sequence[str], rng: np.random.Generator) -> str:
    return values[int(rng.integers(len(values)))]


def _entry_node(prompt: str, entry: str) -> ast.FunctionDef:
    for node in parse(prompt).body:
        if isinstance(node, ast.FunctionDef) and node.name == entry:
            return node
    raise TaskError(f"code task: expected a prompt that defines {entry!r}, actually it does not")


def _parameters(prompt: str, entry: str) -> tuple[str, list[str]]:
    """The parameters without annotations as source text, and their names."""
    arguments = _entry_node(prompt, entry).args
    for argument in arguments.args:
        argument.annotation = None
    return ast.unparse(arguments), [argument.arg for argument in arguments.args]


def _renamed(source: str, entry: str, name: str) -> str:
    """``source`` with its function ``entry`` under another name and without docstrings."""
    tree = parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and ast.get_docstring(node) is not None and len(node.body) > 1:
            del node.body[0]
        if isinstance(node, ast.FunctionDef) and node.name == entry:
            node.name = name
        if isinstance(node, ast.Name) and node.id == entry:
            node.id = name
    return ast.unparse(tree)


@lru_cache(maxsize=1024)
def _problem(prompt: str, canonical: str, test: str, entry: str) -> team.Problem:
    first = _entry_node(prompt, entry).lineno
    lines = prompt.splitlines(keepends=True)
    return team.Problem(
        entry=entry,
        prelude="".join(lines[: first - 1]),
        checks=read_checks(test, prompt + canonical),
        opening_helper=_HELPER_OPENING,
        opening_author="".join(lines[first - 1 :]),
    )


def problem_data(row: Mapping[str, str]) -> dict[str, str]:
    """The fields of a data row that a team task needs; raises ``TaskError`` for a missing one."""
    missing = [name for name in PROBLEM_FIELDS if not isinstance(row.get(name), str)]
    if missing:
        raise TaskError(
            f"code task: expected rows with the texts {', '.join(PROBLEM_FIELDS)}, "
            f"actually without {', '.join(missing)}"
        )
    return {name: row[name] for name in PROBLEM_FIELDS}


def parsed_problem(data: Mapping[str, str]) -> team.Problem:
    """The problem of an item, split into what is trusted and what the prompts end with; parsed once.

    Raises ``TaskError`` or ``SyntaxError`` for texts that are no problem.
    """
    return _problem(data["prompt"], data["canonical_solution"], data["test"], data["entry_point"])
