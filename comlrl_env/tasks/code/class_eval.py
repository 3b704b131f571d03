"""``comlrl/ClassEval-v0``: one class, its methods divided among two programmers.

Purpose: code that must fit one object: both write methods of the same class and use its attributes.

Roles: ``coder_0`` and ``coder_1``. Both see the class with its constructor and the descriptions of all methods, and
which half is theirs. One simultaneous response: the methods, in a class or alone.

Example (the first training item of seed 0::

    coder_0 is told    Two programmers write one Python class at the same time, without seeing each other's code. You
                       are coder_0. Write only ordered, evens, above; the other writes the rest. The class:

                       class Bucket:
                           def __init__(self, numbers=()):
                               self.numbers = list(numbers)

                           def spread(self):
                               '''Return the greatest minus the least number, 0 if there is none.'''
                           def ordered(self):
                               '''Return the sorted numbers as a new list.'''
                           def evens(self):
                               '''Return how many numbers are even.'''
                           def above(self, limit):
                               '''Return how many numbers are greater than the limit.'''
                           @staticmethod
                           def limit(numbers, most):
                               '''Return the numbers, each lowered to at most this one, as a new list.'''
                           @classmethod
                           def counted(cls, size):
                               '''Return a list of the numbers from 1 to the size.'''
    coder_1 is told    the same with its own methods
    coder_0 answers    class Bucket:

                           def ordered(self):
                               return sorted(self.numbers)

                           def evens(self):
                               return sum((x % 2 == 0 for x in self.numbers))

                           def above(self, limit):
                               return sum((x > limit for x in self.numbers))
    coder_1 answers    class Bucket:

                           def spread(self):
                               return max(self.numbers) - min(self.numbers) if self.numbers else 0

                           @staticmethod
                           def limit(numbers, most):
                               return [min(x, most) for x in numbers]

                           @classmethod
                           def counted(cls, size):
                               return list(range(1, size + 1))
    score              1.00

Reward, ``reward="strict"`` (default, in [0, 1])::

    max(0, .1 · valid/all + .5 p + .4 min(q_0, q_1) − .3 · foreign/all)

The answers are merged by the parser: from each the methods that are its own, with their decorators, and the imports,
functions and constants around them. *valid*: methods that their owner wrote; *foreign*: methods that somebody else
wrote (too). p: the share of all cases that the merged class passes. q_i: the share of the cases of coder i's methods
that the class passes with the other's half from the solution; so nobody's code can do the other's work. Methods are
divided evenly, in an order drawn from the item's key. Cases run here, the class in :mod:`comlrl_env.sandbox`: see
:mod:`comlrl_env.tasks.code.class_tests`.

``reward="reference"`` (as published, in [−1, 6])::

    2 · valid/all + 4 · passed/run − overlap/all        0 if the merged class does not compile

Methods that take only ``self`` are coder_0's, the others coder_1's (in 42 of the 100 public classes one coder gets
everything). *overlap*: methods that both wrote; of two the owner's counts, and what the owner left out is taken from
the other. Decorators are kept here, and results cannot be forged.

Figures (``python -m comlrl_env.figures comlrl/ClassEval-v0 reward=…``, which takes minutes)::

    reward      gold   solo   random  coder_0 writes everything; both write everything
    strict      1.00   0.30   0.15    0.15; 0.70
    reference   6.00   3.00   2.33    5.00; 5.00

Solo: coder_0 writes its half, coder_1 nothing. Random: every method returns a constant or the numbers.

Data: classes of six out of sixteen methods, 50 thousand of them, with tests, written for this project, Apache-2.0;
train and eval, and neighbouring seeds, share no class name. Some hundred items a second: each runs its own solution.
``data=…`` reads rows in the form of ``FudanSELab/ClassEval`` (MIT; Du et al., 2023, arXiv:2308.01861; one split of 100:
evaluation the first 25, training the rest). Their tests are trusted and run in this process; those that use ``len``,
``==`` or ``in`` on objects of the class, files or patches cannot pass here: their classes stay below the maximum.

Versions: v0 first version.
"""

import ast
import textwrap
import zlib
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np

