"""``comlrl/MBPP-v0``: short problems in one sentence with a few asserts, solved by a helper and an author.

Purpose: as ``comlrl/HumanEval-v0``, with problems in the form of MBPP: one sentence, and the tests themselves show how
the function is called.

Roles: ``helper_0`` writes a function ``aux``, ``author_1`` the entry function, which may call it. Both see the problem
and the first test.

Example (the first training item of seed 0)::

    both read          def letters_sorted_of_plain(words):
                           '''Write a function to find the total number of characters of the sorted letters of each
                           of the words with at most 4 different letters.

                           assert letters_sorted_of_plain(['ilarumimes', 'dodtdilm', 'us', 'rsl', 'unnm', 'nanm',
                           'umsmandlu', 'nrilauo']) == 13
                           '''
    helper_0 answers   def aux(words):
                           return ["".join(sorted(x)) for x in words if len(set(x)) <= 4]
    author_1 answers   def letters_sorted_of_plain(words):
                           ys = aux(words)
                           return sum(len(y) for y in ys)
    score              .93 = .05 · 2 + .5 · 1 + .4 · (1 − 1/6): all six tests pass, one of them without aux

Reward: ``reward="strict"`` (default, in [0, 1]) and ``reward="reference"`` (as published, in [0, 4]); both formulas
stand in :mod:`comlrl_env.tasks.code.team`. A test is one ``assert``; answers run in :mod:`comlrl_env.sandbox`.

Figures (``python -m comlrl_env.figures comlrl/MBPP-v0 reward=…``, which takes minutes)::

    reward      gold   solo   random  canonical solution + unused ``z = aux()``; equal-to-everything
    strict      1.00   0.55   0.13   0.60; 0.10
    reference   4.00   2.10   1.62   3.50; 1.50

Gold on 200 items; solo (the author solves everything, the helper says nothing) and random on 40.

Data: problems of three steps (keep, change, put together) on lists of words, 8 thousand of them, written for this
project, Apache-2.0. Train and eval, and neighbouring seeds, share no problem. ``data=…`` reads the sanitized part of
``google-research-datasets/mbpp`` (CC-BY-4.0, Austin et al., 2021, arXiv:2108.07732; fields ``prompt``, ``code``,
``test_list``; training: its split ``train``, evaluation: ``test``). Its asserts are converted by the parser: only the
name of the tested function changes. What its code defines beside the entry function goes into the canonical solution.
Rows that cannot be converted are named in a warning and left out.

About 5 000 items a second: each runs its own solution on six lists.

Versions: v0 first version.
"""

import ast
import textwrap
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from comlrl_env.errors import TaskError
from comlrl_env.rows import PublicData
from comlrl_env.syntax import parse
from comlrl_env.tasks.code.problems import WORDS, make_problem
from comlrl_env.tasks.code.rows_task import RowsTask


class MBPP(RowsTask):
    """One-sentence problems for a helper and an author; see the page and :class:`RowsTask` for the arguments."""

    source = PublicData(
        "google-research-datasets/mbpp",
        ("prompt", "code", "test_list"),
        {"train": "train", "eval": "test"},
        257,
        config="sanitized",
    )
    reward_figures: ClassVar = {
        "strict": {"gold": 1.0, "solo": 0.55, "random": 0.13},
        "reference": {"gold": 4.0, "solo": 2.1, "random": 1.62},
    }

    def build(self, rng: np.random.Generator, split: str) -> dict[str, Any]:
        """The texts of one problem, from a row in MBPP's form."""
        problem = make_problem(WORDS, rng, split, self.seed)
        argument = problem.signature.partition("(")[2].partition(":")[0]
        # The longest lists first: the first test is shown.
        asserts = [f"assert {problem.name}({given!r}) == {value!r}" for given, value in reversed(problem.examples)]
        return assembled(
            text=f"Write a function to find {problem.text}.",
            entry=problem.name,
            parameters=argument,
            body=problem.body,
            imports=[],
            asserts=asserts,
            checks=[line.replace(problem.name, "candidate", 1) for line in asserts],
        )

    def problem_of(self, row: Mapping[str, Any]) -> dict[str, str]:
        """A row of the data set as a problem."""
        return convert(row)


def convert(row: Mapping[str, Any]) -> dict[str, str]:
    """A row with ``prompt`` (or ``text``), ``code``, ``test_list`` (and ``test_imports``) as a problem.

    Raises :class:`TaskError` when the asserts do not test one function that the code defines.
    """
    tree = parse(row["code"])
    functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    asserts = [node for text in row["test_list"] for node in parse(text).body if isinstance(node, ast.Assert)]
    called = [
        {n.func.id for n in ast.walk(a) if isinstance(n, ast.Call) and isinstance(n.func, ast.Name)} for a in asserts
    ]
    tested = [name for name in functions if called and all(name in names for names in called)]
    if len(tested) != 1:
        raise TaskError(
            f"code task: expected asserts that call one function of the code, actually {len(asserts)} asserts and the "
            f"functions {', '.join(functions) or 'none'}"
        )
    (entry,) = tested
    function = functions[entry]
    arguments = function.args
    if arguments.vararg or arguments.kwarg or arguments.kwonlyargs or arguments.posonlyargs:
        raise TaskError(f"code task: expected plain parameters of {entry}, actually {ast.unparse(arguments)}")
    shown = [ast.unparse(node) for node in asserts]
    outside = [node for node in tree.body if node is not function]
    body = textwrap.indent("\n".join(map(ast.unparse, [*outside, *function.body])), "    ") + "\n"
    renamed = [ast.unparse(_Rename(entry).visit(node)) for node in asserts]
    return assembled(
        text=str(row["prompt"]),
        entry=entry,
        parameters=ast.unparse(arguments),
        body=body,
        imports=[str(line) for line in row.get("test_imports") or []],
        asserts=shown,
        checks=renamed,
    )


def assembled(
    *,
    text: str,
    entry: str,
    parameters: str,
    body: str,
    imports: list[str],
    asserts: list[str],
    checks: list[str],
) -> dict[str, str]:
    """The texts of a problem: the sentence and the first assert become the docstring of an empty function."""
    told = "\n".join([text.strip(), "", asserts[0]]).replace("\\", "\\\\").replace('"""', "'''")
    docstring = textwrap.indent(told, "    ").lstrip()
    check = "\n".join([*imports, "def check(candidate):", *(f"    {line}" for line in checks), ""])
    # A quote at the end would run into the closing ones.
    return {
        "prompt": f'def {entry}({parameters}):\n    """{docstring}\n    """\n',
        "entry_point": entry,
        "canonical_solution": body,
        "test": check,
    }


class _Rename(ast.NodeTransformer):
    def __init__(self, entry: str) -> None:
        self._entry = entry

    def visit_Name(self, node: ast.Name) -> ast.Name:  # the name that ast.NodeTransformer calls
        return ast.Name("candidate", node.ctx) if node.id == self._entry else node