from comlrl_env.errors import TaskError
from comlrl_env.reference_task import ReferenceTask
from comlrl_env.rows import PublicData
from comlrl_env.sandbox import Box, SandboxError
from comlrl_env.syntax import parse
from comlrl_env.task import History, JointResponse
from comlrl_env.tasks.code.class_models import make_row
from comlrl_env.tasks.code.class_tests import ClassTests, read_tests
from comlrl_env.tasks.code.team import REFERENCE_LIMITS, STRICT_LIMITS
from comlrl_env.types import Item, Score

CODERS = ("coder_0", "coder_1")


@dataclass(frozen=True)
class Blueprint:
    """A row, parsed: ``head`` is the class up to its methods, ``methods`` are the solution's, in order."""

    name: str
    imports: str
    head: str
    methods: Mapping[str, ast.FunctionDef]
    tests: ClassTests
    case_of: Mapping[str, str]


@dataclass(frozen=True)
class Written:
    """What one answer holds: ``methods`` by name, and the statements ``around`` them."""

    methods: Mapping[str, ast.FunctionDef]
    around: tuple[ast.stmt, ...]


class ClassEval(ReferenceTask):
    """One class for two coders; see the page above and :class:`ReferenceTask` for the arguments."""

    source = PublicData(
        "FudanSELab/ClassEval",
        ("class_name", "class_constructor", "methods_info", "solution_code", "test"),
        {"train": "test", "eval": "test"},
        25,
    )
    roles = CODERS
    levels = (0, 0)
    cues = ("Your methods:",)
    reward_figures: ClassVar = {
        "strict": {"gold": 1.0, "solo": 0.3, "random": 0.15},
        "reference": {"gold": 6.0, "solo": 3.0, "random": 2.33},
    }

    def build(self, rng: np.random.Generator, split: str) -> dict[str, Any]:
        """A row in ClassEval's form."""
        return make_row(rng, split, self.seed)

    def from_row(self, item: Item) -> Item:
        """The row itself, parsed once. Raises :class:`TaskError` when that fails."""
        try:
            blueprint_of(item)
        except (SyntaxError, ValueError, KeyError, TypeError) as error:
            raise TaskError(f"class task: cannot read {item.key}: {type(error).__name__}: {error}") from error
        return item

    def instructions(self, item: Item, history: History) -> dict[str, str]:
        """The class with all descriptions, and the agent's half."""
        data, owners = item.data, self.owners(item)
        shown = "\n".join(_indented(method["method_description"]) for method in data["methods_info"])
        told = {}
        for agent in CODERS:
            mine = [name for name, owner in owners.items() if owner == agent]
            told[agent] = (
                "Two programmers write one Python class at the same time, without seeing each other's code. "
                f"You are {agent}. Write only {_listed(mine)}; the other writes the rest. The class:\n\n"
                f"{data['class_constructor'].rstrip()}\n\n{shown}"
            )
        return told

    def owners(self, item: Item) -> dict[str, str]:
        """Who writes which method: an even split (strict), or by whether a method takes only ``self``."""
        methods = blueprint_of(item).methods
        if self.reward == "reference":
            return {name: CODERS[not _only_self(node)] for name, node in methods.items()}
        names = sorted(methods)
        order = np.random.default_rng(zlib.crc32(item.key.encode())).permutation(len(names)).tolist()
        first = {names[i] for i in order[: -(-len(names) // 2)]}
        return {name: CODERS[name not in first] for name in methods}

    def score(self, item: Item, history: History, responses: JointResponse) -> Score:
        """The reward of the page above; a broken sandbox is a failed score."""
        plan, owners = blueprint_of(item), self.owners(item)
        limits = STRICT_LIMITS if self.reward == "strict" else REFERENCE_LIMITS
        try:
            with Box(limits) as box:
                written = {agent: _read(box, responses[agent], plan) for agent in CODERS}
            judge = _strict if self.reward == "strict" else _reference
            return judge(plan, owners, written, lambda source: _passed(plan, source, limits))
        except SandboxError as error:
            return Score.failed("error", str(error))

    def score_many(self, item: Item, history: History, joint_responses: Sequence[JointResponse]) -> list[Score]:
        """``score`` of each, several at once."""
        with ThreadPoolExecutor() as threads:
            return list(threads.map(lambda responses: self.score(item, history, responses), joint_responses))

    def gold(self, item: Item, history: History = ()) -> dict[str, str]:
        """The solution's methods, each from its owner."""
        plan, owners = blueprint_of(item), self.owners(item)
        return {agent: _as_class(plan, [n for n, owner in owners.items() if owner == agent]) for agent in CODERS}

    def sample_answers(self, item: Item, rng: np.random.Generator, history: History = ()) -> dict[str, str]:
        """Every method of one's own returns a constant or an attribute."""
        values = ("0", "1", "[]", "None", "True", "list(self.__dict__.values())[0]")
        plan, owners = blueprint_of(item), self.owners(item)
        answers = dict.fromkeys(CODERS, f"class {plan.name}:\n")
        for name, node in plan.methods.items():
            value = values[int(rng.integers(len(values)))]
            decorators = "".join(f"    @{ast.unparse(each)}\n" for each in node.decorator_list)
            answers[owners[name]] += f"{decorators}    def {name}({ast.unparse(node.args)}):\n        return {value}\n"
        return answers


def blueprint_of(item: Item) -> Blueprint:
    """The parsed row of an item; raises ``TaskError`` or ``SyntaxError`` for one that cannot be parsed."""
    data = item.data
    wanted = tuple((method["method_name"], method.get("test_class", "")) for method in data["methods_info"])
    imports = "\n".join(line for line in data.get("import_statement") or [] if line)
    return _blueprint(
        data["class_name"], imports, data["class_constructor"], data["solution_code"], data["test"], wanted
    )


@lru_cache(maxsize=1024)
def _blueprint(
    name: str, imports: str, constructor: str, solution: str, test: str, wanted: tuple[tuple[str, str], ...]
) -> Blueprint:
    methods = {}
    for node in ast.walk(parse(solution)):
        if isinstance(node, ast.ClassDef) and node.name == name:
            methods = {each.name: each for each in node.body if isinstance(each, ast.FunctionDef)}
    missing = [method for method, _ in wanted if method not in methods]
    if missing or not wanted:
        raise TaskError(
            f"class task: expected a solution with all methods, actually without {', '.join(missing) or 'any'}"
        )
    return Blueprint(
        name=name,
        imports=imports,
        head=ast.unparse(parse(constructor)),
        methods={method: methods[method] for method, _ in wanted},
        tests=read_tests(f"{imports}\n{test}", name, methods),
        case_of=dict(wanted),
    )


def _read(box: Box, text: str, plan: Blueprint) -> Written:
    """The methods and the rest of an answer; its text was parsed in the sandbox first."""
    found = box.read(text, plan.name)
    try:
        tree = parse(found["source"] if found else "")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        tree = ast.Module(body=[], type_ignores=[])
    methods: dict[str, ast.FunctionDef] = {}
    around: list[ast.stmt] = []
    for node in tree.body:
        if isinstance(node, ast.ClassDef) and node.name == plan.name:
            methods |= {each.name: each for each in node.body if isinstance(each, ast.FunctionDef)}
        elif isinstance(node, ast.FunctionDef) and node.name in plan.methods:
            methods[node.name] = node
        else:
            around.append(node)
    return Written(methods, tuple(around))


def _merged(plan: Blueprint, around: Sequence[ast.stmt], methods: Mapping[str, ast.FunctionDef]) -> str:
    """The module text of the class with these methods; private helpers may be among them."""
    shown = [textwrap.indent(ast.unparse(node), "    ") for node in methods.values()]
    before = [plan.imports, *map(ast.unparse, around)]
    return "\n".join([*before, plan.head, *shown, ""])


def _helpers(written: Written, plan: Blueprint) -> dict[str, ast.FunctionDef]:
    """Methods of an answer that are neither wanted ones nor the constructor."""
    return {name: node for name, node in written.methods.items() if name not in plan.methods and name != "__init__"}


def _passed(plan: Blueprint, source: str, limits: Any) -> dict[tuple[str, str], str]:
    """Why each case failed, empty for those that passed."""
    with Box(limits) as box:
        return {name: test.failure for name, test in plan.tests.run(source, box).items()}


def _strict(plan: Blueprint, owners: Mapping[str, str], written: Mapping[str, Written], run: Any) -> Score:
    own = {a: {n: w.methods[n] for n, o in owners.items() if o == a and n in w.methods} for a, w in written.items()}
    valid = sum(map(len, own.values()))
    parts = {"valid": valid / len(owners), "pass_rate": 0.0, "own_0": 0.0, "own_1": 0.0}
    failures: dict[tuple[str, str], str] = {}
    if valid:
        extra = {name: node for one in written.values() for name, node in _helpers(one, plan).items()}
        around = [node for one in written.values() for node in one.around]
        failures = run(_merged(plan, around, extra | own[CODERS[0]] | own[CODERS[1]]))
        parts["pass_rate"] = _share(failures.values())
    if all(own.values()) and parts["pass_rate"] > 0:
        for agent in CODERS:
            cases = {plan.case_of[name] for name, owner in owners.items() if owner == agent}
            trusted = {name: node for name, node in plan.methods.items() if owners[name] != agent}
            alone = run(_merged(plan, written[agent].around, _helpers(written[agent], plan) | trusted | own[agent]))
            parts[f"own_{agent[-1]}"] = _share([why for (case, _), why in alone.items() if case in cases])
    foreign = [n for n, owner in owners.items() if any(n in w.methods for a, w in written.items() if a != owner)]
    parts["foreign"] = len(foreign) / len(owners)
    earned = 0.1 * parts["valid"] + 0.5 * parts["pass_rate"] + 0.4 * min(parts["own_0"], parts["own_1"])
    reward = max(0.0, earned - 0.3 * parts["foreign"])
    missing = [name for name, owner in owners.items() if name not in own[owner]]
    return Score(reward=reward, parts=parts, reason=_reason(missing, foreign, failures), is_success=reward > 1 - 1e-9)


def _reference(plan: Blueprint, owners: Mapping[str, str], written: Mapping[str, Written], run: Any) -> Score:
    valid = sum(name in written[owner].methods for name, owner in owners.items())
    twice = [name for name in owners if all(name in one.methods for one in written.values())]
    taken = {}
    for name, owner in owners.items():
        one = next((written[a] for a in sorted(CODERS, key=lambda a: a != owner) if name in written[a].methods), None)
        if one is not None:
            taken[name] = one.methods[name]
    around = [node for one in written.values() for node in one.around]
    extra = {name: node for one in written.values() for name, node in _helpers(one, plan).items()}
    failures = run(_merged(plan, around, extra | taken)) if taken else {}
    parts = {
        "valid": 2 * valid / len(owners),
        "tests": 4 * _share(failures.values()),
        "overlap": -len(twice) / len(owners),
    }
    missing = [name for name, owner in owners.items() if name not in written[owner].methods]
    # What parses may not compile: a `break` outside of a loop. The sandbox says so of every case.
    broken = bool(failures) and all(why.startswith("raised: SyntaxError") for why in failures.values())
    reward = 0.0 if broken else sum(parts.values())
    return Score(reward=reward, parts=parts, reason=_reason(missing, twice, failures), is_success=reward > 6 - 1e-9)


def _share(failures: Any) -> float:
    verdicts = list(failures)
    return sum(not failure for failure in verdicts) / len(verdicts) if verdicts else 0.0


def _reason(missing: Sequence[str], foreign: Sequence[str], failures: Mapping[tuple[str, str], str]) -> str:
    said = [f"not written by their owner: {', '.join(missing)}"] if missing else []
    said += [f"written by another: {', '.join(foreign)}"] if foreign else []
    bad = [(name, why) for name, why in failures.items() if why]
    if bad:
        said.append(f"{len(bad)} of {len(failures)} cases fail, first: {'.'.join(bad[0][0])}: {bad[0][1]}")
    return "; ".join(said)


def _as_class(plan: Blueprint, names: Sequence[str]) -> str:
    methods = [textwrap.indent(ast.unparse(plan.methods[name]), "    ") for name in names]
    return "\n\n".join([f"class {plan.name}:", *methods]) if names else ""


def _only_self(node: ast.FunctionDef) -> bool:
    arguments = node.args
    every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    return [argument.arg for argument in every] == ["self"] and not arguments.vararg and not arguments.kwarg


def _indented(text: str) -> str:
    return textwrap.indent(textwrap.dedent(text).rstrip(), "    ")


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names) if names else "nothing"
